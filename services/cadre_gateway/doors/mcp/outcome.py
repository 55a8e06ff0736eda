"""What has become of a run, as the result of a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent

from cadre.protocol.tagged import for_people
from cadre_gateway.doors.following import check_success
from cadre_gateway.doors.progress import PendingAnswer, Progress, answer_text
from cadre_gateway.requests.problems import Problem

RUN = "cadre.dev/run"
STATE = "cadre.dev/state"


def result(
    text: str, *, structured: Any = None, is_error: bool = False, meta: dict[str, Any] | None = None
) -> CallToolResult:
    """A result that says this."""
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=is_error,
        _meta=meta,
    )


def data_result(value: Any) -> CallToolResult:
    """A result that is data, an object."""
    data = msgspec.to_builtins(value)
    return result(json.dumps(data, ensure_ascii=False), structured=data)


def problem_result(problem: Problem) -> CallToolResult:
    """A result that is the problem, which the calling model reads."""
    return result(f"{problem.code}: {problem.detail}", is_error=True, meta={"cadre.dev/error": problem.code})


def outcome(
    progress: Progress,
    *,
    needs_data: bool,
    asked: Mapping[str, PendingAnswer] = MappingProxyType({}),
    decides: bool = False,
) -> CallToolResult:
    """Return the answer of a run that is settled, or what it waits for: `asked`, calls that the caller reaches. With
    `needs_data` only an object is an answer. `decides`: the caller's model has the tool cadre_decide. Raise a problem
    when the run failed."""
    meta = {RUN: progress.run, STATE: progress.end.state if progress.end is not None else "waiting"}
    if progress.end is None:
        waiting = _waiting(progress.run, asked, decides=decides)
        return result(waiting, is_error=needs_data, meta=meta)
    check_success(progress)
    output = for_people(progress.end.output)
    structured = output if needs_data and isinstance(output, dict) else None
    text = answer_text(progress.end.output)
    return result(text, structured=structured, is_error=needs_data and structured is None, meta=meta)


def _waiting(run: str, held: Mapping[str, PendingAnswer], *, decides: bool) -> str:
    lines = [
        f"- call {call}: {one.request.name} {json.dumps(one.request.arguments, ensure_ascii=False)}"
        f" ({one.request.reason})"
        for call, one in held.items()
    ]
    how = (
        "Ask the person; then call cadre_decide with the call and their decision, and cadre_get_run with wait_seconds"
        " for the answer."
        if decides
        else "A person decides in the console, or with `cadre approve CALL`. Call cadre_get_run with wait_seconds for"
        " the answer."
    )
    waits = f"Run {run} has not ended: it waits for a person{' to decide on' if lines else '.'}"
    return "\n".join([waits, *lines, how])
