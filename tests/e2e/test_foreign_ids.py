"""Ids that callers name, over every door: principal x door x (own, foreign, made-up). What a caller does not reach is
answered as what was made up, and is left as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from e2e.test_mcp_tasks import message_of
from harness.callers import Caller, add_guarded, callers_of, has_ended, wait_for_call
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    add_guarded(stack)


@pytest.fixture(scope="module")
def callers(stack: Stack, gateway: Gateway) -> Iterator[dict[str, Caller]]:
    with callers_of(stack, gateway) as found:
        yield found


Attempt = Callable[[Caller, str, str], httpx2.Response]
"""Asks for something about a run and a call of it."""


def rest(method: str, path: str, body: Any = None) -> Attempt:
    def ask(caller: Caller, run: str, call: str) -> httpx2.Response:
        where = path.replace("RUN", run).replace("CALL", call)
        return caller.ask(method, where, **({} if body is None else {"json": in_place(body, run, call)}))

    return ask


def in_place(body: Any, run: str, call: str) -> Any:
    return json.loads(json.dumps(body).replace("RUN", run).replace("CALL", call))


def rpc(method: str, **params: Any) -> Attempt:
    def ask(caller: Caller, run: str, call: str) -> httpx2.Response:
        return caller.ask("POST", "/mcp", **message_of(method, **in_place(params, run, call)))

    return ask


def a2a(method: str, **params: Any) -> Attempt:
    return rest("POST", "/a2a/clerk", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def tool(name: str, **arguments: Any) -> Attempt:
    def ask(caller: Caller, run: str, call: str) -> httpx2.Response:
        given = in_place(arguments, run, call)
        request = message_of("tools/call", knows_tasks=False, name=name, arguments=given)
        return caller.ask("POST", "/mcp", **request)

    return ask


_TOLD = {"messageId": "m", "role": "ROLE_USER", "taskId": "RUN", "parts": [{"text": "approve"}]}
_THREAD = {"threadId": "t", "runId": "r", "tools": [], "context": []}
_TOOL = {"role": "tool", "tool_call_id": "CALL", "content": "yes"}

READING: dict[str, Attempt] = {
    "run": rest("GET", "/v1/runs/RUN"),
    "events": rest("GET", "/v1/runs/RUN/events"),
    "trace": rest("GET", "/v1/runs/RUN/trace"),
    "request": rest("GET", "/v1/runs/RUN/steps/1/request"),
    "replay": rest("GET", "/v1/runs/RUN/replay"),
    "verify": rest("GET", "/v1/runs/RUN/verify"),
    "export": rest("GET", "/v1/runs/RUN/export"),
    "files": rest("GET", "/v1/runs/RUN/files"),
    "file": rest("GET", "/v1/runs/RUN/files/a.txt"),
    "plan": rest("GET", "/v1/runs/RUN/plan"),
    "queue": rest("GET", "/v1/runs/RUN/queue"),
    "runs below": rest("GET", "/v1/runs?parent=RUN"),
    "calls of a run": rest("GET", "/v1/approvals?run=RUN"),
    "calls of a tree": rest("GET", "/v1/approvals?tree=RUN"),
    "call": rest("GET", "/v1/approvals/CALL"),
    "response": rest("GET", "/v1/responses/resp_RUN"),
    "response, streamed": rest("GET", "/v1/responses/resp_RUN?stream=true"),
    "input items": rest("GET", "/v1/responses/resp_RUN/input_items"),
    "A2A task": rest("GET", "/a2a/clerk/tasks/RUN"),
    "A2A subscribe": rest("GET", "/a2a/clerk/tasks/RUN:subscribe"),
    "A2A pushes": rest("GET", "/a2a/clerk/tasks/RUN/pushNotificationConfigs"),
    "A2A list": rest("GET", "/a2a/clerk/tasks?contextId=RUN"),
    "A2A task by JSON-RPC": a2a("GetTask", id="RUN"),
    "MCP task": rpc("tasks/get", taskId="RUN"),
    "MCP get": tool("cadre_get_run", run="RUN"),
}

WRITING: dict[str, Attempt] = {
    "cancel": rest("POST", "/v1/runs/RUN/cancel", {"reason": "x"}),
    "signal": rest("POST", "/v1/runs/RUN/signals/go", {}),
    "message": rest("POST", "/v1/runs/RUN/messages", {"text": "leave it"}),
    "edit queue": rest("PATCH", "/v1/runs/RUN/queue", {"version": 0, "operations": [{"op": "x"}]}),
    "edit plan": rest("PATCH", "/v1/runs/RUN/plan", {"version": 0, "operations": [{"op": "x"}]}),
    "fork": rest("POST", "/v1/runs/RUN/fork", {"at": 1}),
    "resume": rest("POST", "/v1/runs/RUN/resume", {}),
    "write a file": rest("PUT", "/v1/runs/RUN/files/a.txt"),
    "remove a file": rest("DELETE", "/v1/runs/RUN/files/a.txt"),
    "erase": rest("DELETE", "/v1/runs/RUN?force=true"),
    "decide": rest("POST", "/v1/approvals/CALL", {"verdict": "approved"}),
    "response cancel": rest("POST", "/v1/responses/resp_RUN/cancel"),
    "response delete": rest("DELETE", "/v1/responses/resp_RUN"),
    "response that goes on": rest(
        "POST", "/v1/responses", {"model": "clerk", "input": "x", "previous_response_id": "resp_RUN"}
    ),
    "response to a call": rest(
        "POST",
        "/v1/responses",
        {"model": "clerk", "input": [{"type": "function_call_output", "call_id": "CALL", "output": "x"}]},
    ),
    "response that approves": rest(
        "POST",
        "/v1/responses",
        {
            "model": "clerk",
            "input": [{"type": "mcp_approval_response", "approval_request_id": "CALL", "approve": True}],
        },
    ),
    "chat to a call": rest("POST", "/v1/chat/completions", {"model": "clerk", "messages": [_TOOL]}),
    "A2A message": rest("POST", "/a2a/clerk/message:send", {"message": _TOLD}),
    "A2A message, streamed": rest("POST", "/a2a/clerk/message:stream", {"message": _TOLD}),
    "A2A cancel": rest("POST", "/a2a/clerk/tasks/RUN:cancel"),
    "A2A push": rest("POST", "/a2a/clerk/tasks/RUN/pushNotificationConfigs", {"url": "https://example.org/hook"}),
    "A2A cancel by JSON-RPC": a2a("CancelTask", id="RUN"),
    "A2A message by JSON-RPC": a2a("SendMessage", message=_TOLD),
    "A2A push by JSON-RPC": a2a("CreateTaskPushNotificationConfig", taskId="RUN", url="https://example.org/hook"),
    "AG-UI resume": rest("POST", "/agui/clerk", {**_THREAD, "resume": [{"interruptId": "CALL", "status": "resolved"}]}),
    "AG-UI result": rest(
        "POST",
        "/agui/clerk",
        {**_THREAD, "messages": [{"id": "1", "role": "tool", "toolCallId": "CALL", "content": "x"}]},
    ),
    "MCP task update": rpc(
        "tasks/update",
        taskId="RUN",
        inputResponses={"CALL": {"action": "accept", "content": {"confirm": True}}},
    ),
    "MCP task cancel": rpc("tasks/cancel", taskId="RUN"),
    "MCP cancel": tool("cadre_cancel_run", run="RUN"),
    "MCP message": tool("cadre_send_message", run="RUN", text="leave it"),
    "MCP decide": tool("cadre_decide", call="CALL", verdict="approved"),
}

STREAMED = {"events", "response, streamed", "A2A subscribe"}
"""Answers that stream until the run ends: a caller who reaches the run does not read them here."""


@pytest.fixture(scope="module")
def held(callers: dict[str, Caller], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """A run of ann's that waits for a person, the call that waits, and what it would write."""
    book = tmp_path_factory.mktemp("held") / "book"
    run = callers["ann"].ask("POST", "/v1/runs", json={"agent": "clerk", "task": f"refund {book} 500"})
    found = run.json()["id"]
    return found, wait_for_call(callers["admin"], found), book


def answered(attempt: Attempt, caller: Caller, run: str, call: str) -> tuple[int, str]:
    """The answer, with the ids that were asked for left out."""
    answer = attempt(caller, run, call)
    return answer.status_code, answer.text.replace(call, "CALL").replace(run, "RUN")


@pytest.mark.parametrize("door", [*READING, *WRITING])
def test_what_is_somebody_elses_is_answered_as_what_is_made_up(
    door: str, callers: dict[str, Caller], held: tuple[str, str, Path]
) -> None:
    run, call, book = held
    attempt = {**READING, **WRITING}[door]
    strangers = [one for one in callers.values() if not one.reaches("ann", "clerk")]
    assert {one.name for one in strangers} == {"bob", "of the host", "of the chief's team"}
    for stranger in strangers:
        made_up = uuid4().hex
        foreign = answered(attempt, stranger, run, call)
        assert foreign == answered(attempt, stranger, made_up, f"{made_up}_1_0"), stranger.name
        assert str(book) not in foreign[1], stranger.name
    waits = callers["ann"].ask("GET", f"/v1/approvals/{call}").json()
    assert (waits["state"], done(book)) == ("pending", [])
    assert not has_ended(callers["ann"], run)


@pytest.mark.parametrize("door", [one for one in READING if one not in STREAMED])
def test_who_reaches_a_run_is_answered_by_every_door(
    door: str, callers: dict[str, Caller], held: tuple[str, str, Path]
) -> None:
    """Otherwise than for an id that is made up."""
    run, call, _ = held
    attempt, differing = READING[door], 0
    for caller in [one for one in callers.values() if one.reaches("ann", "clerk")]:
        made_up = uuid4().hex
        status, text = answered(attempt, caller, run, call)
        assert status != 403, (caller.name, text)
        differing += (status, text) != answered(attempt, caller, made_up, f"{made_up}_1_0")
    has_none = ("runs below", "file", "plan", "queue", "export", "A2A list", "A2A pushes")
    assert differing == 9 or door in has_none, differing


def test_a_key_for_a_member_is_shown_no_call_of_the_tree_by_mcp(callers: dict[str, Caller], tmp_path: Path) -> None:
    """It reaches the member's run, also as the state of a call that goes on; a call belongs to its whole tree."""
    body = {"agent": "chief", "task": f"have clerk: refund {tmp_path / 'book'} 500"}
    run = callers["ann"].ask("POST", "/v1/runs", json=body).json()["id"]
    call, member = wait_for_call(callers["admin"], run), callers["of two agents"]
    assert member.ask("GET", f"/v1/approvals/{call}").status_code == 404
    goes_on = message_of("tools/call", knows_tasks=False, name="clerk", arguments={"task": "x"})
    goes_on["json"]["params"]["requestState"] = f"{run}_1_0"
    for request in (
        goes_on,
        message_of("tools/call", knows_tasks=False, name="cadre_get_run", arguments={"run": f"{run}_1_0"}),
    ):
        answer = member.ask("POST", "/mcp", **request)
        assert answer.json()["result"]["_meta"]["cadre.dev/state"] == "waiting", answer.text
        assert call not in answer.text
    assert callers["ann"].ask("POST", f"/v1/runs/{run}/cancel").status_code == 202
