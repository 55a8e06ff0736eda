"""Keys that callers choose, over every door: the same key of two callers are two keys, no matter what they are sent
with. So are the names of their conversations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from e2e.test_mcp_tasks import message_of
from harness.callers import Caller, Json, add_guarded, callers_of, code_of, has_ended, wait_for_call
from harness.patience import eventually
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
OUT = "out-of-scope"
"""The code of doors that refuse keys with a scope."""


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    add_guarded(stack)


@pytest.fixture(scope="module")
def callers(stack: Stack, gateway: Gateway) -> Iterator[dict[str, Caller]]:
    with callers_of(stack, gateway) as found:
        yield found


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


# --- keys

Started = tuple[str, str]
"""The id of what a request has started, "" when it was refused; and the code of the refusal."""


def started(answer: httpx2.Response, *, ok: tuple[int, ...] = (200, 202)) -> Started:
    if answer.status_code not in ok:
        return "", code_of(answer)
    location = answer.headers.get("location", "")
    return answer.headers.get("x-cadre-run") or location.removeprefix("/v1/runs/"), ""


def post_run(caller: Caller, key: str, *, prefer: str = "", **fields: Any) -> Started:
    headers = {"Idempotency-Key": key} | ({"Prefer": prefer} if prefer else {})
    return started(caller.ask("POST", "/v1/runs", json={"agent": "host", "task": "Hi", **fields}, headers=headers))


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
    meta = answer.json()["result"]["_meta"]
    return str(meta.get("cadre.dev/run", "")), str(meta.get("cadre.dev/error", ""))


STARTS: dict[str, Callable[[Caller, str], Started]] = {
    "start": post_run,
    "start and wait": partial(post_run, prefer="wait=30"),
    "start and follow": partial(post_run, stream=True),
    "chat": chat,
    "chat, streamed": partial(chat, stream=True),
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
        assert run, (caller.name, code)
        assert begun.setdefault(caller.owner, run) == run, caller.name
        assert STARTS[door](caller, key) == (run, ""), "the same caller's own run again"
        assert caller.ask("GET", f"/v1/runs/{run}").json()["user"] == caller.user, caller.name
    assert len(set(begun.values())) == len(begun) == 8, begun


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
    for verb, forked in (("fork", {"at": 1}), ("resume", {})):
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


@pytest.mark.parametrize("door", ["chat", "response", "A2A", "AG-UI", "MCP", "start"])
def test_a_conversation_of_the_same_name_is_another_one_for_each_person(door: str, callers: dict[str, Caller]) -> None:
    """A caller that names another person's session, thread or context begins one of the same name."""
    name = f"talk-{uuid4().hex[:8]}"
    mine, others = callers["ann everywhere"], [callers["bob everywhere"], callers["robot"]]
    say(door, mine, name, "my name is Rumpelstiltskin")
    for other in others:
        assert "Rumpelstiltskin" not in say(door, other, name, "what is my name?"), other.name
    assert "Rumpelstiltskin" in say(door, mine, name, "what is my name?")


@pytest.mark.parametrize(("narrow", "wide"), [("of two agents", "robot"), ("ann at the clerk", "ann")])
@pytest.mark.parametrize("door", ["chat", "response", "A2A", "AG-UI", "MCP", "start"])
def test_a_key_for_some_agents_enters_no_conversation_with_another_agent(
    door: str, narrow: str, wide: str, callers: dict[str, Caller], books: Path
) -> None:
    """Both keys have the same person, or none. An open call of the conversation stays open."""
    name = f"talk-{uuid4().hex[:8]}"
    body = {"agent": "chief", "task": f"have clerk: refund {books} 500", "session": name}
    run = callers[wide].ask("POST", "/v1/runs", json=body).json()["id"]
    call = wait_for_call(callers[wide], run)
    for session in (name, f"made-up-{name}"):
        for text in ("approve", "leave it"):
            answer = send(door, callers[narrow], session, text, "chief")
            meta = answer.json().get("result", {}).get("_meta", {})
            code = meta.get("cadre.dev/error") if door == "MCP" else code_of(answer)
            assert code == OUT, (session, text, answer.text)
    assert callers[wide].ask("GET", f"/v1/approvals/{call}").json()["state"] == "pending"
    assert done(books) == []
    assert callers[wide].ask("POST", f"/v1/runs/{run}/cancel").status_code == 202


@pytest.mark.parametrize("door", STARTS)
def test_a_persons_key_for_another_agent_finds_no_run_by_its_key(door: str, callers: dict[str, Caller]) -> None:
    """The owner of both keys is the person; the run is within reach of one."""
    ann, other, key = callers["ann"], callers["ann at the clerk"], uuid4().hex
    run, code = STARTS[door](ann, key)
    assert run, code
    assert STARTS[door](ann, key) == (run, "")
    for one in (key, uuid4().hex):
        assert STARTS[door](other, one) == ("", OUT)


def test_a_message_without_a_context_begins_one_of_its_own(callers: dict[str, Caller]) -> None:
    """Keys of two programs may have one name, and messages one id."""
    admin, message = callers["admin"], uuid4().hex
    tokens = [
        admin.ask("POST", "/v1/keys", json={"name": "twin", "roles": ["operator"]}).json()["token"] for _ in range(2)
    ]
    answers = list[Json]()
    for token, text in zip(tokens, ("my name is Rumpelstiltskin", "what is my name?"), strict=True):
        sent = {"messageId": message, "role": "ROLE_USER", "parts": [{"text": text}]}
        headers = {"Authorization": f"Bearer {token}"}
        answer = admin.ask("POST", "/a2a/host/message:send", json={"message": sent}, headers=headers)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json()["task"])
    assert answers[0]["contextId"] != answers[1]["contextId"]
    assert "Rumpelstiltskin" not in json.dumps(answers[1])


def send(door: str, caller: Caller, talk: str, text: str, agent: str) -> httpx2.Response:
    """Says something to the agent in the conversation."""
    said = {"role": "user", "content": text}
    sent: Json = {"messageId": uuid4().hex, "contextId": talk, "role": "ROLE_USER", "parts": [{"text": text}]}
    thread: Json = {"threadId": talk, "runId": uuid4().hex, "messages": [{"id": "1", **said}]}
    match door:
        case "chat":
            body: Json = {"model": agent, "messages": [said]}
            headers = {"X-Cadre-Session": talk}
            return caller.ask("POST", "/v1/chat/completions", json=body, headers=headers)
        case "response":
            body = {"model": agent, "input": text, "conversation": talk}
            return caller.ask("POST", "/v1/responses", json=body)
        case "A2A":
            return caller.ask("POST", f"/a2a/{agent}/message:send", json={"message": sent})
        case "AG-UI":
            return caller.ask("POST", f"/agui/{agent}", json={**thread, "tools": [], "context": []})
        case "MCP":
            arguments = {"task": text, "session": talk}
            request = message_of("tools/call", knows_tasks=False, name=agent, arguments=arguments)
            return caller.ask("POST", "/mcp", **request)
        case _:
            body = {"agent": agent, "task": text, "session": talk}
            return caller.ask("POST", "/v1/runs", json=body, headers={"Prefer": "wait=60"})


def say(door: str, caller: Caller, talk: str, text: str) -> str:
    """Says something to the host; returns all that was answered. The model of a run that knows no name answers with an
    error."""
    answer = send(door, caller, talk, text, "host")
    match door:
        case "A2A":
            return json.dumps(answer.json()["task"].get("artifacts"))
        case "AG-UI":
            return "".join(line for line in answer.text.splitlines() if "RUN_FINISHED" in line)
        case _:
            return answer.text
