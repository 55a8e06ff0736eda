"""Serve AG-UI's clients: one address for each agent. A request begins or continues the run that answers it in the
thread's session, and the answer is events and the messages of the thread."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.protocol.messages import CallerTerms
from cadre.protocol.topology import tree_of
from cadre.spec.names import NAME
from cadre_gateway.doors.agui.events import Json, ThreadEvents
from cadre_gateway.doors.answers import count_request, run_headers
from cadre_gateway.doors.callers_tools import tools_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.messages import ARGUMENT, TOLD, MessageContent, ToldHistory
from cadre_gateway.doors.progress import PendingAnswer, Place, Progress
from cadre_gateway.doors.rulings import ruling_of, said
from cadre_gateway.doors.sender import DoorSender, RunService, begin_run, known_run, sender_of, short_hash
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.body import Ruling, Submission
from cadre_gateway.requests.problems import FORESEEN, Problem, answer_deadline, as_problem, invalid
from cadre_gateway.streaming.event_stream import EventStream

AGENT = "/agui/{agent}"
_PING = b": ping\n\n"
_MAX_HELD_BYTES = 256 * 1024
"""The largest request that is kept while its run goes on, to send all messages again when one is taken back."""

_OWN_AFFAIRS = ("reasoning", "activity")
"""Roles of messages that clients keep although a snapshot lacks them, as long as it has none of that role."""


def router(runs: RunService) -> APIRouter:
    """Return the routes of the door. AG-UI's own specification describes them, so the gateway's leaves them out."""
    routes = APIRouter(include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    turns = Turns(runs, answers)

    @routes.post(AGENT, summary="A turn of a thread with an agent")
    async def post_turn(agent: str, request: Request) -> Response:
        try:
            data = await body.read(request)
            wanted = body.parse(data, RunInput)
            place = await turns.place_of(agent, wanted, sender_of(request))
        except FORESEEN as error:
            count_request(request, "agui", AGENT, as_problem(error))
            raise
        count_request(request, "agui", AGENT, None)
        events = ThreadEvents(wanted.thread_id, wanted.run_id, place)
        # A copy: the body itself takes of the memory that all requests share.
        kept = bytes(data) if len(data) <= _MAX_HELD_BYTES else None
        answer = EventStream(_frames(answers, place, events, kept))
        answer.headers.update(run_headers(place))
        return answer

    return routes


async def _frames(answers: Answers, place: Place, events: ThreadEvents, data: bytes | None) -> AsyncGenerator[bytes]:
    """Yield the frames. `data` is the request; without it nothing is sent that may have to be taken back."""
    progress = Progress(place.run, place.after)
    try:
        for event in events.begin():
            yield _frame(event)
        async with contextlib.aclosing(answers.follow(progress, live=data is not None)) as follow:
            async for news in follow:
                for event in events.take(news.entry) if news.entry is not None else []:
                    yield _frame(event)
                for event in events.written(news.delta) if news.delta is not None else []:
                    yield _frame(event)
                if news.is_ping:
                    yield _PING
        for event in events.settle(progress):
            if event["type"] == "MESSAGES_SNAPSHOT" and data is not None:
                sent = msgspec.json.decode(data).get("messages", [])
                event["messages"] = [*await messages_told(answers, progress, sent), *event["messages"]]
            yield _frame(event)
    except FORESEEN as error:
        problem = as_problem(error)
        yield _frame({"type": "RUN_ERROR", "message": problem.detail, "code": problem.code})


def _frame(event: Json) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(event)


async def messages_told(answers: Answers, progress: Progress, sent: list[Json]) -> list[Json]:
    """Return the client's messages: those that it `sent`, and the calls since. Raise as `Answers.so_far` does."""
    place = Place(progress.run, progress.after)
    events, found = ThreadEvents("", "", place), _Messages(sent)
    async with answers.pages(place) as pages:
        async for page in pages:
            for stored in page:
                if stored.seq <= progress.seq:
                    found.take(events.take(stored))
    return found.all


class _Messages:
    def __init__(self, sent: list[Json]) -> None:
        self.all = [message for message in sent if message.get("role") not in _OWN_AFFAIRS]

    def take(self, events: list[Json]) -> None:
        """Make of events what a client makes of them."""
        for event in events:
            who: dict[str, Any] = {key: event[key] for key in ("subagentRunId",) if key in event}
            match event["type"]:
                case "TOOL_CALL_START":
                    function = {"name": event["toolCallName"], "arguments": ""}
                    call = {"id": event["toolCallId"], "type": "function", "function": function}
                    self.all.append({"id": call["id"], "role": "assistant", "toolCalls": [call], **who})
                case "TOOL_CALL_ARGS":
                    self.all[-1]["toolCalls"][0]["function"]["arguments"] += event["delta"]
                case "TOOL_CALL_RESULT":
                    told = {key: event[key] for key in ("toolCallId", "role", "content")}
                    self.all.append({"id": event["messageId"], **told, **who})
                case _:
                    pass


_BESIDE = frozenset({"context", "state", ARGUMENT})
"""Arguments that are the thread's and not the agent's own."""

"""Roles of messages that are the client's account of a run, and no part of what was said."""

_MAX_ID_CHARS = 255

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]


@dataclass(frozen=True)
class Turns:
    """Finds or begins the runs of requests. Every method raises Problem, RetryableError."""

    runs: RunService
    answers: Answers

    async def place_of(self, agent: str, wanted: RunInput, sender: DoorSender) -> Place:
        """Return the place of the answer to the request; the same request, sent again, finds its earlier place."""
        rulings = self._resumed(wanted.resume or [], sender)
        results: dict[str, Ruling] = {}
        for index, message in reversed(list(enumerate(wanted.messages))):
            if message.role != "tool":
                break
            text = content_of(message, f"messages[{index}]").text
            results.setdefault(message.tool_call_id, said("approved", sender.name, text))
        if rulings or results:
            return await self._decide(agent, rulings, results, sender)
        return await self._begin(agent, wanted, sender)

    def _resumed(self, answers: list[Resume], sender: DoorSender) -> dict[str, Ruling]:
        """Return what a person has said of calls that wait."""
        if answers and not sender.caller.may("decide"):
            raise Problem(403, "forbidden", "this key may not decide on calls: the role `approver` does")
        rulings = {}
        for answer in answers:
            if answer.status == "cancelled":
                rulings[answer.interrupt_id] = said("rejected", sender.name)
            else:
                payload = answer.payload if isinstance(answer.payload, dict) else {}
                rulings[answer.interrupt_id] = ruling_of({"verdict": "approved", **payload}, sender.name)
        return rulings

    async def _decide(
        self, agent: str, rulings: dict[str, Ruling], results: dict[str, Ruling], sender: DoorSender
    ) -> Place:
        """Bring a person's rulings and the results of the client's own tools to the run that waits for them. Results of
        the agent's own tools, which clients repeat with theirs, are passed over."""
        for call in (*rulings, *results):
            await self.runs.reach.check(sender.caller, "call", call)
        run = tree_of(next(iter(rulings or results)))
        progress = await self.answers.so_far(Place(run))
        if progress.task is not None and progress.task.agent != agent:
            raise Problem(404, "unknown-run", f"agent {agent!r} has no run {run!r}")
        told: dict[str, PendingAnswer] = {}
        for pause in progress.pauses:
            told |= pause.held
        given = {call: one for call, one in results.items() if call in told and told[call].is_callers}
        unknown = [call for call in rulings if call not in told or told[call].is_callers]
        if unknown or not (given or rulings):
            raise invalid(f"run {run} has asked for none of these: {', '.join(unknown or results)}")
        for call, ruling in (rulings | given).items():
            if call in progress.held:
                await self.runs.decisions.decide(call, ruling, sender.traceparent, sender.caller.titles)
        return await self.answers.place_behind(run, rulings | given)

    async def _begin(self, agent: str, wanted: RunInput, sender: DoorSender) -> Place:
        said_last = wanted.messages[-1] if wanted.messages else None
        if said_last is None or said_last.role != "user":
            raise invalid("the last message is the user's, or `resume` answers what waits", field="messages")
        content = content_of(said_last, f"messages[{len(wanted.messages) - 1}]")
        history = _history(wanted.messages[:-1])
        told = msgspec.json.encode([wanted.messages, wanted.tools, wanted.context, wanted.state], order="sorted")
        key = sender.key("agui", f"{wanted.thread_id}\n{wanted.run_id}", told)
        known = await known_run(self.runs, sender.caller, agent, key)
        if known is not None:
            return known
        session = wanted.thread_id if NAME.fullmatch(wanted.thread_id) else f"agui-{short_hash(wanted.thread_id)}"
        goes_on = not history or await self._holds(agent, session, history, sender)
        before = ToldHistory() if goes_on else history
        request = Submission(
            agent=agent,
            task=content.text,
            inputs=_arguments(wanted, before),
            images=[*before.images, *content.images],
            files=before.files | content.files,
            session=session,
            reset=session is not None and not goes_on,
        )
        card = card_of(self.runs.registry.reachable(), agent)
        described = [{"type": "function", **tool} for tool in wanted.tools or []]
        metadata = {TOLD: history.mark("user", content, name=said_last.name)}
        terms = CallerTerms(tools=tools_of(described, card), metadata=metadata)
        standing = before.standing(content.text)
        return await begin_run(self.runs, sender, request, key, terms, _BESIDE, standing)

    async def _holds(self, agent: str, session: str, history: ToldHistory, sender: DoorSender) -> bool:
        """Return whether the history ends with what the thread's last run has said."""
        async with answer_deadline():
            recorded, _ = await self.runs.turns.read(agent, session, sender.caller.user)
            task = await self.runs.history.task(recorded.run, recorded.run) if recorded is not None else None
        return task is not None and history.ends_with(task, await self.answers.so_far(Place(task.run)))


def _history(messages: list[ThreadMessage]) -> ToldHistory:
    """Return the messages of a thread before the present one. Raise a 422 problem."""
    found = ToldHistory()
    for index, one in enumerate(messages):
        if one.role in _OWN_AFFAIRS:
            continue
        content = content_of(one, f"messages[{index}]")
        calls = [{"id": call.get("id"), **call.get("function", {})} for call in one.tool_calls or []]
        found.add(one.role, content, name=one.name, calls=calls, call=one.tool_call_id)
    return found


def _arguments(wanted: RunInput, before: ToldHistory) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if wanted.context:
        found["context"] = wanted.context
    if wanted.state:
        found["state"] = wanted.state
    if before:
        found[ARGUMENT] = before.said
    return found


class Resume(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: Id
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ThreadMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A message of the thread; what else it has is the client's own business."""

    role: str
    content: Any = None
    name: str | None = None
    tool_call_id: str = ""
    tool_calls: list[dict[str, Any]] | None = None


class RunInput(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """AG-UI's RunAgentInput, as far as an agent has a use for it."""

    thread_id: Id
    run_id: Id
    messages: list[ThreadMessage] = []
    tools: list[dict[str, Any]] | None = None
    context: list[dict[str, Any]] | None = None
    state: Any = None
    resume: list[Resume] | None = None


def content_of(message: ThreadMessage, where: str) -> MessageContent:
    """Return the texts, images and documents of a message. Raises a 422 problem."""
    if message.content is None or isinstance(message.content, str):
        return MessageContent(message.content or "")
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(message.content if isinstance(message.content, list) else [None]):
        kind = part.get("type") if isinstance(part, dict) else None
        url = _url_of(part.get("source")) if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "image" and url is not None:
            found.images.append(url)
        elif kind in ("document", "audio", "video") and url is not None and url.startswith("data:"):
            found.files[str(part.get("id") or f"{kind}-{len(found.files) + 1}")] = url
        else:
            raise invalid(
                f"a part of type {kind!r} cannot be used: send text, an image, or a document with its data - at"
                f" `$.{where}.content[{index}]`"
            )
    found.text = "\n".join(texts)
    return found


def _url_of(source: Any) -> str | None:
    if not isinstance(source, dict) or not isinstance(value := source.get("value"), str):
        return None
    return f"data:{source.get('mimeType', '')};base64,{value}" if source.get("type") == "data" else value
