"""All tenants of a process: those that have a file in the folder, looked at again every few seconds."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers

from cadre.deploy.tenants import TenantSpec, read_tenant, tenants_in
from cadre.errors import CadreError, SetupError, SpecError
from cadre.service.health import AsgiApp, Unready, send_problem
from cadre.service.served import ServiceProcess
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.access.gate import host_name, is_private_name
from cadre_gateway.requests.body_memory import BodyMemory
from cadre_gateway.tenants.tenant import Tenant

log = logging.getLogger("cadre.gateway")

LOOK_SECONDS = 5.0


class Tenants:
    """What the process serves (`cadre.service.served.Serving`): the tenant of the name that a request is sent to."""

    def __init__(self, folder: Path, process: ServiceProcess, bodies: BodyMemory) -> None:
        self._folder = folder
        self._process = process
        self._bodies = bodies
        self._tenants: dict[str, Tenant] = {}
        self._by_host: dict[str, Tenant] = {}
        self._wrong: dict[str, str] = {}
        """What is wrong with files that could not be taken, by tenant."""
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begins to serve all tenants. Raises SetupError for a folder that is none."""
        if not self._folder.is_dir():
            raise SetupError(f"CADRE_TENANTS={self._folder} is no folder: `cadre tenant create` makes it")
        await self._look()
        self._looking = asyncio.create_task(self._look_again(), name="tenants")

    def unready(self) -> Unready | None:
        """None when one tenant at least can work."""
        found = {one.name: one.unready() for one in self._tenants.values()}
        if any(missing is None for missing in found.values()):
            return None
        if not found:
            return Unready("no-tenant", f"there is no tenant in {self._folder}")
        codes = {missing.code for missing in found.values() if missing is not None}
        return Unready(codes.pop() if len(codes) == 1 else "no-tenant", "no tenant can be served")

    def about(self) -> dict[str, str]:
        """How many of them can work."""
        ready = sum(one.unready() is None for one in self._tenants.values())
        return {"tenants": f"{ready} of {len(self._tenants) + len(self._wrong)} ready"}

    async def samples(self) -> list[Sample]:
        """The figures of all of them, each with its tenant's name."""
        found = []
        for one in list(self._tenants.values()):
            try:
                samples = await one.samples()
            except CadreError as error:
                log.warning("the figures of tenant %s cannot be read: %s", one.name, error)
                continue
            found += [
                sample._replace(attributes={**sample.attributes, names.TENANT: one.name})
                for sample in samples
            ]
        return found

    def front(self, app: AsgiApp) -> AsgiApp:
        """A tenant's names lead to it alone: what `app` tells of the process is for who asks it by its address."""

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            name = host_name(Headers(scope=scope)) if scope["type"] == "http" else ""
            if (tenant := self._by_host.get(name)) is not None:
                await tenant.answer(scope, receive, send)
            elif is_private_name(name):
                await app(scope, receive, send)
            else:
                await self.dispatch(scope, receive, send)

        return answer

    async def dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuses what is sent to a name of nobody, and all while it is not known whose names there are."""
        if self._looking is None:
            await send_problem(send, 503, "starting", f"the tenants in {self._folder.name} are not read yet")
            return
        host = Headers(scope=scope).get("host", "")
        await send_problem(send, 421, "unknown-host", f"nobody is served here by the name {host!r}")

    async def drain(self) -> bool:
        """Ends the work of all tenants."""
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*(one.end() for one in self._tenants.values()))
        return True

    async def close(self) -> None:
        """Nothing is left: each tenant lets go of its own connection."""

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except OSError as error:
                log.warning("the tenants in %s cannot be read: %s", self._folder, error)

    async def _look(self) -> None:
        """Begins, ends and changes tenants as their files say; one whose file is wrong stays as it was."""
        specs = await asyncio.to_thread(self._read)
        for name in [*self._tenants]:
            spec = specs.get(name)
            if isinstance(spec, TenantSpec) and spec == self._tenants[name].spec:
                continue
            if spec is None or isinstance(spec, TenantSpec):
                await self._end(name, is_gone=spec is None)
        wrong = {name: found for name, found in specs.items() if isinstance(found, str)}
        for name, spec in sorted(specs.items()):
            if isinstance(spec, str) or name in self._tenants:
                continue
            taken = [host for host in spec.hosts if host in self._by_host]
            if taken:
                wrong[name] = (
                    f"{taken[0]} is the host of {self._by_host[taken[0]].name}: name it in one of them"
                )
                continue
            self._begin(name, spec)
        for name, what in wrong.items():
            if self._wrong.get(name) != what:
                log.error("tenant %s: %s", name, what)
        self._wrong = {name: what for name, what in wrong.items() if name not in self._tenants}

    def _read(self) -> dict[str, TenantSpec | str]:
        """The tenants by name, or what is wrong with their files."""
        found: dict[str, TenantSpec | str] = {}
        for folder in tenants_in(self._folder):
            try:
                found[folder.name] = read_tenant(folder)
            except SpecError as error:
                found[folder.name] = str(error)
        return found

    def _begin(self, name: str, spec: TenantSpec) -> None:
        tenant = self._tenants[name] = Tenant(self._folder / name, spec, self._process, self._bodies)
        self._by_host |= dict.fromkeys(spec.hosts, tenant)
        tenant.begin()

    async def _end(self, name: str, *, is_gone: bool) -> None:
        tenant = self._tenants.pop(name)
        if is_gone:
            self._forget_hosts(tenant)
        log.info("tenant %s: ended", name)
        await tenant.end()
        # One that begins anew answers by its names until then: it is away, and nobody else's.
        self._forget_hosts(tenant)

    def _forget_hosts(self, tenant: Tenant) -> None:
        self._by_host = {host: one for host, one in self._by_host.items() if one is not tenant}
