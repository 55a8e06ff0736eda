"""A gateway that asks for keys: who is let in, what each role may do, and which runs a key reaches."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest
from click.testing import CliRunner

from cadre.adapters.nats.streams import jetstream
from cadre.cli.main import group
from cadre.client import AsyncClient, Unauthorized
from cadre.protocol.messages import Origin
from cadre_gateway.doors.open_doors import rules_with
from cadre_gateway.doors.openai import DOOR as OPENAI
from harness.command import Commands
from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import CALLED, GatewayProcess, Scribe, World, entered, new_run
from integration.role_routes import check_roles

ADMIN_KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def locked(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("locked")
    one = GatewayProcess(nats_server.url, folder, CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)
    yield one
    one.kill()


@pytest.fixture
async def world(locked: GatewayProcess) -> AsyncIterator[World]:
    """As the administrator."""
    async with entered(locked) as one:
        one.http.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        for name in ("boss", "poet"):
            await one.announce(name)
        yield one


async def key(world: World, *roles: str, **fields: Any) -> dict[str, Any]:
    answer = await world.http.post("/v1/keys", json={"name": uuid4().hex[:8], "roles": roles, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def client(world: World, *roles: str, **fields: Any) -> httpx2.AsyncClient:
    token = (await key(world, *roles, **fields))["token"]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=patience())


async def run_of(world: World, agent: str = "boss", user: str | None = None) -> str:
    """A root run that has begun and goes on."""
    run = new_run()
    scribe = world.scribe(run, agent)
    accepted = scribe.accepted()
    if user is not None:
        task = msgspec.structs.replace(accepted.task, origin=Origin(user=user))
        accepted = msgspec.structs.replace(accepted, task=task)
    await scribe.write(accepted, CALLED)
    await world.listed(run)
    return run


async def test_without_a_key_nobody_gets_in_but_probes_do(world: World) -> None:
    async with httpx2.AsyncClient(base_url=world.http.base_url) as nobody:
        for path in ("/v1/runs", "/v1/agents", f"/v1/runs/{new_run()}/events", "/v1/keys", "/nowhere"):
            answer = await nobody.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for wrong in ("x", f"cadre_{'0' * 12}_{'0' * 64}", ADMIN_KEY + "0", "é"):
            header = f"Bearer {wrong}".encode("latin-1")
            answer = await nobody.get("/v1/runs", headers={b"Authorization": header})
            assert answer.status_code == 401, wrong
        for path in ("/healthz", "/readyz", "/metrics", "/", "/console/main.js", "/openapi.json"):
            assert (await nobody.get(path)).status_code == 200, path


async def test_a_key_works_everywhere_until_it_is_revoked(world: World) -> None:
    made = await key(world, "viewer", expires_in=3600)
    assert re.fullmatch(r"cadre_[0-9a-f]{12}_[0-9a-f]{64}", made["token"])
    run = await run_of(world)
    async with AsyncClient(str(world.http.base_url), api_key=made["token"]) as cadre:
        assert run in [one.id async for one in cadre.runs()]
        events = cadre.attach(run).stream()
        assert (await anext(events)).type == "run.accepted"
        await events.aclose()
        listed = (await world.http.get("/v1/keys")).json()["keys"]
        [shown] = [one for one in listed if one["id"] == made["id"]]
        assert made["token"] not in str(listed)
        assert shown["roles"] == ["viewer"]
        assert (await world.http.delete(f"/v1/keys/{made['id']}")).status_code == 200
        with pytest.raises(Unauthorized, match="revoked"):
            await cadre.agents()
    assert (await world.http.delete(f"/v1/keys/{made['id']}")).status_code == 404


async def test_a_stream_ends_with_the_key_that_opened_it(world: World) -> None:
    made = await key(world, "viewer")
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with world.http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as answer:
        lines = answer.aiter_lines()
        async with asyncio.timeout(patience()):
            while not (await anext(lines)).startswith("event: model.called"):
                pass
            assert (await world.http.delete(f"/v1/keys/{made['id']}")).status_code == 200
            telling = asyncio.create_task(_keep_telling(world, scribe))
            assert not [line async for line in lines if line.startswith("event: end")]
            telling.cancel()


async def _keep_telling(world: World, scribe: Scribe) -> None:
    """Without it the stream would end with its next comment only."""
    while True:
        await world.write(scribe, CALLED)
        await asyncio.sleep(0.5)


async def test_a_key_that_has_expired_is_none(world: World) -> None:
    async with await client(world, "viewer", expires_in=0.5) as short:

        async def refused() -> bool:
            await asyncio.sleep(0.05)
            return (await short.get("/v1/agents")).status_code == 401

        await until(refused)


async def test_nothing_that_lets_somebody_in_is_stored(world: World) -> None:
    made = await key(world, "viewer")
    stream, subjects = world.topology.automation_stream, world.topology.definitions("key")
    stored = [held async for held in jetstream.messages(world.nc, stream, subjects)]
    assert any(made["id"].encode() in held.data for held in stored)
    assert not any(made["token"].rpartition("_")[2].encode() in held.data for held in stored)


async def test_every_route_is_in_the_table_and_each_role_is_held_to_it(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    table = {(rule.method, rule.path) for rule in rules_with([]).rules if rule.path.startswith("/v1")}
    doors = {(rule.method, rule.path) for rule in OPENAI.rules}
    assert described == table - doors
    await check_roles(lambda role: client(world, role))


async def test_an_approver_decides_and_does_nothing_else(world: World) -> None:
    run = await run_of(world)
    async with await client(world, "approver") as approver:
        assert (await approver.get(f"/v1/runs/{run}")).status_code == 200
        assert (await approver.post(f"/v1/runs/{run}/cancel")).status_code == 403
        started = await approver.post("/v1/runs", json={"agent": "boss", "task": "x"})
        assert (started.status_code, started.json()["code"]) == (403, "forbidden")
        decided = await approver.post(f"/v1/approvals/{run}_1_0", json={"verdict": "approved"})
        assert decided.json()["code"] == "unknown-approval"


@pytest.mark.parametrize("scope", ["agents", "teams"])
async def test_a_key_for_an_agent_reaches_no_other(world: World, scope: str) -> None:
    mine, other = await run_of(world, "poet"), await run_of(world, "boss")
    member = f"{other}_1_0"
    scribe = world.scribe(member, "poet", parent=other)
    await scribe.write(scribe.accepted(), CALLED)
    await world.http.get(f"/v1/runs/{member}")
    async with await client(world, "operator", **{scope: ["poet"]}) as poets:
        listed = [one["id"] for one in (await poets.get("/v1/runs", params={"limit": 500})).json()["runs"]]
        assert mine in listed
        assert other not in listed
        assert (await poets.get(f"/v1/runs/{mine}")).status_code == 200
        for path in (
            "",
            "/events",
            "/trace",
            "/steps/1/request",
            "/replay",
            "/verify",
            "/export",
            "/files",
            "/plan",
        ):
            assert (await poets.get(f"/v1/runs/{other}{path}")).json()["code"] == "unknown-run", path
        # As a member of another's team it is the agent's run, and not its team's.
        reached = (await poets.get(f"/v1/runs/{member}")).status_code
        assert reached == (200 if scope == "agents" else 404)
        assert (await poets.get(f"/v1/runs/{member}/files")).status_code == 404
        assert (await poets.post(f"/v1/runs/{other}/cancel")).status_code == 404
        refused = await poets.post("/v1/runs", json={"agent": "boss", "task": "x"})
        assert (refused.status_code, refused.json()["code"]) == (403, "out-of-scope")
        assert (await poets.post("/v1/runs", json={"agent": "poet", "task": "x"})).status_code == 202
        for path in ("/v1/stats", "/v1/schedules", "/v1/dead-letters", "/v1/memory?all=true"):
            assert (await poets.get(path)).json()["code"] == "out-of-scope", path


@pytest.mark.parametrize("scope", ["agents", "teams"])
async def test_a_key_names_agents_that_there_can_be(world: World, scope: str) -> None:
    for name in ("", " ", "boss ", "a.b", "*", "boss\n"):
        answer = await world.http.post("/v1/keys", json={"name": "k", "roles": ["viewer"], scope: [name]})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request"), name


async def test_a_person_starts_runs_in_their_own_name_and_sees_their_own(world: World) -> None:
    theirs = await run_of(world, user="ann")
    async with await client(world, "operator", user="bo", own=True) as bo:
        started = await bo.post("/v1/runs", json={"agent": "boss", "task": "x"})
        assert started.status_code == 202, started.text
        run = started.json()["id"]
        assert (await bo.get(f"/v1/runs/{run}")).json()["user"] == "bo"
        assert (await bo.get(f"/v1/runs/{theirs}")).status_code == 404
        listed = (await bo.get("/v1/runs", params={"limit": 500})).json()["runs"]
        assert theirs not in [one["id"] for one in listed]
        forged = await bo.post("/v1/runs", json={"agent": "boss", "task": "x", "user": "ann"})
        assert (forged.status_code, forged.json()["code"]) == (403, "out-of-scope")
        for query in ("user=ann", "all=true", "agent=boss"):
            answer = await bo.get(f"/v1/memory?{query}")
            assert (answer.status_code, answer.json()["code"]) == (403, "out-of-scope"), query
        twice = await bo.get("/v1/memory?user=bo&user=ann")
        assert (twice.status_code, twice.json()["code"]) == (422, "invalid-request")
        # Its own are asked for, of a memory service that is not there.
        assert (await bo.get("/v1/memory?user=bo")).json()["code"] == "memory-unavailable"
        body = {"selection": {"user": "ann"}, "query": "x"}
        assert (await bo.post("/v1/memory/search", json=body)).status_code == 403


async def test_a_browser_signs_in_with_a_cookie(world: World) -> None:
    made = await key(world, "operator")
    same = {"Sec-Fetch-Site": "same-origin"}
    async with httpx2.AsyncClient(base_url=world.http.base_url) as browser:
        fixed = f"cadre_{'1' * 12}_{'1' * 64}"
        browser.cookies.set("cadre_session", fixed, domain="127.0.0.1")
        bearer = {"Authorization": f"Bearer {made['token']}"}
        signed = await browser.post("/v1/session", headers=bearer | same)
        assert signed.status_code == 200, signed.text
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert fixed not in cookie, "a cookie from before the sign-in is none behind it"
        assert made["token"] not in cookie
        browser.cookies.clear()
        browser.cookies.set("cadre_session", re.findall(r"cadre_session=(\w+)", cookie)[0], domain="127.0.0.1")
        assert (await browser.get("/v1/runs", headers=same)).status_code == 200
        assert (await browser.get("/v1/session", headers=same)).json()["roles"] == ["operator"]
        listed = [one["id"] for one in (await world.http.get("/v1/keys")).json()["keys"]]
        assert made["id"] in listed
        assert browser.cookies["cadre_session"].split("_")[1] not in listed, "sign-ins are no keys"

        start = {"agent": "boss", "task": "x"}
        assert (await browser.post("/v1/runs", json=start, headers=same)).status_code == 202
        host = world.http.base_url.host
        for foreign in (
            {},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "http://evil.example"},
            {"Origin": f"http://{host}:1"},
            {"Origin": "null"},
        ):
            answer = await browser.post("/v1/runs", json=start, headers=foreign)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross-origin"), foreign

        assert (await world.http.delete(f"/v1/keys/{made['id']}")).status_code == 200
        assert (await browser.get("/v1/runs", headers=same)).status_code == 401, "gone with its key"


async def test_who_signs_out_is_out_and_a_key_in_the_cookie_is_not_revoked(world: World) -> None:
    made = await key(world, "viewer")
    async with httpx2.AsyncClient(base_url=world.http.base_url) as browser:
        signed = await browser.post("/v1/session", headers={"Authorization": f"Bearer {made['token']}"})
        token = re.findall(r"cadre_session=(\w+)", signed.headers["set-cookie"])[0]
        cookie = {"Cookie": f"cadre_session={token}", "Sec-Fetch-Site": "same-origin"}
        assert (await browser.get("/v1/agents", headers=cookie)).status_code == 200
        assert (await browser.delete("/v1/session", headers=cookie)).status_code == 204
        browser.cookies.clear()
        assert (await browser.get("/v1/agents", headers=cookie)).status_code == 401
        await browser.delete("/v1/session", headers={"Cookie": f"cadre_session={made['token']}"})
        bearer = {"Authorization": f"Bearer {made['token']}"}
        assert (await browser.get("/v1/agents", headers=bearer)).status_code == 200


async def test_the_command_line_makes_lists_and_revokes_keys(world: World, monkeypatch: Any) -> None:
    monkeypatch.setenv("CADRE_GATEWAY_URL", str(world.http.base_url))
    monkeypatch.setenv("CADRE_API_KEY", "put back at the end, as `--key` sets it")

    def cadre(*words: str, key: str = ADMIN_KEY) -> Any:
        return CliRunner().invoke(group, ["--key", key, *words])

    wanted = ("robot", "--role", "viewer", "--expires-in", "90d")
    made = await asyncio.to_thread(cadre, "keys", "create", *wanted)
    token = made.stdout.strip()
    assert token.startswith("cadre_"), made.output
    shown = await asyncio.to_thread(cadre, "keys", "list")
    assert "robot" in shown.stdout
    assert token not in shown.stdout
    refused = await asyncio.to_thread(cadre, "keys", "list", key=token)
    assert refused.exit_code != 0
    assert "administer" in refused.stderr
    ended = await asyncio.to_thread(cadre, "keys", "revoke", token.split("_")[1])
    assert ended.exit_code == 0
    told = await asyncio.to_thread(cadre, "audit", "--action", "key.revoke", "--since", "1h")
    assert "admin" in told.stdout
    assert token.split("_")[1] in told.stdout
    listed = await asyncio.to_thread(cadre, "audit", "-o", "json", "--limit", "1")
    assert json.loads(listed.stdout)[0]["action"] == "key.revoke"


def test_it_listens_beyond_this_machine_only_when_told_how(nats_server: NatsServer, tmp_path: Path) -> None:
    environment = {**os.environ, "CADRE_NATS_URL": nats_server.url, "CADRE_HOST": "0.0.0.0"}
    done = Commands(tmp_path, environment)("gateway")
    assert done.returncode == 2
    assert "--insecure" in done.stderr
    assert "CADRE_ADMIN_KEY" in done.stderr
    short = Commands(tmp_path, {**environment, "CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": "short"})("gateway")
    assert short.returncode == 2
    assert "CADRE_ADMIN_KEY" in short.stderr


async def trail(world: World, **wanted: str) -> list[dict[str, Any]]:
    answer = await world.http.get("/v1/audit", params=wanted)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["entries"]
    return found


async def test_what_was_done_stands_in_the_trail_with_who_and_from_where(world: World) -> None:
    run = await run_of(world)
    made = await key(world, "operator", user="ann")
    headers = {"Authorization": f"Bearer {made['token']}", "Cadre-User": "somebody else"}
    async with httpx2.AsyncClient(base_url=world.http.base_url, headers=headers) as ann:
        body = {"reason": "a secret of the run"}
        assert (await ann.post(f"/v1/runs/{run}/cancel", json=body)).status_code == 202
        assert (await ann.delete(f"/v1/runs/{run}")).status_code == 403
        assert (await ann.get("/v1/audit")).status_code == 403
    await world.http.delete(f"/v1/keys/{made['id']}")
    refused, cancelled = await trail(world, target=run)
    assert cancelled["action"] == "run.cancel"
    assert (cancelled["who"], cancelled["key"], cancelled["status"]) == ("ann", made["id"], 202)
    assert cancelled["source"] == "127.0.0.1"
    assert (refused["action"], refused["status"]) == ("run.erase", 403)
    [revoked] = await trail(world, target=made["id"])
    assert (revoked["action"], revoked["who"]) == ("key.revoke", "admin")
    [created] = [one for one in await trail(world, action="key") if one.get("detail", {}).get("key") == made["id"]]
    assert created["detail"]["roles"] == "operator"
    everything = str(await trail(world, limit="1000"))
    assert made["token"] not in everything
    assert "a secret of the run" not in everything
    assert await trail(world, who="ann", action="run", since="1h") == [refused, cancelled]
    assert await trail(world, who="ann", until="1h") == []
    page = (await world.http.get("/v1/audit", params={"limit": 1, "target": run})).json()
    assert page["entries"] == [refused]
    assert await trail(world, target=run, before=str(page["next"])) == [cancelled]


async def test_nothing_is_acknowledged_that_is_not_written_down(world: World) -> None:
    run = await run_of(world)
    stream = world.topology.audit_stream
    before = await jetstream.ask(world.nc, "asking", f"STREAM.INFO.{stream}")
    away = {**before["config"], "subjects": ["nothing.of.the.kind"]}
    await jetstream.ask(world.nc, "changing", f"STREAM.UPDATE.{stream}", away)
    try:
        answer = await world.http.post(f"/v1/runs/{run}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
    finally:
        await jetstream.ask(world.nc, "changing", f"STREAM.UPDATE.{stream}", before["config"])
    assert (await world.http.post(f"/v1/runs/{run}/cancel")).status_code == 202
    assert [one["action"] for one in await trail(world, target=run)] == ["run.cancel"]


async def test_a_key_that_asks_too_often_is_told_when_to_ask_again(world: World) -> None:
    async with await client(world, "operator", rate=0.2) as slow:
        assert (await slow.get("/v1/agents")).status_code == 200
        refused = await slow.get("/v1/agents")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate-limited")
        assert int(refused.headers["retry-after"]) <= 6


async def test_every_answer_tells_browsers_to_keep_it_to_themselves(world: World) -> None:
    for path in ("/v1/agents", "/v1/runs/none", "/openapi.json", "/", "/nowhere"):
        headers = (await world.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY", path
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["cache-control"] in ("no-store", "no-cache"), path
