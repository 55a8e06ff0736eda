"""The index is away: its file is locked, its server stopped or silent. Nothing but lists needs it: runs begin, go on,
are followed by every door, decided on, steered, forked and shown, and a gateway may be started again meanwhile."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import uuid4

import httpx2
import pytest
from openai import OpenAI

from harness.command import Commands
from harness.patience import eventually, patience
from harness.people import decide, done
from harness.postgres_server import MISSING, PostgresServer, postgres_programs
from harness.stack import Gateway, Stack
from harness.tcp_proxy import TcpProxy

TEAM = Path(__file__).parent / "doors"
STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'
LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


class Index(NamedTuple):
    """A gateway's index, with functions that take it away and bring it back."""

    url: str
    go: Callable[[], None]
    come: Callable[[], None]


@contextlib.contextmanager
def locked_file(folder: Path) -> Iterator[Index]:
    """Another process holds a lock on it."""
    file = folder / "index.db"
    holders: list[subprocess.Popen[str]] = []

    def lock() -> None:
        command = [sys.executable, "-c", LOCK, str(file)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"

    def unlock() -> None:
        holders.pop().communicate("")

    yield Index(f"sqlite://{file}", lock, unlock)
    while holders:
        unlock()


@contextlib.contextmanager
def stopped_server(folder: Path) -> Iterator[Index]:
    with _postgres() as server:
        yield Index(server.url, server.crash, server.start)


@contextlib.contextmanager
def silent_server(folder: Path) -> Iterator[Index]:
    """Connections to it stay open, and no byte comes through."""
    with _postgres() as server, TcpProxy(server.port).running() as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        yield Index(url, proxy.fall_silent, proxy.speak)
        proxy.speak()


def _postgres() -> PostgresServer:
    programs = postgres_programs()
    if programs is None:
        pytest.skip(MISSING)
    return PostgresServer(programs)


@pytest.fixture(scope="module", params=[locked_file, stopped_server, silent_server])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with request.param(tmp_path_factory.mktemp("index")) as index:
        yield index


@pytest.fixture(scope="module")
def stack(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.environment |= {"CADRE_INDEX_URL": index.url, "CADRE_DOORS": "openai,a2a,agui,mcp"}
        yield stack


@pytest.fixture(scope="module", autouse=True)
def away(gateway: Gateway, index: Index) -> None:
    """The index was there, knows a run, and goes."""
    known = gateway.submit("host", "Hi")
    gateway.finished(known)
    eventually(lambda: known in listed(gateway), what="the run is listed")
    index.go()
    gateway.submit("host", "Hi")  # there is something to save
    eventually(lambda: readiness(gateway).get("index_code") == "index-unavailable", what="the index is away")


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def readiness(gateway: Gateway) -> dict[str, str]:
    answer = gateway.request("GET", "/readyz")
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


def listed(gateway: Gateway) -> list[str]:
    answer = gateway.request("GET", "/v1/runs", params={"limit": "500"})
    return [one["id"] for one in answer.json()["runs"]] if answer.status_code == 200 else []


def sse(gateway: Gateway, path: str, body: Any) -> list[Any]:
    with httpx2.stream("POST", f"{gateway.service.url}{path}", json=body, timeout=patience()) as answer:
        assert answer.status_code == 200, answer.read()
        return [json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data: {")]


def held(gateway: Gateway, book: Path) -> tuple[str, str]:
    """A run whose call waits for a person, and the call: heard of by those who follow it."""
    run = gateway.submit("clerk", f"refund {book} 500")
    return run, gateway.wait_for(run, "approval.requested")["event"]["call"]


# --- what needs the index says so, and says which


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs?count=true", "/v1/approvals", "/v1/load"])
def test_lists_say_what_did_not_answer(gateway: Gateway, path: str) -> None:
    answer = gateway.request("GET", path)
    assert (answer.status_code, answer.json()["code"]) == (503, "index-unavailable"), answer.text


# --- who follows a run hears of it


def test_events_are_heard_as_they_happen(gateway: Gateway) -> None:
    run = gateway.submit("host", "tell a story")
    told = [name for name, _ in gateway.events(run)]
    assert (told[0], told[-2:]) == ("run.accepted", ["run.finished", "end"])
    assert "delta" in told
    assert [name for name, _ in gateway.events(run) if name != "delta"] == [name for name in told if name != "delta"]


def test_a_run_is_started_and_followed_in_one_request(gateway: Gateway) -> None:
    told = sse(gateway, "/v1/runs", {"agent": "host", "task": "tell a story", "stream": True})
    assert told[-1]["state"] == "success"


def test_a_wait_ends_with_its_run(gateway: Gateway) -> None:
    body = {"agent": "host", "task": "tell a story"}
    answer = gateway.request("POST", "/v1/runs", json=body, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json().get("output")) == (200, STORY), answer.text


def test_chats_and_responses_are_answered(gateway: Gateway, openai_client: OpenAI) -> None:
    stream = openai_client.chat.completions.create(
        model="host", messages=[{"role": "user", "content": "tell a story"}], stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == STORY
    first = openai_client.responses.create(model="host", input="my name is Iris")
    second = openai_client.responses.create(model="host", input="what is my name", previous_response_id=first.id)
    assert second.output_text == "You are Iris."


def test_agui_a2a_and_mcp_are_answered(gateway: Gateway) -> None:
    said = [{"id": "1", "role": "user", "content": "tell a story"}]
    wanted = {"threadId": uuid4().hex, "runId": uuid4().hex, "messages": said, "tools": [], "context": []}
    assert sse(gateway, "/agui/host", wanted)[-1]["type"] == "RUN_FINISHED"
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "tell a story"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    told = sse(gateway, "/a2a/host", call)
    assert told[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task = told[0]["result"]["task"]["id"]
    got = gateway.request("POST", "/a2a/host", json=call | {"method": "GetTask", "params": {"id": task}}).json()
    assert got["result"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_tool_of_mcp_is_answered(gateway: Gateway) -> None:
    mcp = pytest.importorskip("mcp")
    async with mcp.Client(f"{gateway.service.url}/mcp") as client:
        result = await client.call_tool("host", {"task": "tell a story"})
    assert cast(Any, result.content[0]).text == STORY


def test_the_command_line_follows(cadre: Commands) -> None:
    followed = cadre("run", "host", "tell a story")
    assert (followed.returncode, STORY in followed.stdout) == (0, True), followed.stderr


# --- people decide, steer and look


def test_a_held_call_is_decided(gateway: Gateway, books: Path) -> None:
    run, call = held(gateway, books)
    assert gateway.run(run)["waiting_for"] == "approval"
    assert gateway.request("GET", f"/v1/approvals/{call}").json()["state"] == "pending"
    assert decide(gateway, call, "approved").status_code == 200
    assert gateway.succeeded(run) == "refunded 500"
    assert done(books) == ["refund 500"]


def test_a_wait_for_a_run_that_waits_for_a_person_says_so(gateway: Gateway, books: Path) -> None:
    body = {"agent": "clerk", "task": f"refund {books} 500"}
    headers = {"Prefer": "wait=2", "Idempotency-Key": uuid4().hex}
    for _ in range(2):  # the same request is the same run
        answer = gateway.request("POST", "/v1/runs", json=body, headers=headers)
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting"), answer.text
    assert gateway.request("POST", f"/v1/runs/{answer.json()['id']}/cancel").status_code == 202


def test_messages_signals_cancels_and_forks_arrive(gateway: Gateway, books: Path) -> None:
    run, _ = held(gateway, books)
    told = gateway.request("POST", f"/v1/runs/{run}/messages", json={"text": "leave it", "mode": "interrupt"})
    assert told.status_code in (200, 202), told.text
    assert gateway.succeeded(run) == "Left alone."
    other, _ = held(gateway, books)
    signalled = gateway.request("POST", f"/v1/runs/{other}/signals/paid", json={"payload": 1})
    assert signalled.status_code in (200, 202), signalled.text
    forked = gateway.request("POST", f"/v1/runs/{run}/fork", json={"at": 1, "task": f"refund {books} 7"})
    assert forked.status_code == 202, forked.text
    assert gateway.succeeded(forked.json()["id"]) == "refunded 7"
    assert gateway.request("POST", f"/v1/runs/{other}/cancel").status_code == 202
    assert gateway.finished(other)["state"] == "cancelled"


def test_sessions_go_on(gateway: Gateway) -> None:
    session = uuid4().hex
    assert gateway.answer("host", "my name is Iris", session=session) == "Noted."
    assert gateway.answer("host", "what is my name", session=session) == "You are Iris."


def test_a_standing_budget_counts_what_is_used(gateway: Gateway, books: Path) -> None:
    """The ledger hears the journals, not the index."""
    budget = {"tokens": 1, "window": "day", "agent": "chief"}
    assert gateway.request("PUT", "/v1/budgets/small", json=budget).status_code in (200, 201)
    refused: list[httpx2.Response] = []

    def is_refused() -> bool:
        refused[:] = [
            gateway.request("POST", "/v1/runs", json={"agent": "chief", "task": f"have clerk: refund {books} 5"})
        ]
        return refused[0].status_code != 202

    eventually(is_refused, what="the budget is used up")
    assert refused[0].json()["code"] == "budget-exhausted", refused[0].text
    assert gateway.request("DELETE", "/v1/budgets/small").status_code == 204
    assert gateway.request("GET", "/v1/stats").json()["total"]["runs"] > 0


# --- the gateway is killed meanwhile, and the index comes back


def test_a_gateway_that_is_started_again_works(gateway: Gateway, index: Index, books: Path) -> None:
    """Last in here: then the index comes, and lacks nothing."""
    run, call = held(gateway, books)
    begun = {run, *(gateway.submit("host", "Hi") for _ in range(20))}
    gateway.service.kill()
    gateway.service.start()
    eventually(lambda: readiness(gateway).get("index_code") == "index-unavailable", what="it is missed")
    assert gateway.run(run)["waiting_for"] == "approval"
    assert decide(gateway, call, "approved").status_code == 200
    assert gateway.succeeded(run) == "refunded 500"
    index.come()
    eventually(lambda: "index" not in readiness(gateway), what="the index is back")
    eventually(lambda: begun <= set(listed(gateway)), what="all are listed")
    shown = gateway.request("GET", "/v1/runs", params={"limit": "500"}).json()["runs"]
    told = {one["id"]: gateway.run(one["id"])["state"] for one in shown}
    assert {one["id"]: one["state"] for one in shown} == told
