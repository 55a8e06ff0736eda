"""Answer A2A's methods on an agent's tasks, whichever binding they come by: send, stream, list, cancel, and watch
with push notifications."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Request

from cadre.api.runs import RunSummary
from cadre.automation.notice import PushTarget
from cadre.errors import SpecError
from cadre.protocol.messages import CallerTerms, Task
from cadre.spec.names import NAME
from cadre.versions import same_minor
from cadre_gateway import SENDER
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.notices import PushNotifications
from cadre_gateway.doors.a2a.card import VERSIONS
from cadre_gateway.doors.a2a.objects import (
    CONTEXT,
    STATE_FILTERS,
    STATES,
    WORKING,
    Json,
    ListParams,
    PushConfig,
    PushParams,
    PushTask,
    SendParams,
    SentMessage,
    TaskParams,
    artifact_of,
    brief_task,
    content_of,
    context_of,
    file_artifact,
    message,
    status_of,
    task_object,
)
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.messages import MessageContent
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.doors.rulings import ASK_USER, ruling_of, said, word_in
from cadre_gateway.doors.sender import DoorSender, RunService, begin_run, known_run, sender_of, short_hash
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.requests.body import Ruling, Submission
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid

_CANCEL_SECONDS = 5.0
_OWN_SESSIONS = "a2a-"
"""Begins the names of sessions whose contexts have names that no session may have."""


@dataclass(frozen=True)
class TaskWatch:
    """Every method raises Problem, RetryableError."""

    pushes: PushNotifications
    answers: Answers

    async def body(self, run: str) -> bytes:
        """Return what an address is sent: the task as it is now, an event of a stream."""
        progress = await self.answers.so_far(Place(run))
        if progress.task is None:
            raise Problem(404, "unknown-run", f"there is no task {run!r} (any more)")
        return msgspec.json.encode({"task": task_object(progress, progress.task, 0)})

    async def put(self, run: str, wanted: PushConfig, caller: Principal) -> Json:
        """Keep an address of a task; what has happened already is sent to it at once."""
        target = msgspec.structs.replace(_target_of(wanted), maker=maker_of(caller))
        await self.pushes.put(run, target)
        progress = await self.answers.so_far(Place(run))
        if progress.end is not None:
            await self.pushes.tell(run, [f"{run}:finished"], target.id)
        else:
            await self.pushes.tell(run, [f"{call}:approval" for call in progress.questions], target.id)
        return _shown(run, target)

    async def get(self, run: str, name: str) -> Json:
        """One address."""
        for one in await self.pushes.all(run):
            if one.id == name:
                return _shown(run, one)
        raise Problem(404, "unknown-run", f"task {run} has no push notification {name!r}")

    async def list(self, run: str) -> Json:
        """Return all addresses of a task."""
        return {"configs": [_shown(run, one) for one in await self.pushes.all(run)], "nextPageToken": ""}

    async def remove(self, run: str, name: str) -> Json:
        """Forget an address."""
        await self.pushes.remove(run, name)
        return {}


def _target_of(wanted: PushConfig) -> PushTarget:
    """Return the checked address; without an id it has one that follows from what it says. Raises a 422 problem."""
    said = hashlib.sha256(msgspec.json.encode([wanted.url, wanted.token])).hexdigest()
    about = wanted.authentication
    try:
        return PushTarget(
            id=wanted.id or f"push-{said[:16]}",
            url=wanted.url,
            token=wanted.token,
            scheme=about.scheme if about is not None else "",
            credentials=about.credentials if about is not None else "",
        )
    except SpecError as error:
        raise invalid(f"taskPushNotificationConfig: {error}") from error


def _shown(run: str, target: PushTarget) -> Json:
    """Return the address without its credentials, which only its receiver gets."""
    found: Json = {"taskId": run, "id": target.id, "url": target.url}
    found |= {"token": target.token} if target.token else {}
    return found | ({"authentication": {"scheme": target.scheme}} if target.scheme else {})


@dataclass(frozen=True)
class AgentTasks:
    """The tasks of all agents. Every method raises Problem, RetryableError."""

    runs: RunService
    answers: Answers
    messages: Messages
    watch: TaskWatch

    async def send(self, agent: str, sent: SendParams, sender: DoorSender) -> Json:
        """Return the task that a message begins or goes on with: once it is over or waits, or at once."""
        place = await self._place_of(agent, sent, sender)
        task = await task_of(self.runs, sender.caller, agent, place.run)
        progress = Progress(place.run, place.after)
        if sent.configuration.return_immediately:
            progress = await self.answers.so_far(place)
        else:
            async with contextlib.aclosing(self.answers.follow(progress)) as follow:
                async for _ in follow:
                    pass
        return {"task": await self._task(progress, task, sent.configuration.history_length)}

    async def send_streaming(self, agent: str, sent: SendParams, sender: DoorSender) -> AsyncGenerator[Json]:
        """Return the same, with what happens on the way."""
        place = await self._place_of(agent, sent, sender)
        task = await task_of(self.runs, sender.caller, agent, place.run)
        # Everything that follows from the message is sent, however far the run has come meanwhile.
        begin = await self.answers.as_of(place)
        return self._events(place, begin, task, sent.configuration.history_length)

    async def _place_of(self, agent: str, sent: SendParams, sender: DoorSender) -> Place:
        place = await self.messages.place_of(agent, sent.message, sender)
        if (config := sent.configuration.task_push_notification_config) is not None:
            await self.watch.put(place.run, config, sender.caller)
        return place

    async def put_push(self, agent: str, wanted: PushConfig, caller: Principal) -> Json:
        """Register an address for updates of a task."""
        await task_of(self.runs, caller, agent, wanted.task_id)
        return await self.watch.put(wanted.task_id, wanted, caller)

    async def get_push(self, agent: str, wanted: PushParams, caller: Principal) -> Json:
        """One address of a task."""
        await task_of(self.runs, caller, agent, wanted.task_id)
        return await self.watch.get(wanted.task_id, wanted.id)

    async def list_pushes(self, agent: str, wanted: PushTask, caller: Principal) -> Json:
        """Return all addresses of a task."""
        await task_of(self.runs, caller, agent, wanted.task_id)
        return await self.watch.list(wanted.task_id)

    async def delete_push(self, agent: str, wanted: PushParams, caller: Principal) -> Json:
        """End the updates to an address."""
        await task_of(self.runs, caller, agent, wanted.task_id)
        return await self.watch.remove(wanted.task_id, wanted.id)

    async def subscribe(self, agent: str, wanted: TaskParams, caller: Principal) -> AsyncGenerator[Json]:
        """Return what happens to a task from now on."""
        task = await task_of(self.runs, caller, agent, wanted.id)
        progress = await self.answers.so_far(Place(wanted.id))
        if progress.end is not None:
            raise Problem(409, "run-ended", f"task {wanted.id} is over: ask for it with GetTask")
        place = Place(wanted.id, progress.seq)
        return self._events(place, await self.answers.so_far(place), task, wanted.history_length)

    async def get(self, agent: str, wanted: TaskParams, caller: Principal) -> Json:
        """Return a task as it is now."""
        task = await task_of(self.runs, caller, agent, wanted.id)
        return await self._task(await self.answers.so_far(Place(wanted.id)), task, wanted.history_length)

    async def _task(self, progress: Progress, task: Task, history: int | None) -> Json:
        """Return the task with what it has found: its answer, and the files that it has written."""
        return task_object(progress, task, history, await self._files(progress, task))

    async def _files(self, progress: Progress, task: Task) -> Sequence[Json]:
        """Return the files that a run has written that is over, as artifacts: not those that it was given."""
        if progress.end is None:
            return []
        async with answer_deadline():
            workspace = self.runs.submitter.workspaces.open(task.run, "artifacts")
            written = [one for one in await workspace.files() if one.by != SENDER]
            return [file_artifact(one, (await workspace.read(one.path)).data, task) for one in written]

    async def cancel(self, agent: str, wanted: TaskParams, caller: Principal) -> Json:
        """End a task, and all that it has others do."""
        task = await task_of(self.runs, caller, agent, wanted.id)
        if (await self.answers.so_far(Place(wanted.id))).end is not None:
            raise Problem(409, "task-not-cancelable", f"task {wanted.id} is over")
        now = wanted.metadata.get("now", False)
        if not isinstance(now, bool):
            raise invalid("metadata.now: true or false")
        await self.runs.run_end.cancel(wanted.id, "cancelled as a task", now=now)
        await self.runs.run_end.wait(wanted.id, _CANCEL_SECONDS)
        return task_object(await self.answers.so_far(Place(wanted.id)), task, wanted.history_length)

    async def list(self, agent: str, wanted: ListParams, caller: Principal) -> Json:
        """Tasks, the newest first."""
        if wanted.status and wanted.status not in STATES:
            raise invalid(f"status: one of {', '.join(sorted(STATES))}")
        index = self.runs.lookup.index
        filters = STATE_FILTERS.get(wanted.status, RunFilter())
        runs = msgspec.structs.replace(
            filters,
            agent=agent,
            conversation=session_of(wanted.context_id) if wanted.context_id else None,
            changed_since=wanted.status_timestamp_after.timestamp() if wanted.status_timestamp_after else None,
            reach=caller.reach,
        )
        try:
            found, following = await index.list(runs, limit=wanted.page_size, before=wanted.page_token or None)
        except KeyError:
            raise invalid(f"there is no page {wanted.page_token!r}: begin without one") from None
        tasks = [brief_task(one, wanted.context_id or await self._context(one)) for one in found]
        if wanted.include_artifacts:
            tasks = [await self.get(agent, TaskParams(id=task["id"], history_length=0), caller) for task in tasks]
        total = await index.count(runs)
        page: dict[str, Any] = {"tasks": tasks, "nextPageToken": following or ""}
        return page | {"pageSize": wanted.page_size, "totalSize": total}

    async def _context(self, summary: RunSummary) -> str:
        """Return the context of a task as its client named it: that need not be the name of a session."""
        if summary.session is None or not summary.session.startswith(_OWN_SESSIONS):
            return summary.session or summary.id
        task = await self.runs.history.task(summary.id, summary.id)
        return context_of(task) if task is not None else summary.session

    async def _events(self, place: Place, begin: Progress, task: Task, history: int | None) -> AsyncGenerator[Json]:
        """Yield the task as it was at the beginning, then what has happened since."""
        yield {"task": task_object(begin, task, history)}
        where = {"taskId": place.run, "contextId": context_of(task)}
        progress = begin
        if not begin.is_settled:
            progress = Progress(place.run, place.after)
            async with contextlib.aclosing(self.answers.follow(progress)) as follow:
                async for news in follow:
                    if news.lines and progress.seq > begin.seq and not progress.is_settled:
                        said = message(f"{place.run}-{progress.seq}", [{"text": "\n".join(news.lines)}], task)
                        status = status_of(progress, task) | {"state": WORKING, "message": said}
                        yield {"statusUpdate": {**where, "status": status}}
            if progress.end is not None and progress.end.output is not None:
                for artifact in (*await self._files(progress, task), artifact_of(progress.end, task)):
                    yield {"artifactUpdate": {**where, "artifact": artifact, "lastChunk": True}}
        yield {"statusUpdate": {**where, "status": status_of(progress, task)}}


_PARAMS: dict[str, type[msgspec.Struct]] = {
    "SendMessage": SendParams,
    "SendStreamingMessage": SendParams,
    "GetTask": TaskParams,
    "CancelTask": TaskParams,
    "SubscribeToTask": TaskParams,
    "ListTasks": ListParams,
    "CreateTaskPushNotificationConfig": PushConfig,
    "GetTaskPushNotificationConfig": PushParams,
    "ListTaskPushNotificationConfigs": PushTask,
    "DeleteTaskPushNotificationConfig": PushParams,
}
VERSION = "A2A-Version"

_REFUSED = {
    "GetExtendedAgentCard": ("no-extended-card", "there is one card for everybody"),
}


def version_of(request: Request) -> str:
    """Return the version that the request names, in a header or as a parameter; "" where it names none."""
    return request.headers.get(VERSION) or request.query_params.get(VERSION, "")


def check_version(request: Request) -> None:
    """Raise a problem for a version of the protocol that is not spoken here."""
    version = version_of(request) or VERSIONS[0]
    if not any(same_minor(version, spoken) for spoken in VERSIONS):
        raise Problem(400, "unknown-version", f"A2A-Version {version!r}: this agent speaks {', '.join(VERSIONS)}")


async def perform(
    tasks: AgentTasks, agent: str, method: str, params: Json, request: Request
) -> Json | AsyncGenerator[Json]:
    """Return the result of a method of protocol version 1.0, or its stream. Raises Problem, RetryableError."""
    if method in _REFUSED:
        raise Problem(400, *_REFUSED[method])
    if method not in _PARAMS:
        raise Problem(400, "unknown-method", f"no method {method!r}: {', '.join(_PARAMS)}")
    wanted: Any = _read(params, _PARAMS[method])
    sender = sender_of(request)
    match method:
        case "SendStreamingMessage":
            return await tasks.send_streaming(agent, wanted, sender)
        case "SubscribeToTask":
            return await tasks.subscribe(agent, wanted, sender.caller)
        case "SendMessage":
            return await tasks.send(agent, wanted, sender)
        case "GetTask":
            return await tasks.get(agent, wanted, sender.caller)
        case "CancelTask":
            return await tasks.cancel(agent, wanted, sender.caller)
        case "CreateTaskPushNotificationConfig":
            return await tasks.put_push(agent, wanted, sender.caller)
        case "GetTaskPushNotificationConfig":
            return await tasks.get_push(agent, wanted, sender.caller)
        case "ListTaskPushNotificationConfigs":
            return await tasks.list_pushes(agent, wanted, sender.caller)
        case "DeleteTaskPushNotificationConfig":
            return await tasks.delete_push(agent, wanted, sender.caller)
        case _:
            return await tasks.list(agent, wanted, sender.caller)


def _read(params: Json, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"params: {error}") from error


_HOW = (
    "answer it with a data part {call, verdict: approved | rejected | corrected, arguments, feedback} for each call, or"
    " with `approve` or `reject: why` as text"
)


@dataclass(frozen=True)
class Messages:
    """Brings messages to runs. Every method raises Problem, RetryableError."""

    runs: RunService
    answers: Answers

    async def place_of(self, agent: str, sent: SentMessage, sender: DoorSender) -> Place:
        """Return the place of the answer to the message; the same message, sent again, finds its earlier place."""
        content = content_of(sent)
        if sent.task_id:
            return await self._go_on(agent, sent, content, sender)
        return await self._begin(agent, sent, content, sender)

    async def _begin(self, agent: str, sent: SentMessage, content: MessageContent, sender: DoorSender) -> Place:
        key = _key_of(sent, sender)
        if (known := await known_run(self.runs, sender.caller, agent, key)) is not None:
            return known
        session = session_of(sent.context_id or key.run_of(agent))
        arguments: dict[str, Any] = {}
        for data in content.data:
            arguments |= data if isinstance(data, dict) else {"data": data}
        text = content.text or ("Do what the additional arguments say." if arguments else "")
        text = text or ("What is in this?" if content.images or content.files else "")
        wanted = Submission(
            agent=agent,
            task=text,
            inputs=arguments,
            images=content.images,
            files=content.files,
            session=session,
        )
        terms = CallerTerms(metadata={CONTEXT: sent.context_id} if sent.context_id not in ("", session) else {})
        return await begin_run(self.runs, sender, wanted, key, terms)

    async def _go_on(self, agent: str, sent: SentMessage, content: MessageContent, sender: DoorSender) -> Place:
        """Bring words to a run that waits for them, or a message to one that works."""
        task = await task_of(self.runs, sender.caller, agent, sent.task_id)
        if sent.context_id and sent.context_id != context_of(task):
            raise invalid(
                f"contextId: task {sent.task_id} is not in the context {sent.context_id!r}: leave it out, or"
                f" name {context_of(task)!r}"
            )
        progress = await self.answers.so_far(Place(sent.task_id))
        rulings = _rulings(content, progress, sender)
        if rulings:
            if not sender.caller.may("decide"):
                raise Problem(
                    403,
                    "forbidden",
                    "this key may not decide on calls: somebody with the role `approver` does",
                )
            for call, ruling in rulings.items():
                await self.runs.decisions.decide(call, ruling, sender.traceparent, sender.caller.titles)
            return await self.answers.place_behind(progress.run, rulings)
        if (place := _said_before(content, progress)) is not None:
            return place
        if progress.questions:
            raise invalid(f"task {sent.task_id} waits for a person: {_HOW}")
        text = content.text or msgspec.json.encode(content.data).decode()
        key = _key_of(sent, sender)
        await self.runs.steering.tell(progress.run, text, "interrupt", key, sender.name)
        return Place(progress.run, progress.seq)


def session_of(context: str) -> str:
    """Return the session of a context, which may have any name."""
    return context if NAME.fullmatch(context) else f"{_OWN_SESSIONS}{short_hash(context)}"


async def task_of(runs: RunService, caller: Principal, agent: str, run: str) -> Task:
    """Return the task that began a root run of the agent. Raise a 404 problem for one that is not there, is another
    agent's, or that the caller does not reach; RetryableError."""
    await runs.reach.check(caller, "tree", run)
    async with answer_deadline():
        await runs.lookup.find(run)
        task = await runs.history.task(run, run)
    if task is None or task.agent != agent:
        raise Problem(404, "unknown-run", f"agent {agent!r} has no task {run!r}")
    return task


def _key_of(sent: SentMessage, sender: DoorSender) -> IdempotencyKey:
    """Return a key that is the same for the same message of the same sender; the digest covers its content."""
    told = msgspec.json.encode([sent.parts, sent.context_id, sent.task_id])
    return sender.key("a2a", sent.message_id, told)


def _rulings(content: MessageContent, progress: Progress, sender: DoorSender) -> dict[str, Ruling]:
    """Return what the message says of calls that wait, or have waited; empty when it says nothing of them."""
    told = {call: held for pause in progress.pauses for call, held in pause.held.items() if not held.is_callers}
    found = {}
    for data in content.data:
        if isinstance(data, dict) and isinstance(call := data.get("call"), str):
            if call not in told:
                raise invalid(f"task {progress.run} has asked for no call {call!r}")
            found[call] = ruling_of(data, sender.name)
    asked = progress.questions
    if found or not content.text or not asked:
        return found
    word = word_in(content.text)
    for call, held in asked.items():
        if held.request.name == ASK_USER:
            found[call] = said("corrected", sender.name, arguments={"answer": content.text})
        elif word is not None:
            found[call] = said(word.verdict, sender.name, word.feedback)
    return found


def _said_before(content: MessageContent, progress: Progress) -> Place | None:
    """Return the place of a word in text that came before: no call waits any more, or this very answer was given."""
    if not progress.pauses or progress.questions:
        return None
    answers = [ruled.arguments for ruled in progress.decided.values()]
    if word_in(content.text) is None and {"answer": content.text} not in answers:
        return None
    return Place(progress.run, progress.pauses[-1].seq)
