"""One gateway and several tenants: each NATS account has its own runs, keys and people, and knows nothing of others."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.deploy.nats_files import key_file
from cadre.deploy.tenants import ACCOUNTS_FILE, ADMIN_KEY, AUTH_FOLDER, create_tenant
from cadre.errors import BusFull, SetupError
from cadre.protocol.nats_users import team_roles
from cadre.protocol.topology import Topology
from cadre.service.served import ServiceProcess
from cadre.settings import Settings
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.doors.open_doors import rules_with
from cadre_gateway.requests.body import BodyMemory
from cadre_gateway.tenants import Tenants
from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import GatewayProcess, World, new_run

SHARDS = 2
OTHERS = ("acme", "bolt")
ROLES = team_roles(["boss"], [], [], memory=False)


def host(tenant: str) -> str:
    return f"{tenant}.example.com"


class Tenancy:
    """A NATS server with an account for each tenant, and one gateway for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tenants"
        self.folder.mkdir()
        self.topology = Topology(SHARDS)
        for name in OTHERS:
            self.create(name)
        self.server = NatsServer(folder, more=f'include "tenants/{ACCOUNTS_FILE}"\n')
        self.server.start()
        self.gateway: GatewayProcess | None = None

    def create(self, name: str) -> None:
        bound = 8_000_000 if name == "acme" else None
        create_tenant(self.folder, name, [host(name)], ROLES, self.topology, bound)

    def reload(self) -> None:
        self.server.process.send_signal(signal.SIGHUP)

    def settings(self, tenant: str) -> Settings:
        key = key_file(self.folder / tenant / AUTH_FOLDER, "operator")
        return Settings(nats_url=self.server.url, nats_credentials=str(key), shards=SHARDS)

    async def provisioned(self, tenant: str) -> None:
        """Makes the tenant's streams, as soon as the server has begun with its account."""

        async def made() -> bool:
            try:
                nc = await connect(self.settings(tenant), "test")
            except SetupError:  # it has not read its file again
                return False
            try:
                return await provision(nc, self.settings(tenant)) is not None
            except SetupError:  # the port is open before JetStream is
                return False
            finally:
                await nc.close()

        await until(made)

    def start(self, folder: Path) -> None:
        base = Settings(nats_url=self.server.url, shards=SHARDS)
        environment = {"CADRE_PREFIX": base.prefix, "CADRE_TENANTS": str(self.folder)}
        self.gateway = GatewayProcess(self.server.url, folder, base, **environment)

    def admin(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.folder / tenant / ADMIN_KEY).read_text().strip()}"}

    @property
    def url(self) -> str:
        assert self.gateway is not None
        return self.gateway.url

    @asynccontextmanager
    async def world(self, tenant: str) -> AsyncIterator[World]:
        """A client of the tenant, with its administrator's key, and with its operator's at the bus."""
        nc = await connect(self.settings(tenant), "test")
        world = World(nc, await provision(nc, self.settings(tenant)), self.url)
        world.http.headers.update({"Host": host(tenant), **self.admin(tenant)})
        try:
            yield world
        finally:
            await world.http.aclose()
            await nc.close()


@pytest.fixture
async def tenancy(tmp_path: Path) -> AsyncIterator[Tenancy]:
    made = Tenancy(tmp_path)
    try:
        for name in OTHERS:
            await made.provisioned(name)
        await asyncio.to_thread(made.start, tmp_path)
        for name in OTHERS:
            async with made.world(name) as world:
                await answered(world.http, "/readyz", 200)
        yield made
    finally:
        if made.gateway is not None:
            made.gateway.kill()
        made.server.stop()


async def answered(http: httpx2.AsyncClient, path: str, status: int) -> httpx2.Response:
    """The first answer with this status."""

    async def asked() -> httpx2.Response | None:
        answer = await http.get(path)
        return answer if answer.status_code == status else None

    return await until(asked)


async def test_a_tenants_runs_are_nobody_elses(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme, tenancy.world("bolt") as bolt:
        mine, theirs = await acme.ended_run(), await bolt.ended_run()
        assert [one["id"] for one in (await acme.http.get("/v1/runs")).json()["runs"]] == [mine]
        assert [one["id"] for one in (await bolt.http.get("/v1/runs")).json()["runs"]] == [theirs]
        stats = [(await one.http.get("/v1/stats")).json()["total"]["runs"] for one in (acme, bolt)]
        assert stats == [1, 1]
        ref = await acme.blobs.put(b"the recipe" * 100)
        blob = f"/v1/blobs/{ref.removeprefix('blob:')}"
        assert (await acme.http.get(blob)).status_code == 200
        assert (await bolt.http.get(blob)).status_code == 404


async def test_every_route_says_of_anothers_run_what_it_says_of_none(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme, tenancy.world("bolt") as bolt:
        mine, nobodys = await acme.ended_run(), new_run()
        tried = 0
        for rule in rules_with([]).rules:
            if not re.search(r"\{(run|call)\}", rule.path):
                continue
            answers = []
            for run in (mine, nobodys):
                path = re.sub(r"\{(run|call)\}", run, rule.path)
                path = re.sub(r"\{\w+\}", "1", path)
                body = {"content": b"{}"} if rule.method in ("POST", "PUT", "PATCH") else {}
                answer = await bolt.http.request(rule.method, path, **body)  # type: ignore[arg-type]
                answers.append((answer.status_code, answer.json().get("code")))
            assert answers[0] == answers[1], rule
            assert answers[0][0] >= 400, rule
            tried += 1
        assert tried > 15
        assert (await acme.http.get(f"/v1/runs/{mine}")).status_code == 200, "and it is still there"


async def test_keys_and_cookies_open_one_tenant_only(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme, tenancy.world("bolt") as bolt:
        made = (await acme.http.post("/v1/keys", json={"name": "ann", "roles": ["operator"]})).json()["token"]
        for token in (made, tenancy.admin("acme")["Authorization"].removeprefix("Bearer ")):
            bearer = {"Authorization": f"Bearer {token}"}
            assert (await acme.http.get("/v1/runs", headers=bearer)).status_code == 200
            assert (await bolt.http.get("/v1/runs", headers=bearer)).status_code == 401
        page = {"Sec-Fetch-Site": "same-origin", "Authorization": f"Bearer {made}"}
        signed = await acme.http.post("/v1/session", headers=page)
        (cookie,) = re.findall(r"cadre_session=(\w+)", signed.headers["set-cookie"])
        for tenant, status in (("acme", 200), ("bolt", 401)):
            headers = {"Host": host(tenant), "Cookie": f"cadre_session={cookie}"}
            async with httpx2.AsyncClient(base_url=tenancy.url) as browser:
                assert (await browser.get("/v1/runs", headers=headers)).status_code == status
        audits = [(await one.http.get("/v1/audit")).json()["entries"] for one in (acme, bolt)]
        assert [len(entries) > 0 for entries in audits] == [True, False]


async def test_a_name_of_nobody_leads_nowhere_and_an_address_to_the_process(tenancy: Tenancy) -> None:
    async with httpx2.AsyncClient(base_url=tenancy.url) as http:
        for name in ("carl.example.com", "acme.example.com.evil.org", ""):
            answer = await http.get("/v1/runs", headers={"Host": name, **tenancy.admin("acme")})
            assert (answer.status_code, answer.json()["code"]) == (421, "unknown-host")
        ready = (await http.get("/readyz")).json()
        assert ready == {"status": "ready", "tenants": "2 of 2 ready"}
        figures = (await http.get("/metrics")).text
        assert {*re.findall(r'cadre_tenant="(\w+)"', figures)} == {*OTHERS}
        own = await http.get("/metrics", headers={"Host": host("acme"), **tenancy.admin("acme")})
        assert own.status_code == 404
        assert "bolt" not in (await http.get("/readyz", headers={"Host": host("acme")})).text


async def test_tenants_come_and_go_while_others_work(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme:
        run = new_run()
        scribe = acme.scribe(run)
        await scribe.write(scribe.accepted())
        await acme.listed(run, state="running")
        async with acme.http.stream("GET", f"/v1/runs/{run}/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines)
            tenancy.create("carl")
            tenancy.reload()
            await tenancy.provisioned("carl")
            async with tenancy.world("carl") as carl:
                await answered(carl.http, "/readyz", 200)
                empty = await carl.http.get("/v1/runs")
                assert empty.json().get("runs") == [], empty.text
                (tenancy.folder / "carl" / "tenant.yaml").unlink()
                await answered(carl.http, "/v1/runs", 421)
            await scribe.write(*[])
            async with asyncio.timeout(patience()):
                assert [line async for line in _until(lines, "id:")]


async def test_a_tenant_whose_file_changed_is_away_for_a_moment_and_never_nobody(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme:
        assert tenancy.gateway is not None
        file = tenancy.folder / "acme" / "tenant.yaml"
        file.write_text(file.read_text().replace("auth: keys", "auth: keys\n  key_rate: 1000"))
        answers: set[int] = set()
        gateway = tenancy.gateway

        async def asks() -> None:
            while gateway.log().count("tenant acme: ready") < 2:
                answers.add((await acme.http.get("/readyz")).status_code)

        async with asyncio.timeout(patience()):
            # Several, so that one asks in the milliseconds of the change as well.
            await asyncio.gather(*(asks() for _ in range(8)))
        assert answers == {200, 503}


async def test_before_the_tenants_are_read_everybody_is_told_to_come_again(tmp_path: Path) -> None:
    process = ServiceProcess("gateway", Settings(), Meters(), "", lambda reason: None)
    tenants = Tenants(tmp_path, process, BodyMemory(1_000_000))
    transport = httpx2.ASGITransport(tenants.front(tenants.dispatch))
    url = f"http://{host('acme')}"
    async with httpx2.AsyncClient(transport=transport, base_url=url) as http:
        early = await http.get("/v1/runs")
        assert (early.status_code, early.json()["code"]) == (503, "starting")
        await tenants.open()
        try:
            assert (await http.get("/v1/runs")).status_code == 421
        finally:
            await tenants.drain()


async def test_a_tenant_that_cannot_be_opened_says_by_its_code_why(tenancy: Tenancy) -> None:
    def refused(answer: httpx2.Response) -> tuple[str, str]:
        return answer.json()["code"], answer.json()["detail"]

    tenancy.create("carl")
    async with httpx2.AsyncClient(base_url=tenancy.url, headers={"Host": host("carl")}) as http:

        async def says(what: str) -> str | None:
            answer = await http.get("/v1/runs")
            code, detail = refused(answer) if answer.status_code == 503 else ("", "")
            return code if what in detail else None

        assert await until(lambda: says("carl/auth/")) == "not-set-up"
        assert str(tenancy.folder) not in (await http.get("/readyz")).text
        tenancy.reload()
        assert await until(lambda: says("run `cadre provision`")) == "not-set-up"
        await tenancy.provisioned("carl")
        await answered(http, "/readyz", 200)
        file = tenancy.folder / "carl" / "tenant.yaml"
        oidc = 'auth: oidc\n  oidc: {issuer: "http://127.0.0.1:1", client_id: c}'
        file.write_text(file.read_text().replace("auth: keys", oidc))
        wrong = "tenant carl: spec.oidc, where CADRE_OIDC_X is x: CADRE_OIDC_GRANTS is not set"
        assert await until(lambda: says(wrong)) == "not-set-up"


async def test_a_tenant_without_a_server_says_that_from_its_beginning(tenancy: Tenancy) -> None:
    assert tenancy.gateway is not None
    tenancy.gateway.kill()
    tenancy.server.kill()
    tenancy.gateway.launch()
    async with httpx2.AsyncClient(base_url=tenancy.url, headers={"Host": host("acme")}) as http:

        async def told() -> tuple[int, str] | None:
            try:
                answer = await http.get("/v1/runs")
            except httpx2.TransportError:
                return None  # not listening yet
            problem = answer.json()
            # For a moment it is starting, as it says.
            if problem["code"] == "starting":
                return None
            return answer.status_code, problem["code"]

        assert await until(told) == (503, "bus-unavailable")
        assert (await http.get("/readyz")).json()["code"] == "bus-unavailable"
        tenancy.server.start()
        await answered(http, "/readyz", 200)


async def _until(lines: AsyncIterator[str], beginning: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line.startswith(beginning):
            return


async def test_a_tenant_without_its_streams_is_told_so_and_the_other_goes_on(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme, tenancy.world("bolt") as bolt:
        for shard in range(SHARDS):
            stream = acme.topology.stream(shard)
            await jetstream.ask(acme.nc, "removing a stream", f"STREAM.DELETE.{stream}")
        lost = await answered(acme.http, "/v1/runs", 503)
        assert lost.json()["code"] == "bus-unavailable"
        await answered(acme.http, "/readyz", 503)
        assert (await bolt.http.get("/readyz")).status_code == 200
        assert await bolt.ended_run()
        async with httpx2.AsyncClient(base_url=tenancy.url) as http:
            assert (await http.get("/readyz")).json()["tenants"] == "1 of 2 ready"


async def test_a_tenant_that_fills_its_account_takes_nobody_elses_room(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme, tenancy.world("bolt") as bolt:

        async def fill() -> None:
            for _ in range(40):
                await acme.blobs.put(os.urandom(400_000))

        with pytest.raises(BusFull):
            await fill()
        for world in (acme, bolt):
            await world.registry.start()
        await bolt.announce("boss")
        task = {"agent": "boss", "task": "Go."}
        refused = await acme.http.post("/v1/runs", json=task)
        assert refused.status_code in (429, 503), refused.text
        assert "room" in refused.text or "holds" in refused.text or "storage" in refused.text, refused.text

        async def begun() -> bool:
            return (await bolt.http.post("/v1/runs", json=task)).status_code == 202

        await until(begun)
        for world in (acme, bolt):
            await world.registry.stop()


async def test_a_wrong_file_changes_nothing_and_a_host_is_one_tenants(tenancy: Tenancy) -> None:
    async with tenancy.world("acme") as acme:
        file = tenancy.folder / "acme" / "tenant.yaml"
        written = file.read_text()
        file.write_text("spec: nonsense")
        tenancy.folder.joinpath("thief").mkdir()
        thief = written.replace("name: acme", "name: thief")
        tenancy.folder.joinpath("thief", "tenant.yaml").write_text(thief)
        assert tenancy.gateway is not None
        log = tenancy.gateway.log

        async def told() -> bool:
            return {"tenant acme: ", "tenant thief: "} <= _beginnings(log())

        await until(told)
        assert str(host("acme")) in tenancy.gateway.log()
        assert await acme.ended_run()


def _beginnings(log: str) -> set[str]:
    return {*re.findall(r"ERROR cadre.gateway: (tenant \w+: )", log)}
