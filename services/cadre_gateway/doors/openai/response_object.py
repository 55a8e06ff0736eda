"""Read the body of a response and write the response: the part of a run up to its next pause or its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from cadre.protocol.cards import AgentCard
from cadre.protocol.messages import Task
from cadre_gateway.doors.answers import count_request
from cadre_gateway.doors.callers_tools import schema_of, terms_of
from cadre_gateway.doors.messages import ARGUMENT, TOLD, MessageContent, ToldHistory
from cadre_gateway.doors.openai.turn_request import (
    Envelope,
    MaxTokens,
    Turn,
    content_of,
    session_name,
    text_of,
)
from cadre_gateway.doors.progress import (
    PendingAnswer,
    Place,
    Progress,
    Tokens,
    answer_text,
    within_tokens,
)
from cadre_gateway.doors.rulings import PersonsWord
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem, error_of, invalid

Json = dict[str, Any]

_STATUS = {
    "success": "completed",
    "max_steps_error": "incomplete",
    "cancelled": "cancelled",
    "error": "failed",
}

_ID = re.compile(r"resp_([A-Za-z0-9-]{1,64})(?:_([1-9]\d{0,15}))?")

OWN_NOTE = "openai."
"""Begins the keys of a run's metadata that are this door's own."""

_RULES = ("system", "developer")


def status_of(progress: Progress) -> str:
    """Return the status of the response."""
    if progress.pause is not None:
        return "completed"
    if progress.end is not None:
        return "incomplete" if _is_cut(progress) else _STATUS[progress.end.state]
    return "in_progress" if progress.task is not None else "queued"


def most_tokens_of(task: Task) -> int | None:
    """Return how many tokens the answer to the task may have; None for any number."""
    asked = task.terms.metadata.get(MAX_TOKENS)
    return int(asked) if asked else None


def _is_cut(progress: Progress) -> bool:
    """Return whether the answer has more tokens than its caller takes."""
    end, task = progress.end, progress.task
    if end is None or end.state != "success" or task is None:
        return False
    text = answer_text(end.output)
    return len(within_tokens(text, most_tokens_of(task))) < len(text)


def response_object(progress: Progress, task: Task, output: list[Json], status: str) -> Json:
    """Return the response with these output items."""
    place = Place(progress.run, progress.after)
    terms, end = task.terms, progress.end if progress.pause is None else None
    is_over = status not in ("queued", "in_progress")
    begun = progress.before.at if progress.before is not None else task.at
    form: Json = {"type": "text"}
    if terms.output_schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": terms.output_schema, "strict": False}
        form["description"] = None
    error = None
    if status == "failed" and end is not None:
        why = f"{end.error.type}: {end.error.message}" if end.error is not None else "the run failed"
        error = {"code": "server_error", "message": why}
    return {
        "id": response_id(place),
        "object": "response",
        "created_at": int(begun),
        "completed_at": int(progress.at) if status == "completed" else None,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": task.agent,
        "previous_response_id": _previous(progress, task),
        "conversation": {"id": named} if (named := terms.metadata.get(CONVERSATION)) else None,
        "instructions": task.inputs.get("instructions"),
        "output": output,
        "error": error,
        "tools": [_tool(card) for card in terms.tools],
        "tool_choice": msgspec.json.decode(terms.metadata.get(TOOL_CHOICE, '"auto"')),
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": form},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "reasoning": {"effort": None, "summary": None},
        "user": task.origin.user if task.origin is not None else None,
        "usage": _usage(progress.tokens) if is_over else None,
        "max_output_tokens": most_tokens_of(task),
        "max_tool_calls": None,
        "store": True,
        "background": terms.metadata.get(BACKGROUND) == "true",
        "service_tier": "default",
        "metadata": {key: value for key, value in terms.metadata.items() if not key.startswith((OWN_NOTE, TOLD))},
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def settled_items(progress: Progress) -> list[Json]:
    """Return the items that a settled response ends with: calls, questions, or the answer."""
    if (pause := progress.pause) is not None:
        return [_held_item(call, held, progress) for call, held in pause.held.items()]
    end = progress.end
    if end is None or end.output is None or end.state not in ("success", "max_steps_error"):
        return []
    place = Place(progress.run, progress.after)
    text = answer_text(end.output)
    if progress.task is not None:
        text = within_tokens(text, most_tokens_of(progress.task))
    return [message_item(place, text, status_of(progress))]


def message_item(place: Place, text: str, status: str) -> Json:
    """Return the message of the response, with this text."""
    return {
        "type": "message",
        "id": f"msg_{response_id(place)[5:]}",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def input_items(progress: Progress, task: Task) -> list[Json]:
    """Return what was said with the response, the last item first."""
    if progress.after:
        asked = progress.before.held if progress.before is not None else {}
        given = [call for call in asked if call in progress.decided and progress.gone[call].after <= progress.after]
        return [_given(call, asked[call], progress) for call in reversed(given)]
    content: list[Json] = [{"type": "input_text", "text": task.task}]
    told = task.inputs.get(ARGUMENT, [])
    before = max((number for one in told for number in one.get("images", ())), default=0)
    content += [{"type": "input_image", "image_url": ref, "detail": "auto"} for ref in task.images[before:]]
    return [_message_in(progress.run, content)]


def items_of_run(progress: Progress, task: Task) -> list[Json]:
    """Return all that was said in a run, in the order of its entries: messages, calls that were held, and the answers
    to them. `progress` begins with the run."""
    asked = {call: held for pause in progress.pauses for call, held in pause.held.items()}
    answered = [call for call in asked if call in progress.decided and call in progress.gone]
    found: list[tuple[float, Json]] = [(0, item) for item in input_items(progress, task)]
    found += [
        (before + 0.5, _message_in(f"{progress.run}_{before}", [{"type": "input_text", "text": text}]))
        for before, text in progress.messages
    ]
    for pause in progress.pauses:
        found += [(pause.seq, _held_item(call, held, progress)) for call, held in pause.held.items()]
    found += [
        (progress.gone[call].after + 0.5, _given(call, asked[call], progress))
        for call in answered
        if progress.decided[call].verdict != "expired"
    ]
    found.sort(key=lambda one: one[0])
    progress.after = progress.place_behind(answered).after
    said = [item for _, item in found] + settled_items(progress)
    return _once(said)


def _once(items: list[Json]) -> list[Json]:
    """Return the items, each where it stands first: a call is asked about again until it is answered."""
    found: dict[str, Json] = {}
    for item in items:
        found.setdefault(item["id"], item)
    return list(found.values())


def page_of(
    items: Sequence[Json], limit: int, order: str, after: str | None = None, removed: Container[str] = ()
) -> Json:
    """Return a page of items, which come in their order, as clients read them; those that were `removed` are left out,
    and still say where a page begins. Raise a 422 problem for an `after` that is unknown."""
    ordered = items if order == "asc" else items[::-1]
    ids = [item["id"] for item in ordered]
    if after is not None and after not in ids:
        raise invalid(f"after: there is no item {after!r} here", field="after")
    begin = ids.index(after) + 1 if after is not None else 0
    rest = [item for item in ordered[begin:] if item["id"] not in removed]
    page = rest[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"object": "list", "data": page, **ends, "has_more": len(rest) > limit}


def _message_in(place: str, content: list[Json]) -> Json:
    message = {"type": "message", "id": f"msg_{place}_in", "role": "user", "status": "completed"}
    return {**message, "content": content}


def _held_item(call: str, held: PendingAnswer, progress: Progress) -> Json:
    request = held.request
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    if held.is_callers:
        name = {"call_id": call, "name": request.name, "arguments": arguments}
        return {"type": "function_call", "id": f"fc_{call}", "status": "completed", **name}
    label = progress.task.agent if progress.task is not None and held.run == progress.run else held.run
    return {
        "type": "mcp_approval_request",
        "id": call,
        "name": request.name,
        "arguments": arguments,
        "server_label": label,
    }


def _given(call: str, held: PendingAnswer, progress: Progress) -> Json:
    decided = progress.decided[call]
    if held.is_callers:
        about = {"call_id": call, "output": decided.feedback, "status": "completed"}
        return {"type": "function_call_output", "id": f"fco_{call}", **about}
    word = {"approve": decided.verdict in ("approved", "corrected"), "reason": decided.feedback or None}
    return {"type": "mcp_approval_response", "id": f"mcpr_{call}", "approval_request_id": call, **word}


def _previous(progress: Progress, task: Task) -> str | None:
    if not progress.after:
        return task.terms.metadata.get(PREVIOUS)
    asked = progress.before.seq if progress.before is not None else 0
    return response_id(
        max((gone for gone in progress.gone.values() if gone.after < asked), default=Place(progress.run))
    )


def _tool(card: Any) -> Json:
    return {
        "type": "function",
        "name": card.name,
        "description": card.description,
        "parameters": card.input_schema,
        "strict": False,
    }


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def response_id(place: Place) -> str:
    """Return the id of the response that begins there."""
    return f"resp_{place.run}_{place.after}" if place.after else f"resp_{place.run}"


def place_of_response(given: str) -> Place:
    """Return where the response with this id begins. Raise a 404 problem for another text."""
    found = _ID.fullmatch(given)
    if found is None:
        raise Problem(404, "unknown-run", f"there is no response {given!r}")
    return Place(found[1], int(found[2] or 0))


BACKGROUND, PREVIOUS = f"{OWN_NOTE}background", f"{OWN_NOTE}previous"
CONVERSATION = f"{OWN_NOTE}conversation"
MAX_TOKENS, TOOL_CHOICE = f"{OWN_NOTE}max_output_tokens", f"{OWN_NOTE}tool_choice"


class ResponseBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/responses, as far as an agent has a use for it."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    max_output_tokens: MaxTokens | None = None
    prompt: Any = None


class ReadItems:
    """The items of an input, as they are read one by one."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.history, self.mark = ToldHistory(), ""
        """The messages besides `now`, and the mark of those up to `now`."""
        self.now: MessageContent | None = None
        """The last message of a person."""
        self.results: dict[str, str] = {}
        """Results since that message, by call; the same for the words."""
        self.words: dict[str, PersonsWord] = {}

    def take(self, item: dict[str, Any], where: str, *, is_last: bool, is_after: bool) -> None:
        """Read one item: `is_last`: the last message of a person; `is_after`: it comes behind that. Raise a 422
        problem."""
        add = partial(self.history.add, after_task=is_after)
        match item:
            case {"type": "function_call_output", "call_id": str(call)}:
                output = content_of(item.get("output"), f"{where}.output")
                add("tool", output, call=call)
                if is_after:
                    self.results[call] = output.text
            case {"type": "mcp_approval_response", "approval_request_id": str(call), "approve": bool(yes)}:
                reason = str(item.get("reason") or "")
                add("user", MessageContent(text=reason), call=call, approve=str(yes).lower())
                if is_after:
                    self.words[call] = PersonsWord("approved" if yes else "rejected", reason)
            case {"type": "function_call", "name": str(name)}:
                called = {"id": item.get("call_id"), "name": name, "arguments": item.get("arguments")}
                add("assistant", MessageContent(), calls=[called])
            case {"type": "mcp_approval_request", "name": str(name)}:
                asked = {"id": item.get("id"), "name": name, "arguments": item.get("arguments")}
                add("assistant", MessageContent(), asked=[asked])
            case {"type": "reasoning"}:
                parts = [*(item.get("summary") or []), *(item.get("content") or [])]
                add("assistant", MessageContent(), reasoning=text_of(parts, where))
            case {"type": "item_reference", "id": str(named)}:
                add("assistant", MessageContent(), item=named)
            case {"type": "mcp_list_tools"}:
                pass
            case {"role": str(role)} if item.get("type", "message") == "message":
                content = content_of(item.get("content"), f"{where}.content")
                if is_last:
                    self.now, self.mark = content, self.history.mark(role, content)
                elif role in _RULES:
                    self.rules.append(content.text)
                else:
                    add(role, content)
            case _:
                raise invalid(f"an item of type {item.get('type')!r} cannot be used", field=where)


def read_items(items: Sequence[Json]) -> ReadItems:
    """Return the items as the conversation before a turn. Raise a 422 problem that names what cannot be used."""
    read = ReadItems()
    for at, item in enumerate(items):
        read.take(item, f"items[{at}]", is_last=False, is_after=False)
    return read


def extra_items(body: ResponseBody) -> list[Json]:
    """Return the items of the input besides the message that is the task."""
    if isinstance(body.input, str):
        return []
    last = max((at for at, item in enumerate(body.input) if _is_persons(item)), default=-1)
    return [item for at, item in enumerate(body.input) if at != last]


def _is_persons(item: dict[str, Any]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "user"


def response_turn(body: ResponseBody, envelope: Envelope, card: AgentCard | None) -> Turn:
    """Return the turn that the body asks for. Raises a 404 or 422 problem that names what cannot be used."""
    read = ReadItems()
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    last = max((at for at, item in enumerate(items) if _is_persons(item)), default=-1)
    for index, item in enumerate(items):
        read.take(item, f"input[{index}]", is_last=index == last, is_after=index > last)
    metadata = dict(body.metadata or {})
    if body.background:
        metadata[BACKGROUND] = "true"
    continues, named = None, conversation_of(body)
    if body.previous_response_id is not None and named:
        raise invalid(
            "a response goes on from an earlier one or from a conversation: leave one of them out",
            field="previous_response_id",
        )
    if body.previous_response_id is not None:
        continues = place_of_response(body.previous_response_id)
        metadata[PREVIOUS] = body.previous_response_id
    if named:
        metadata[CONVERSATION] = named
    conversation = session_name(named) if named else None
    if body.max_output_tokens is not None:
        metadata[MAX_TOKENS] = str(body.max_output_tokens)
    if body.tool_choice is not None:
        metadata[TOOL_CHOICE] = msgspec.json.encode(body.tool_choice).decode()
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or []):
        raise invalid("an answer has no log probabilities", field="top_logprobs")
    if body.prompt is not None:
        raise invalid("no prompts are stored here: send `instructions` and `input`", field="prompt")
    now = read.now or MessageContent()
    text = now.text.strip() or ("What is in this?" if now.images or now.files else "")
    if not text and (last >= 0 or not (read.results or read.words)):
        raise invalid("say what the agent shall do, in a message of the role user", field="input")
    rules = [body.instructions or "", *read.rules]
    return Turn(
        agent=body.model,
        text=text,
        images=now.images,
        files=now.files,
        instructions="\n\n".join(rule for rule in rules if rule),
        history=read.history,
        mark=read.mark,
        results=read.results,
        words=read.words,
        session=conversation or envelope.session,
        continues=continues,
        adds=continues is not None or conversation is not None,
        user=envelope.user,
        by=envelope.by,
        caller=envelope.caller,
        terms=terms_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of((body.text or {}).get("format"), "text.format"),
        metadata=metadata,
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )


def conversation_of(body: ResponseBody) -> str | None:
    """Return the name of the conversation that the body gives; None without one."""
    given = body.conversation
    named = given.get("id") if isinstance(given, dict) else given
    return named if isinstance(named, str) and named else None


_WORTH_A_RETRY = frozenset({"session-busy", "bus-unavailable", "busy", "draining", "reading-busy", "capacity"})
_UNPROCESSABLE = 422


def refusal(problem: Problem) -> Response:
    """Return the answer that is the problem. OpenAI has 400 for what it cannot use; its clients do not retry such
    requests."""
    status = 400 if problem.status == _UNPROCESSABLE else problem.status
    headers = {**problem.headers, "x-should-retry": "true" if problem.code in _WORTH_A_RETRY else "false"}
    content = msgspec.json.encode({"error": error_of(problem)})
    return Response(content, status, headers, media_type="application/json")


def answer_changed(place: Place) -> Problem:
    """Return the problem for text that was sent, cannot be taken back and is not part of the answer."""
    return Problem(
        500,
        "answer-changed",
        "the text sent so far is not part of the answer: that model call failed, and run"
        f" {place.run} has answered otherwise; the whole answer: GET /v1/responses/{response_id(place)}",
    )


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_form(request: Request) -> Response:
            problem = None
            try:
                answer = await handle(request)
            except FORESEEN as error:
                problem = as_problem(error)
                answer = refusal(problem)
            count_request(request, "openai", self.path, problem)
            return answer

        return handle_in_form
