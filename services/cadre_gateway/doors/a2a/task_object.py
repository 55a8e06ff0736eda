"""Write a run as A2A's Task, in the JSON of protocol version 1.0."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cadre.api.runs import RunSummary
from cadre.journal.events import RunFinished
from cadre.protocol.messages import Task
from cadre.protocol.tagged import for_people
from cadre_gateway.doors.progress import PendingAnswer, Progress
from cadre_gateway.index.run_filter import RunFilter

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

SUBMITTED = "TASK_STATE_SUBMITTED"
STATES = frozenset({*_ENDS.values(), WORKING, WAITING, SUBMITTED})

_OPEN = frozenset({"running", "waiting"})
_LISTED = _ENDS | {"queued": SUBMITTED}
STATE_FILTERS = {
    WORKING: RunFilter(states=_OPEN, has_approvals=False),
    WAITING: RunFilter(states=_OPEN, has_approvals=True),
    SUBMITTED: RunFilter(states=frozenset({"queued"})),
} | {
    end: RunFilter(states=frozenset(state for state, named in _ENDS.items() if named == end))
    for end in _ENDS.values()
}
"""States of runs, by the state of a task that the list is filtered by."""


def context_of(task: Task) -> str:
    """The context of a run's task: as its client named it, else its session."""
    return str(task.terms.metadata.get(CONTEXT) or task.session or task.run)


def task_object(progress: Progress, task: Task, history: int | None = None) -> Json:
    """The task as far as `progress` knows it, with at most so many messages of its history (None: all)."""
    found: Json = {"id": task.run, "contextId": context_of(task), "status": status_of(progress, task)}
    if progress.end is not None and progress.end.output is not None:
        found["artifacts"] = [artifact_of(progress.end, task)]
    said = [task.task, *(text for _, text in progress.messages)]
    if history is None or history > 0:
        messages = [
            message(f"{task.run}-{index}", [{"text": text}], task, role="ROLE_USER")
            for index, text in enumerate(said)
        ]
        found["history"] = messages[-history:] if history else messages
    return found


def brief_task(summary: RunSummary) -> Json:
    """The task of a list: without what was said and found."""
    state = WAITING if summary.approvals else _LISTED.get(summary.state, WORKING)
    status = {"state": state, "timestamp": _time(summary.ended_at or summary.started_at)}
    return {"id": summary.id, "contextId": summary.session or summary.id, "status": status}


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
    asked = request.reason or f"{request.name} waits for approval"
    data: Json = {"call": call, "tool": request.name, "arguments": for_people(request.arguments)}
    data |= {"reason": request.reason, "decisions": ["approve", "reject", "correct"]}
    if request.expires_at is not None:
        data["expires_at"] = _time(request.expires_at)
    return [{"text": asked}, {"data": data, "mediaType": "application/json"}]


def artifact_of(end: RunFinished, task: Task) -> Json:
    """The answer of the run."""
    value = for_people(end.output)
    part = {"text": value} if isinstance(value, str) else {"data": value, "mediaType": "application/json"}
    return {"artifactId": f"{task.run}-answer", "name": "answer", "parts": [part]}


def message(message_id: str, parts: list[Json], task: Task, role: str = "ROLE_AGENT") -> Json:
    """A message about the run's task."""
    place = {"contextId": context_of(task), "taskId": task.run}
    return {"messageId": message_id, **place, "role": role, "parts": parts}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
