"""A key reaches the same by every door: a call in another's tree is unknown over MCP as it is over REST."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import msgspec
import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import unpack_record
from cadre.journal import events as ev
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Decision, Origin, ReplyTo, Task
from cadre.protocol.topology import task_id
from cadre.spec.agent import AgentSpec
from harness.nats_server import NatsServer
from harness.patience import patience
from integration.gateway_world import CALLED, GatewayProcess, World, entered, new_run

ADMIN_KEY = "0123456789abcdef" * 4
TASKS = "io.modelcontextprotocol/tasks"

REFUND = ToolCard(
    name="refund",
    description="Pays money back.",
    input_schema={"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
)


@pytest.fixture(scope="module")
def locked(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    environment = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": ADMIN_KEY, "CADRE_DOORS": "openai,a2a,agui,mcp"}
    environment |= {"CADRE_MCP_DECIDE": "on"}
    folder = tmp_path_factory.mktemp("locked")
    one = GatewayProcess(nats_server.url, folder, None, **environment)
    yield one
    one.kill()


@pytest.fixture
async def world(locked: GatewayProcess) -> AsyncIterator[World]:
    """As the administrator."""
    async with entered(locked) as one:
        one.http.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        for name in ("boss", "clerk"):
            await one.announce(name)
        yield one


class Tree(NamedTuple):
    """A run of `boss` whose member `clerk` waits for a person."""

    run: str
    member: str
    call: str


async def tree_of(world: World, user: str = "") -> Tree:
    run = new_run()
    root = world.scribe(run)
    accepted = root.accepted()
    origin = Origin(user=user) if user else None
    accepted = msgspec.structs.replace(accepted, task=msgspec.structs.replace(accepted.task, origin=origin))
    await root.write(accepted, CALLED)
    member = f"{run}_1_0"
    below = world.scribe(member, "clerk", parent=run)
    task = Task(
        id=task_id(member),
        tree=run,
        run=member,
        at=time.time(),
        agent="clerk",
        task="Refund.",
        reply_to=ReplyTo(agent="boss", run=run),
        path=["boss"],
        origin=origin,
    )
    spec = AgentSpec(name="clerk", description="Refunds.", tools=["refund"], approvals={"refund": "always"})
    call = f"{member}_1_0"
    await below.write(
        ev.RunAccepted(task=task, spec=spec, decided_by="tool_calling"),
        ev.ToolsetChanged(tools=[REFUND], members=[]),
        CALLED,
    )
    await below.write(
        ev.ModelAnswered(purpose="act", step=1, attempt=1, content=""),
        ev.ApprovalRequested(call=call, name="refund", kind="tool", arguments={"amount": 7}, reason="always"),
    )
    await world.listed(run)
    return Tree(run, member, call)


async def client(world: World, *roles: str, **fields: Any) -> httpx2.AsyncClient:
    made = await world.http.post("/v1/keys", json={"name": uuid4().hex[:8], "roles": roles, **fields})
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    return httpx2.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=patience())


async def mcp(who: httpx2.AsyncClient, method: str, about: str, **params: Any) -> dict[str, Any]:
    """The answer to one message of a client that knows tasks."""
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": method,
        "mcp-name": about,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = await who.post("/mcp", json=message, headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def task(who: httpx2.AsyncClient, method: str, run: str, **params: Any) -> dict[str, Any]:
    return await mcp(who, method, run, taskId=run, **params)


async def tool(who: httpx2.AsyncClient, name: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await mcp(who, "tools/call", name, name=name, arguments=arguments))["result"]
    return found


async def is_pending(world: World, call: str) -> bool:
    return bool((await world.http.get(f"/v1/approvals/{call}")).json()["state"] == "pending")


YES = {"action": "accept", "content": {"confirm": True}}


async def test_a_key_for_a_member_neither_sees_nor_decides_its_calls_in_anothers_tree(world: World) -> None:
    tree = await tree_of(world)
    async with await client(world, "operator", "approver", agents=["clerk"]) as clerks:
        by_rest = await clerks.get(f"/v1/approvals/{tree.call}")
        assert (by_rest.status_code, by_rest.json()["code"]) == (404, "unknown-approval")
        assert (await clerks.get(f"/v1/runs/{tree.member}")).status_code == 200
        seen = (await task(clerks, "tasks/get", tree.member))["result"]
        assert (seen["status"], "inputRequests" in seen) == ("working", False)
        await task(clerks, "tasks/update", tree.member, inputResponses={tree.call: YES})
        assert await is_pending(world, tree.call)
        ruled = await tool(clerks, "cadre_decide", call=tree.call, verdict="approved")
        assert ruled["isError"]
        assert await is_pending(world, tree.call)
        shown = await tool(clerks, "cadre_get_run", run=tree.member)
        assert tree.call not in str(shown)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"inputResponses": {tree.call: YES}} if method == "tasks/update" else {}
            refused = (await task(clerks, method, tree.run, **params))["error"]
            made_up = (await task(clerks, method, new_run(), **params))["error"]
            assert refused == made_up
            assert refused["data"]["code"] == "unknown-run"
    async with await client(world, "operator", "approver", teams=["boss"]) as team:
        assert (await team.get(f"/v1/approvals/{tree.call}")).status_code == 200
        seen = (await task(team, "tasks/get", tree.member))["result"]
        assert list(seen["inputRequests"]) == [tree.call]
        await task(team, "tasks/update", tree.member, inputResponses={tree.call: YES})
        # The agent is not there: what was decided waits in its inbox.
        assert await decided(world, tree)


async def decided(world: World, tree: Tree) -> list[str]:
    """Return the decisions on the tree's call, as the agent will read them."""
    subject = world.topology.inbox_of_run(tree.run, tree.member)
    query = {"seq": 1, "batch": 100, "next_by_subj": subject}
    found = await jetstream.batch(world.nc, world.topology.stream_of(tree.run), query)
    records = [await unpack_record(one.data, world.blobs) for one in found]
    return [record.verdict for record in records if isinstance(record, Decision)]


PATHS = ["/v1/runs/{run}", "/v1/runs/{run}/events", "/v1/runs/{run}/export", "/v1/runs/{run}/files"]
PATHS += ["/v1/runs/{run}/trace", "/v1/approvals/{call}", "/v1/runs?parent={run}"]


@pytest.mark.parametrize("scope", [{"user": "bo", "own": True}, {"agents": ["clerk"]}, {"teams": ["clerk"]}])
async def test_what_is_anothers_is_as_unknown_as_what_is_made_up(world: World, scope: dict[str, Any]) -> None:
    tree, none = await tree_of(world, "ann"), new_run()
    made_up = Tree(none, f"{none}_1_0", f"{none}_1_0_1_0")
    async with await client(world, "operator", "approver", **scope) as somebody:
        for path in PATHS:
            answers = [await somebody.get(path.format(**one._asdict())) for one in (tree, made_up)]
            codes = [(one.status_code, one.json()["code"]) for one in answers]
            assert codes[0] == codes[1], path
            assert codes[0][0] == 404, path
        for name in ("cadre_get_run", "cadre_cancel_run"):
            told = [(await tool(somebody, name, run=one.run))["_meta"] for one in (tree, made_up)]
            assert told[0] == told[1]
            assert told[0]["cadre.dev/error"] == "unknown-run"
        listed = await tool(somebody, "cadre_list_runs", limit=100)
        assert tree.run not in str(listed)
