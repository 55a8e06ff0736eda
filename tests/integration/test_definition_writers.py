"""Schedules, triggers, notices and standing budgets as one resource: what holds for a definition of each kind, at
gateways that several people and the gateways themselves write to."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.streams import jetstream
from cadre.automation.standing_budget import BudgetSpec, BudgetState
from cadre.automation.trigger import TriggerState
from cadre.errors import ExitCode, Fenced
from cadre.settings import child_environment
from harness.command import Commands
from harness.nats_server import NatsServer
from harness.patience import patience
from integration.gateway_world import GatewayProcess, World, entered

SPECS: dict[str, dict[str, Any]] = {
    "schedule": {"agent": "boss", "task": "x", "cron": "0 0 1 1 *"},
    "trigger": {"agent": "boss", "task": "x", "subject": "orders"},
    "notice": {"url": "https://example.org/hook", "secret_env": "CADRE_SECRET_X"},
    "budget": {"window": "month", "tokens": 1_000_000},
}


@pytest.mark.parametrize("kind", SPECS)
async def test_a_definition_is_made_shown_listed_replaced_and_removed(world: World, kind: str) -> None:
    path, spec = f"/v1/{kind}s", SPECS[kind]
    assert (await world.http.put(f"{path}/one", json=spec)).json()["name"] == "one"
    assert (await world.http.put(f"{path}/one", json=spec)).status_code == 200
    shown = await world.http.get(f"{path}/one")
    assert (shown.status_code, shown.json()["name"]) == (200, "one")
    listed = (await world.http.get(path)).json()
    assert [list(listed), [one["name"] for one in listed[f"{kind}s"]]] == [[f"{kind}s"], ["one"]]
    for method, body, status in (("PUT", {"wrong": 1}, 422), ("PUT", [], 400), ("PATCH", spec, 405)):
        answer = await world.http.request(method, f"{path}/one", json=body)
        assert answer.status_code == status, answer.text
    assert (await world.http.delete(f"{path}/one")).status_code == 204
    for method in ("GET", "DELETE"):
        gone = await world.http.request(method, f"{path}/one")
        assert (gone.status_code, gone.json()["code"]) == (404, f"unknown-{kind}")


@pytest.mark.parametrize("kind", SPECS)
async def test_the_commands_of_each_kind(world: World, gateway: GatewayProcess, tmp_path: Path, kind: str) -> None:
    cadre = Commands(tmp_path, child_environment(CADRE_GATEWAY_URL=gateway.url, NO_COLOR="1"))

    async def said(*arguments: str) -> str:
        done = await asyncio.to_thread(cadre, kind, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    document = {"apiVersion": "cadre.dev/v1", "kind": kind.capitalize(), "spec": SPECS[kind]}
    named = [document | {"metadata": {"name": name}} for name in ("mine", "yours")]
    (tmp_path / "file.yaml").write_text("---\n".join(yaml.safe_dump(one) for one in named))
    made = await said("add", "file.yaml")
    assert [line.split(",")[0] for line in made.splitlines()] == ["mine", "yours"]
    for verb in ("list", "ls"):
        lines = (await said(verb)).splitlines()
        assert [line.split()[0] for line in lines] == ["NAME", "mine", "yours"]
    listed = json.loads(await said("list", "-o", "json"))
    answer = (await world.http.get(f"/v1/{kind}s")).json()
    assert listed == answer[f"{kind}s"]
    assert "mine" in await said("show", "mine")
    assert json.loads(await said("show", "mine", "-o", "json"))["name"] == "mine"
    for verb, name in (("remove", "mine"), ("rm", "yours")):
        await said(verb, name)
        gone = await asyncio.to_thread(cadre, kind, "show", name)
        assert gone.returncode == ExitCode.NOT_FOUND
    assert await said("list") == ""


@pytest.mark.parametrize("place", ["state", "spec"])
@pytest.mark.parametrize("kind", SPECS)
async def test_what_a_newer_gateway_wrote_is_not_overwritten(world: World, kind: str, place: str) -> None:
    """It has something that this version would lose. It can be removed."""
    path, spec = f"/v1/{kind}s/newer", SPECS[kind]
    assert (await world.http.put(path, json=spec)).status_code == 200
    subject = world.topology.definition(kind, "newer")
    held = await jetstream.last(world.nc, world.topology.automation_stream, subject)
    assert held is not None
    newer = msgspec.json.decode(held.data)
    (newer if place == "state" else newer["spec"])["of_a_newer_version"] = 1
    await jetstream.append(world.nc, subject, msgspec.json.encode(newer), headers={jetstream.ROLLUP: "sub"})
    for method in ("GET", "PUT"):
        answer = await world.http.request(method, path, json=spec if method == "PUT" else None)
        assert (answer.status_code, answer.json()["code"]) == (409, "newer-version"), method
    kept = await jetstream.last(world.nc, world.topology.automation_stream, subject)
    assert kept is not None
    assert msgspec.json.decode(kept.data) == newer
    assert (await world.http.delete(path)).status_code == 204
    assert (await world.http.put(path, json=spec)).status_code == 200
    assert (await world.http.delete(path)).status_code == 204


async def test_a_budget_that_is_written_again_keeps_what_notices_have_reported(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A gateway notes what it reported while people put the same file at two gateways."""
    gateway = GatewayProcess(nats_server.url, tmp_path)
    other = GatewayProcess(nats_server.url, tmp_path, gateway.settings)
    spec, noted = SPECS["budget"], [f"reported-{n}" for n in range(40)]
    try:
        async with entered(gateway) as world, httpx2.AsyncClient(timeout=patience()) as elsewhere:
            states = NatsDefinitions(world.nc, world.topology, "budget", BudgetState)

            async def note(one: str) -> None:
                while True:
                    state, fence = await states.read("busy")
                    assert state is not None
                    try:
                        await states.write("busy", BudgetState(spec=state.spec, told=[*state.told, one]), fence)
                    except Fenced:
                        continue
                    return

            async def put_until(done: asyncio.Event, url: str) -> None:
                while not done.is_set():
                    answer = await elsewhere.put(f"{url}/v1/budgets/busy", json=spec)
                    assert answer.status_code == 200, answer.text

            assert (await world.http.put("/v1/budgets/busy", json=spec)).status_code == 200
            done = asyncio.Event()
            putting = asyncio.gather(*(put_until(done, one.url) for one in (gateway, other)))
            for one in noted:
                await note(one)
            done.set()
            await putting
            kept, _ = await states.read("busy")
            assert kept == BudgetState(spec=BudgetSpec(name="busy", window="month", tokens=1_000_000), told=noted)
            changed = await world.http.put("/v1/budgets/busy", json={**spec, "tokens": 2_000_000})
            assert changed.status_code == 200
            begun_again, _ = await states.read("busy")
            assert begun_again is not None
            assert begun_again.told == [], "another limit is reached another time"
    finally:
        gateway.kill()
        other.kill()


async def test_a_trigger_that_many_make_at_once_has_one_salt(nats_server: NatsServer, tmp_path: Path) -> None:
    """The ids of its runs follow from the salt: with another one a message that is sent again starts a second run."""
    gateway = GatewayProcess(nats_server.url, tmp_path)
    other = GatewayProcess(nats_server.url, tmp_path, gateway.settings)
    try:
        async with entered(gateway) as world, httpx2.AsyncClient(timeout=patience()) as elsewhere:
            states = NatsDefinitions(world.nc, world.topology, "trigger", TriggerState)

            async def salt_behind_put(url: str, name: str) -> str:
                answer = await elsewhere.put(f"{url}/v1/triggers/{name}", json=SPECS["trigger"])
                assert answer.status_code == 200, answer.text
                state, _ = await states.read(name)
                assert state is not None
                return state.salt

            for n in range(10):
                salts = await asyncio.gather(
                    *(salt_behind_put(one.url, f"busy-{n}") for one in (gateway, other) for _ in range(4))
                )
                assert len(set(salts)) == 1
    finally:
        gateway.kill()
        other.kill()
