"""Keys and ids that callers choose, over every door: principal x door x (own, foreign, made-up).

A key is its owner's: the same body and key of two callers are two runs. An id that names what a caller does not reach
is answered as one that was made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import pytest

from e2e.test_mcp_tasks import message_of
from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
ADMIN_KEY = "an-admin-key-of-more-than-32-characters"
OUT = "out-of-scope"
"""The code of doors that refuse keys with a scope."""

Json = dict[str, Any]

KEYS: dict[str, Json] = {
    "ann": {"user": "ann", "own": True},
    "bob": {"user": "bob", "own": True},
    "ann everywhere": {"user": "ann"},
    "bob everywhere": {"user": "bob"},
    "robot": {},
    "drone": {},
    "of two agents": {"agents": ["host", "clerk"]},
    "of the host": {"agents": ["host"]},
    "of the chief's team": {"teams": ["chief"]},
}
"""Fields of the keys. The principals `admin` and `anybody` (of a gateway that asks for no key) come to them."""


class Caller(NamedTuple):
    """Somebody who asks a gateway."""

    name: str
    http: httpx2.Client
    user: str | None
    own: bool
    agents: frozenset[str] | None

    @property
    def owner(self) -> str:
        """Two callers with the same are the same to a key."""
        return f"person {self.user}" if self.user else self.name

    def reaches(self, user: str | None, root: str) -> bool:
        """Whether a tree of this person that begins with this agent is within its bounds."""
        return (not self.own or self.user == user) and (self.agents is None or root in self.agents)

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self.http.request(method, path, **options)


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """The gateway of the stack asks for no key, another one does; both are of one deployment."""
    stack.environment["CADRE_DOORS"] = "openai,a2a,agui,mcp"
    stack.add("guarded", "cadre_gateway", start=False, CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)


@pytest.fixture(scope="module")
def callers(stack: Stack, gateway: Gateway) -> Iterator[dict[str, Caller]]:
    url = stack.services["guarded"].url

    def client(address: str, token: str = "") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=address, headers=headers, timeout=patience(), verify=False)

    admin = client(url, ADMIN_KEY)
    found = {
        "admin": Caller("admin", admin, None, False, None),
        "anybody": Caller("anybody", client(gateway.service.url), None, False, None),
    }
    for name, fields in KEYS.items():
        body = {"name": name, "roles": ["operator", "approver"], **fields}
        made = admin.post("/v1/keys", json=body)
        assert made.status_code == 201, made.text
        named = [*fields.get("agents", []), *fields.get("teams", [])]
        agents = frozenset(named) if named else None
        http = client(url, made.json()["token"])
        found[name] = Caller(name, http, fields.get("user"), fields.get("own", False), agents)
    yield found
    for one in found.values():
        one.http.close()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


# --- keys

Started = tuple[str, str]
"""The id of what a request has started, "" when it was refused; and the code of the refusal."""


def code_of(answer: httpx2.Response) -> str:
    """The code of a refusal, whichever protocol says it."""
    found = answer.json()
    error = found.get("error", found)
    data = error.get("data") or {}
    details = error.get("details") or (data if isinstance(data, list) else [])
    reasons = [one.get("reason") for one in details if isinstance(one, dict) and "reason" in one]
    code = (data.get("code") if isinstance(data, dict) else None) or next(iter(reasons), None)
    return str(code or error.get("code")).replace("_", "-").lower()


def started(answer: httpx2.Response, *, ok: tuple[int, ...] = (200, 202)) -> Started:
    if answer.status_code not in ok:
        return "", code_of(answer)
    location = answer.headers.get("location", "")
    return answer.headers.get("x-cadre-run") or location.removeprefix("/v1/runs/"), ""


def post_run(caller: Caller, key: str, *, prefer: str = "", **fields: Any) -> Started:
    headers = {"Idempotency-Key": key} | ({"Prefer": prefer} if prefer else {})
    return started(
        caller.ask("POST", "/v1/runs", json={"agent": "host", "task": "Hi", **fields}, headers=headers)
    )


def chat(caller: Caller, key: str, *, stream: bool = False) -> Started:
    body = {"model": "host", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    return started(caller.ask("POST", "/v1/chat/completions", json=body, headers={"Idempotency-Key": key}))


def respond(caller: Caller, key: str) -> Started:
    body = {"model": "host", "input": "Hi"}
    return started(caller.ask("POST", "/v1/responses", json=body, headers={"Idempotency-Key": key}))


def a2a(caller: Caller, key: str) -> Started:
    sent = {"messageId": key, "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    answer = caller.ask("POST", "/a2a/host/message:send", json={"message": sent})
    return (answer.json()["task"]["id"], "") if answer.status_code == 200 else ("", code_of(answer))


def agui(caller: Caller, key: str) -> Started:
    said = [{"id": "1", "role": "user", "content": "Hi"}]
    body = {"threadId": f"t-{key}", "runId": key, "messages": said, "tools": [], "context": []}
    answer = caller.ask("POST", "/agui/host", json=body)
    if answer.status_code != 200:
        return "", code_of(answer)
    first = next(line for line in answer.text.splitlines() if line.startswith("data:"))
    return json.loads(first[5:])["metadata"]["cadre"]["run"], ""


def mcp(caller: Caller, key: str) -> Started:
    request = message_of("tools/call", knows_tasks=False, name="host", arguments={"task": "Hi"})
    request["json"]["params"]["_meta"]["cadre.dev/idempotency-key"] = key
    answer = caller.ask("POST", "/mcp", **request)
    found = answer.json()["result"]
    return str(found["_meta"]["cadre.dev/run"]), ""


STARTS: dict[str, Callable[[Caller, str], Started]] = {
    "start": post_run,
    "start and wait": lambda caller, key: post_run(caller, key, prefer="wait=30"),
    "start and follow": lambda caller, key: post_run(caller, key, stream=True),
    "chat": chat,
    "chat, streamed": lambda caller, key: chat(caller, key, stream=True),
    "response": respond,
    "A2A": a2a,
    "AG-UI": agui,
    "MCP": mcp,
}


@pytest.mark.parametrize("door", STARTS)
def test_the_same_body_and_key_of_two_callers_are_two_runs(door: str, callers: dict[str, Caller]) -> None:
    key, begun = uuid4().hex, dict[str, str]()
    for caller in [one for one in callers.values() if one.reaches(one.user, "host")]:
        run, code = STARTS[door](caller, key)
        if code == OUT:
            assert caller.own or caller.agents is not None, caller.name
            continue
        assert run, (caller.name, code)
        assert begun.setdefault(caller.owner, run) == run, caller.name
        assert STARTS[door](caller, key) == (run, ""), "the same caller's own run again"
        assert caller.ask("GET", f"/v1/runs/{run}").json()["user"] == caller.user, caller.name
    assert len(set(begun.values())) == len(begun)
    assert len(begun) >= 5, begun


@pytest.mark.parametrize("door", ["start", "start and wait", "start and follow"])
def test_no_caller_takes_the_place_of_another_ones_key(door: str, callers: dict[str, Caller]) -> None:
    key = uuid4().hex
    other, _ = post_run(callers["bob"], key, task="what is my name?")
    mine, code = STARTS[door](callers["ann"], key)
    assert mine, code
    assert mine != other
    assert callers["ann"].ask("GET", f"/v1/runs/{mine}").json()["task"] == "Hi"
    assert post_run(callers["ann"], key, task="another one") == ("", "idempotency-key-reused")


def test_a_key_on_a_run_that_several_reach_is_each_ones_own(callers: dict[str, Caller], books: Path) -> None:
    """Messages, signals, forks and runs that go on from another."""
    body = {"agent": "clerk", "task": f"refund {books} 500"}
    run = callers["ann"].ask("POST", "/v1/runs", json=body).json()["id"]
    wait_for_call(callers["admin"], run)
    key = uuid4().hex
    reaching = [one for one in callers.values() if one.reaches("ann", "clerk")]

    def send(caller: Caller, verb: str, body: Any) -> str:
        headers = {"Idempotency-Key": f"{key} {verb}"}
        answer = caller.ask("POST", f"/v1/runs/{run}/{verb}", json=body, headers=headers)
        assert answer.status_code in (200, 202), (caller.name, verb, answer.text)
        return str(answer.json()["id"])

    def check(verb: str, body: Any) -> dict[str, str]:
        sent = dict[str, str]()
        for caller in reaching:
            found = send(caller, verb, body)
            assert sent.setdefault(caller.owner, found) == found, (verb, caller.name)
            assert send(caller, verb, body) == found, (verb, caller.name)
        assert len(set(sent.values())) == len(sent) >= 6, verb
        return sent

    check("messages", {"text": "Be quick.", "mode": "append"})
    check("signals/ready", {"x": 1})
    assert callers["ann"].ask("POST", f"/v1/runs/{run}/cancel").status_code == 202
    eventually(lambda: has_ended(callers["ann"], run), what="the run is cancelled")
    for verb, forked in (("fork", {"at": 1}), ("continue", {})):
        runs = check(verb, forked)
        for caller in reaching:
            # A fork is for the same person where its maker may name people, else for the maker's own.
            names_people = caller.user is None and caller.agents is None
            person = "ann" if names_people else caller.user
            found = callers["admin"].ask("GET", f"/v1/runs/{runs[caller.owner]}").json()
            assert found["user"] == person, (verb, caller.name)


def test_run_now_is_each_ones_own_and_counted_once(callers: dict[str, Caller]) -> None:
    name = f"s{uuid4().hex[:8]}"
    spec = {"name": name, "agent": "host", "task": "Hi", "every": "1d", "paused": True}
    assert callers["robot"].ask("POST", "/v1/schedules", json=spec).status_code == 201
    headers = {"Idempotency-Key": uuid4().hex}
    runs = dict[str, str]()
    for _ in range(2):
        for caller in callers.values():
            answer = caller.ask("POST", f"/v1/schedules/{name}/run", headers=headers)
            if caller.own or caller.agents is not None:
                assert code_of(answer) == OUT
                continue
            assert answer.status_code == 202, (caller.name, answer.text)
            run = answer.json()["id"]
            assert runs.setdefault(caller.owner, run) == run, caller.name
            assert caller.ask("GET", f"/v1/runs/{run}").json()["user"] == caller.user
    assert len(set(runs.values())) == len(runs) == 6
    shown = callers["robot"].ask("GET", f"/v1/schedules/{name}").json()
    assert (shown["started"], shown["ticks"], shown["maker"]) == (6, 0, "robot")


# --- ids

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
    "continue": rest("POST", "/v1/runs/RUN/continue", {}),
    "write a file": rest("PUT", "/v1/runs/RUN/files/a.txt"),
    "remove a file": rest("DELETE", "/v1/runs/RUN/files/a.txt"),
    "erase": rest("DELETE", "/v1/runs/RUN?force=true"),
    "decide": rest("POST", "/v1/approvals/CALL", {"decision": "approve"}),
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
    "A2A push": rest(
        "POST", "/a2a/clerk/tasks/RUN/pushNotificationConfigs", {"url": "https://example.org/hook"}
    ),
    "AG-UI resume": rest(
        "POST", "/agui/clerk", {**_THREAD, "resume": [{"interruptId": "CALL", "status": "resolved"}]}
    ),
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
    "MCP decide": tool("cadre_decide", call="CALL", decision="approve"),
}

STREAMED = {"events", "response, streamed", "A2A subscribe"}
"""What goes on until the run ends: a caller who reaches the run does not read it here."""


@pytest.fixture(scope="module")
def held(callers: dict[str, Caller], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """A run of ann's that waits for a person, the call that waits, and what it would write."""
    book = tmp_path_factory.mktemp("held") / "book"
    run = callers["ann"].ask("POST", "/v1/runs", json={"agent": "clerk", "task": f"refund {book} 500"})
    found = run.json()["id"]
    return found, wait_for_call(callers["admin"], found), book


def wait_for_call(caller: Caller, run: str) -> str:
    found: list[Json] = []

    def asked() -> bool:
        found[:] = caller.ask("GET", "/v1/approvals", params={"run": run}).json()["approvals"]
        return bool(found)

    eventually(asked, what=f"a call of {run} waits")
    return str(found[0]["call"])


def has_ended(caller: Caller, run: str) -> bool:
    return caller.ask("GET", f"/v1/runs/{run}").json()["ended_at"] is not None


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
    """Otherwise than for an id that is made up, unless the door takes no keys with a scope."""
    run, call, _ = held
    attempt, differing = READING[door], 0
    for caller in [one for one in callers.values() if one.reaches("ann", "clerk")]:
        made_up = uuid4().hex
        status, text = answered(attempt, caller, run, call)
        if status == 403:
            assert caller.own or caller.agents is not None, (caller.name, text)
            continue
        differing += (status, text) != answered(attempt, caller, made_up, f"{made_up}_1_0")
    has_none = ("runs below", "file", "plan", "queue", "export", "A2A list", "A2A pushes")
    assert differing >= 6 or door in has_none, differing


@pytest.mark.parametrize("door", ["chat", "A2A", "AG-UI", "MCP", "start"])
def test_a_conversation_of_the_same_name_is_another_one_for_each_person(
    door: str, callers: dict[str, Caller]
) -> None:
    """A caller that names another person's session, thread or context begins one of the same name."""
    name = f"talk-{uuid4().hex[:8]}"
    mine, others = callers["ann everywhere"], [callers["bob everywhere"], callers["robot"]]
    say(door, mine, name, "my name is Rumpelstiltskin")
    for other in others:
        assert "Rumpelstiltskin" not in say(door, other, name, "what is my name?"), other.name
    assert "Rumpelstiltskin" in say(door, mine, name, "what is my name?")


def say(door: str, caller: Caller, talk: str, text: str) -> str:
    """Says something in the conversation; returns all that was answered. The model of a run that knows no name
    answers with an error."""
    said = {"role": "user", "content": text}
    sent: Json = {"messageId": uuid4().hex, "contextId": talk, "role": "ROLE_USER", "parts": [{"text": text}]}
    thread: Json = {"threadId": talk, "runId": uuid4().hex, "messages": [{"id": "1", **said}]}
    match door:
        case "chat":
            body: Json = {"model": "host", "messages": [said]}
            answer = caller.ask("POST", "/v1/chat/completions", json=body, headers={"X-Cadre-Session": talk})
        case "A2A":
            answer = caller.ask("POST", "/a2a/host/message:send", json={"message": sent})
            return json.dumps(answer.json()["task"].get("artifacts"))
        case "AG-UI":
            answer = caller.ask("POST", "/agui/host", json={**thread, "tools": [], "context": []})
            return "".join(line for line in answer.text.splitlines() if "RUN_FINISHED" in line)
        case "MCP":
            arguments = {"task": text, "session": talk}
            request = message_of("tools/call", knows_tasks=False, name="host", arguments=arguments)
            answer = caller.ask("POST", "/mcp", **request)
        case _:
            body = {"agent": "host", "task": text, "session": talk, "reset": False}
            answer = caller.ask("POST", "/v1/runs", json=body, headers={"Prefer": "wait=60"})
    return answer.text
