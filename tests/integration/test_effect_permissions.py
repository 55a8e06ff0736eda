"""Tests of whose calls a NATS user may settle, on a real server: an agent its own, of whichever tool; no other
agent's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.effects import NatsEffects
from cadre.engine.commands import Revoke
from cadre.errors import NotPermitted
from cadre.protocol.messages import ErrorInfo, ToolResult
from integration.secured_world import Secured, T, secured


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as one:
        yield one


async def test_an_agent_takes_back_its_own_calls_of_any_tool(world: Secured) -> None:
    nc = await connect(world.settings("agent-boss"), "test")
    error = ErrorInfo("cancelled", "not begun")
    result = ToolResult(id="c:result", tree="t4", run="t4", at=0.0, call="c", tool="dig", error=error)
    revoked = Revoke(result).effect("boss")
    await NatsBus(nc, T, NatsBlobs(nc, T)).revoke(revoked)
    assert await NatsEffects(nc, T).read(revoked.claim) == (revoked.claim, 0, result)
    with pytest.raises(NotPermitted, match=r"cadre\.effect\.0\.t4\.c\.digger\.dig"):
        await NatsEffects(nc, T).settle(Revoke(result).effect("digger"))
    await nc.close()
