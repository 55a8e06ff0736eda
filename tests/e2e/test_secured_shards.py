"""Shards of a deployment whose services are NATS users: what each may do is for all shards, or the growth waits."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cadre.deploy import nats_files
from cadre.protocol.nats_users import team_roles
from cadre.protocol.topology import Topology, generation_of
from harness.command import commands_of, only_line
from harness.patience import eventually
from harness.people import done
from harness.secured_stack import SecuredStack
from harness.stack import Gateway

TEAM = Path(__file__).parent / "team"
TOOLS = ("effect", "keyed", "look")
ROLES = team_roles(["worker"], [("tools", TOOLS)], [], memory=False, calls={"worker": TOOLS})


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredStack]:
    with SecuredStack(tmp_path, ROLES) as stack:
        stack.model(TEAM / "script.yaml")
        stack.add_as("gateway", "cadre_gateway")
        stack.add_as("tools-tools", "cadre_tools", TEAM / "tools.py")
        stack.add_as("agent-worker", "cadre_agent", TEAM / "worker.yaml")
        stack.start_all()
        Gateway(stack.services["gateway"]).wait_offered(1)
        yield stack


def about(stack: SecuredStack, name: str) -> dict[str, str]:
    found: dict[str, str] = httpx2.get(f"{stack.services[name].url}/readyz", timeout=5).json()
    return found


def test_the_permissions_are_made_for_more_shards_first(secured: SecuredStack, tmp_path: Path) -> None:
    stack, gateway = secured, Gateway(secured.services["gateway"])
    cadre, operator = commands_of(stack, tmp_path), str(stack.key("operator"))
    refused = only_line(cadre("shards", "grow", 4, CADRE_NATS_CREDENTIALS=str(stack.key("gateway"))), 2)
    assert "CADRE_NATS_CREDENTIALS" in refused

    # Who may not take from the new shards keeps every tree out of them.
    refusal = cadre("shards", "grow", 4, "--wait", 8, CADRE_NATS_CREDENTIALS=operator)
    assert refusal.returncode == 2, refusal.stderr
    for word in ("agent worker", "CADRE_SHARDS=4 cadre auth init", "cadre shards grow 4"):
        assert word in refusal.stderr
    eventually(lambda: about(stack, "agent-worker").get("shards_code") == "shards-behind", what="it says so")
    assert about(stack, "agent-worker")["status"] == "ready"
    listed = cadre("shards", "list", CADRE_NATS_CREDENTIALS=operator).stdout.splitlines()
    assert [line.split("\t")[1] for line in listed] == ["2 shards", "4 shards"]
    before = gateway.submit("worker", f"use effect {tmp_path}/before 0")
    assert generation_of(before) == 0
    assert "effect is done" in gateway.succeeded(before)

    nats_files.update_users(tmp_path / "auth", ROLES, Topology(4))
    stack.nats.process.send_signal(signal.SIGHUP)
    grown = cadre("shards", "grow", 4, CADRE_NATS_CREDENTIALS=operator)
    assert grown.returncode == 0, grown.stderr
    read = (tmp_path / "nats.log").stat().st_size

    def begins_there() -> bool:
        return generation_of(gateway.submit("worker", "think 1")) == 1

    eventually(begins_there, what="the gateway knows of the new shards")
    runs: list[str] = []
    while {Topology([2, 4]).shard(run) for run in runs} != set(range(4)):  # by chance, after some eight
        runs.append(gateway.submit("worker", f"use effect {tmp_path}/after-{len(runs)} 0"))
        assert len(runs) < 100
    for number, run in enumerate(runs):
        assert "effect is done" in gateway.succeeded(run)
        assert len(done(tmp_path / f"after-{number}")) == 1
    with (tmp_path / "nats.log").open() as log:
        log.seek(read)
        assert [line for line in log if "Violation" in line] == []
    for name in ("gateway", "agent-worker", "tools-tools"):
        assert "shards" not in about(stack, name), json.dumps(about(stack, name))
