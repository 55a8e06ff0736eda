"""Read what A2A's clients send, and write a run as A2A's Task, both in the JSON of protocol version 1.0."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import msgspec

from cadre.api.runs import RunSummary
from cadre.journal.events import RunFinished
from cadre.protocol.messages import Task, Verdict
from cadre.protocol.tagged import for_people
from cadre.tools.workspace import FileEntry
from cadre_gateway.doors.messages import MessageContent
from cadre_gateway.doors.progress import PendingAnswer, Progress
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.requests.problems import invalid

MAX_PAGE = 100
"""Tasks of one page at most, as the protocol has it."""
_MAX_ID_CHARS = 255

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]


class RpcCall(msgspec.Struct, frozen=True):
    """A call of JSON-RPC 2.0."""

    jsonrpc: str
    method: str
    id: str | int | None = None
    params: dict[str, Any] = {}


class MessagePart(msgspec.Struct, frozen=True, rename="camel"):
    """A piece of a message: one of `text`, `raw`, `url` and `data`."""

    text: str | None = None
    raw: str | None = None
    """Base64."""
    url: str | None = None
    data: Any = msgspec.UNSET
    filename: str = ""
    media_type: str = ""


class SentMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A client's message to the agent."""

    message_id: Id
    role: str = "ROLE_USER"
    parts: Annotated[list[MessagePart], msgspec.Meta(min_length=1)]
    context_id: Annotated[str, msgspec.Meta(max_length=_MAX_ID_CHARS)] = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class PushAuthentication(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials by which an address for push notifications recognizes the sender."""

    scheme: str
    credentials: str = ""


class PushConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An address that receives updates of a task."""

    url: str
    id: str = ""
    token: str = ""
    authentication: PushAuthentication | None = None
    task_id: str = ""


class Configuration(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The way in which a message is to be answered."""

    return_immediately: bool = False
    history_length: int | None = None
    task_push_notification_config: PushConfig | None = None


class SendParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: SentMessage
    configuration: Configuration = Configuration()
    metadata: dict[str, Any] = {}


class TaskParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of GetTask, CancelTask and SubscribeToTask."""

    id: Id
    history_length: int | None = None
    metadata: dict[str, Any] = {}
    """Of CancelTask: `now`, true for the end at once."""


class PushTask(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of ListTaskPushNotificationConfigs."""

    task_id: Id


class PushParams(PushTask, frozen=True, rename="camel", kw_only=True):
    """The parameters of GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig."""

    id: Id


class ListParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of ListTasks."""

    context_id: str = ""
    status: str = ""
    status_timestamp_after: datetime | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 50
    page_token: str = ""
    history_length: int | None = None
    include_artifacts: bool = False


def content_of(message: SentMessage) -> MessageContent:
    """Read the parts of a message. Raise a 422 problem for one that says nothing."""
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(message.parts):
        if part.text is not None:
            texts.append(part.text)
        elif part.raw is not None:
            url = f"data:{part.media_type};base64,{part.raw}"
            if part.media_type.startswith("image/") and not part.filename:
                found.images.append(url)
            else:
                found.files[part.filename or f"file-{len(found.files) + 1}"] = url
        elif part.url is not None and part.media_type.startswith("image/"):
            found.images.append(part.url)
        elif part.url is not None:
            texts.append(part.url)
        elif part.data is not msgspec.UNSET:
            found.data.append(part.data)
        else:
            raise invalid("send one of text, raw, url and data", field=f"message.parts[{index}]")
    found.text = "\n".join(texts)
    return found


WORKING, WAITING = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"

Json = dict[str, Any]

CONTEXT = "a2a_context"
"""Key in a run's terms of a context name that no session may have."""

_ENDS = {
    "success": "TASK_STATE_COMPLETED",
    "max_steps_error": "TASK_STATE_COMPLETED",
    "cancelled": "TASK_STATE_CANCELED",
    "error": "TASK_STATE_FAILED",
}

_NEVER = ("TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED")
"""States that no task has: what is refused begins none, and keys are asked for before."""

SUBMITTED = "TASK_STATE_SUBMITTED"
NO_STATE = "TASK_STATE_UNSPECIFIED"
STATES = frozenset({*_ENDS.values(), WORKING, WAITING, SUBMITTED, NO_STATE, *_NEVER})

_OPEN = frozenset({"running", "waiting"})
_LISTED = _ENDS | {"queued": SUBMITTED}
STATE_FILTERS = {
    WORKING: RunFilter(states=_OPEN, has_approvals=False),
    WAITING: RunFilter(states=_OPEN, has_approvals=True),
    SUBMITTED: RunFilter(states=frozenset({"queued"})),
} | {
    end: RunFilter(states=frozenset(state for state, named in _ENDS.items() if named == end)) for end in _ENDS.values()
}
STATE_FILTERS |= {state: RunFilter(states=frozenset()) for state in _NEVER}
"""States of runs, by the state of a task that the list is filtered by."""


def context_of(task: Task) -> str:
    """Return the context of a run's task: as its client named it, else its session."""
    return str(task.terms.metadata.get(CONTEXT) or task.session or task.run)


def task_object(progress: Progress, task: Task, history: int | None = None, files: Sequence[Json] = ()) -> Json:
    """Return the task as far as `progress` knows it, with at most so many messages of its history (None: all), and with
    the artifacts of its `files`."""
    found: Json = {"id": task.run, "contextId": context_of(task), "status": status_of(progress, task)}
    answer = progress.end is not None and progress.end.output is not None
    if artifacts := [*files, *([artifact_of(progress.end, task)] if answer and progress.end else [])]:
        found["artifacts"] = artifacts
    said = [task.task, *(text for _, text in progress.messages)]
    if history is None or history > 0:
        messages = [
            message(f"{task.run}-{index}", [{"text": text}], task, role="ROLE_USER") for index, text in enumerate(said)
        ]
        found["history"] = messages[-history:] if history else messages
    return found


def brief_task(summary: RunSummary, context: str) -> Json:
    """Return the task of a list: without what was said and found."""
    state = WAITING if summary.approvals else _LISTED.get(summary.state, WORKING)
    status = {"state": state, "timestamp": _time(summary.ended_at or summary.started_at)}
    return {"id": summary.id, "contextId": context, "status": status}


def status_of(progress: Progress, task: Task) -> Json:
    """Return where the run stands, with what it asks for or why it failed."""
    at = _time(progress.at or task.at)
    if progress.end is not None:
        status: Json = {"state": _ENDS[progress.end.state], "timestamp": at}
        if progress.end.error is not None:
            status["message"] = message(f"{task.run}-end", [{"text": progress.end.error.message}], task)
        return status
    asked = progress.questions
    if asked:
        parts = [part for call, held in asked.items() for part in _question(call, held)]
        return {
            "state": WAITING,
            "timestamp": at,
            "message": message(f"{task.run}-{progress.seq}", parts, task),
        }
    return {"state": WORKING if progress.seq else SUBMITTED, "timestamp": at}


def _question(call: str, held: PendingAnswer) -> list[Json]:
    request = held.request
    data: Json = {"call": call, "tool": request.name, "arguments": for_people(request.arguments)}
    data |= {"reason": request.reason, "verdicts": [*get_args(Verdict)]}
    if request.expires_at is not None:
        data["expires_at"] = _time(request.expires_at)
    return [{"text": held.asks}, {"data": data, "mediaType": "application/json"}]


def artifact_of(end: RunFinished, task: Task) -> Json:
    """Return the answer of the run."""
    value = for_people(end.output)
    part = {"text": value} if isinstance(value, str) else {"data": value, "mediaType": "application/json"}
    return {"artifactId": f"{task.run}-answer", "name": "answer", "parts": [part]}


def file_artifact(entry: FileEntry, data: bytes, task: Task) -> Json:
    """Return a file that the run has written."""
    raw = base64.b64encode(data).decode()
    part = {"raw": raw, "filename": entry.path, "mediaType": entry.media_type}
    return {"artifactId": f"{task.run}-file-{entry.path}", "name": entry.path, "parts": [part]}


def message(message_id: str, parts: list[Json], task: Task, role: str = "ROLE_AGENT") -> Json:
    """Return a message about the run's task."""
    place = {"contextId": context_of(task), "taskId": task.run}
    return {"messageId": message_id, **place, "role": role, "parts": parts}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
