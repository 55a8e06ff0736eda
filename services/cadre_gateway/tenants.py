"""Serve several NATS accounts from one gateway process, each by its own host names: a tenant for each file in the
folder, opened, kept open, opened again when its account was lost, closed when its file is gone."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import Headers

from cadre.adapters.oidc import OidcSettings, check_packages
from cadre.deploy import nats_files
from cadre.deploy.tenants import (
    ADMIN_KEY,
    AUTH_FOLDER,
    CARD_KEY,
    SECRETS_FOLDER,
    TenantSpec,
    read_tenant,
    tenants_in,
)
from cadre.errors import CadreError, NotPermitted, RetryableError, SettingError, SetupError, SpecError
from cadre.service.health import AsgiApp, Unready, send_problem, with_health
from cadre.service.served import ServedAccount, ServiceProcess
from cadre.settings import AccessSettings, Settings, read_gateway_path
from cadre.spec.names import NAME
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.access.gate import host_name, is_private_name
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.index.database.settings import IndexSettings
from cadre_gateway.requests.body import BodyMemory
from cadre_gateway.requests.problems import as_problem
from cadre_gateway.wiring import GatewayOptions, start

RETRY_SECONDS = 10.0
"""Seconds after which a tenant that could not be opened, or was lost, is opened again."""

_CLIENT_SECRET = "CADRE_OIDC_CLIENT_SECRET"


class _Trouble(NamedTuple):
    """The reason why a tenant is not served."""

    code: str
    what: str


class Tenant:
    """A tenant of this process, in its own task from `begin` to `end`."""

    def __init__(self, folder: Path, spec: TenantSpec, process: ServiceProcess, bodies: BodyMemory) -> None:
        self.name, self.spec = folder.name, spec
        self._folder = folder
        self._process = process
        self._bodies = bodies
        self._served: ServedAccount | None = None
        self._trouble = _Trouble("starting", "starting")
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.answer = with_health(self._dispatch, self.unready, self.about)
        """Answers requests by one of its names."""

    def begin(self) -> None:
        """Has it opened, and kept open."""
        self._task = asyncio.create_task(self._keep_open(), name=f"tenant {self.name}")
        self._task.add_done_callback(self._tell_of_failure)

    async def end(self) -> None:
        """Drain and close it."""
        self._ending.set()
        if self._task is not None:
            await self._task

    def unready(self) -> Unready | None:
        """Return what is missing; None when it can work."""
        return self._served.unready() if self._served is not None else Unready(*self._trouble)

    def about(self) -> dict[str, str]:
        """Return what it works without."""
        return self._served.about() if self._served is not None else {}

    async def samples(self) -> list[Sample]:
        """Return its figures. Raises CadreError."""
        return await self._served.samples() if self._served is not None else []

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        if self._served is None:
            code, what = self._trouble
            await send_problem(send, 503, code, f"this tenant cannot be served now: {what}")
        else:
            await self._served.dispatch(scope, receive, send)

    def _tell_of_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._trouble = _Trouble("internal", "this process must be started again")
            log.critical("tenant %s has stopped: %s", self.name, self._trouble.what, exc_info=error)

    async def _keep_open(self) -> None:
        while not self._ending.is_set():
            lost = asyncio.Event()
            try:
                await self._serve(lost)
            except (CadreError, OSError) as error:
                what = " ".join(str(error).split())
                log.error("tenant %s cannot be served: %s", self.name, what)
                # Everyone may read this: it does not say where the folder is on this machine.
                self._trouble = _Trouble(_code(error), what.replace(f"{self._folder.parent}{os.sep}", ""))
            if not self._ending.is_set():
                await _first(self._ending.wait(), asyncio.sleep(RETRY_SECONDS))

    async def _serve(self, lost: asyncio.Event) -> None:
        def give_up(reason: str) -> None:
            log.error("tenant %s: the connection to NATS was closed for good (%s)", self.name, reason)
            self._trouble = _Trouble("bus-unavailable", "the connection to NATS was closed for good")
            lost.set()

        settings = self._settings()
        served = ServedAccount(
            self._process._replace(name=f"gateway of {self.name}", settings=settings, give_up=give_up),
            partial(start, self._options()),
        )
        opening = asyncio.ensure_future(served.open())
        self._served = served  # which says itself what it waits for while it is opened
        try:
            await _first(opening, self._ending.wait(), lost.wait())
            if opening.done():
                opening.result()
                log.info("tenant %s: ready", self.name)
                await _first(self._ending.wait(), lost.wait())
        finally:
            self._served = None
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await served.drain()
            await served.close()

    def _settings(self) -> Settings:
        keep = self.spec.keep_days
        key = nats_files.key_file(self._folder / AUTH_FOLDER, "gateway")
        # It is opened again and again, and says meanwhile what is missing.
        changed = {"nats_credentials": str(key), "setup_seconds": 0.0} | ({} if keep is None else {"keep_days": keep})
        return msgspec.structs.replace(self._process.settings, **changed)

    def _options(self) -> GatewayOptions:
        # Nothing of these may come from the environment of the process: it is all tenants'.
        access = AccessSettings(
            auth=self.spec.auth,
            admin_key=_text(self._folder / ADMIN_KEY),
            allowed_hosts=",".join(self.spec.hosts),
            key_rate=self.spec.key_rate,
        )
        oidc = self._oidc() if self.spec.oidc is not None else None
        index = IndexSettings.of_tenant(self.name)
        return GatewayOptions(access, oidc, index, self._bodies, self._cards(), self._secret)

    def _cards(self) -> CardSettings:
        key = self._folder / CARD_KEY
        return (
            CardSettings(key=str(key), url=f"https://{self.spec.hosts[0]}{read_gateway_path()}")
            if key.exists()
            else CardSettings()
        )

    def _oidc(self) -> OidcSettings:
        check_packages()
        given = dict(self.spec.oidc or {})
        if "grants" in given and not isinstance(given["grants"], str):
            given["grants"] = msgspec.json.encode(given["grants"]).decode()
        try:
            found = msgspec.convert({**given, "client_secret": self._secret(_CLIENT_SECRET)}, OidcSettings)
            found.read_grants()
        except msgspec.ValidationError as error:
            raise SettingError(f"tenant {self.name}: spec.oidc: {error}") from error
        except SettingError as error:
            # It names variables, which are not read for a tenant.
            raise SettingError(f"tenant {self.name}: spec.oidc, where CADRE_OIDC_X is x: {error}") from error
        return found

    def _secret(self, variable: str) -> str:
        return _text(self._folder / SECRETS_FOLDER / variable) if NAME.fullmatch(variable) else ""


def _code(error: CadreError | OSError) -> str:
    """Return the code of the problem by which requests are refused while the tenant cannot be opened for this
    reason."""
    match error:
        case NotPermitted():
            return "not-permitted"
        case RetryableError():
            return as_problem(error).code
        case _:
            return "not-set-up"


def _text(file: Path) -> str:
    """Return the content of a file; "" without one."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


async def _first(*waits: Any) -> None:
    """Return when the first of them has; the others are cancelled, unless they are futures of another caller."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, given in zip(tasks, waits, strict=True):
            if task is not given:
                task.cancel()


log = logging.getLogger("cadre.gateway")

LOOK_SECONDS = 5.0


class Tenants:
    """The tenants that the process serves (`cadre.service.served.Serving`): a request goes to the tenant of the name
    that it is sent to."""

    def __init__(self, folder: Path, process: ServiceProcess, bodies: BodyMemory) -> None:
        self._folder = folder
        self._process = process
        self._bodies = bodies
        self._tenants: dict[str, Tenant] = {}
        self._by_host: dict[str, Tenant] = {}
        self._wrong: dict[str, str] = {}
        """The errors in files that could not be taken, by tenant."""
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to serve all tenants. Raises SetupError if the path is not a folder."""
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
        lacks = [missing for missing in found.values() if missing is not None]
        codes = {missing.code for missing in lacks}
        code = codes.pop() if len(codes) == 1 else "no-tenant"
        return Unready(code, "no tenant can be served", all(missing.is_shared for missing in lacks))

    def about(self) -> dict[str, str]:
        """Return how many of them can work."""
        ready = sum(one.unready() is None for one in self._tenants.values())
        return {"tenants": f"{ready} of {len(self._tenants) + len(self._wrong)} ready"}

    async def samples(self) -> list[Sample]:
        """Return the figures of all of them, each with its tenant's name."""
        found = []
        for one in list(self._tenants.values()):
            try:
                samples = await one.samples()
            except CadreError as error:
                log.warning("the figures of tenant %s cannot be read: %s", one.name, error)
                continue
            found += [sample._replace(attributes={**sample.attributes, names.TENANT: one.name}) for sample in samples]
        return found

    def front(self, app: AsgiApp) -> AsgiApp:
        """Return an app that routes each request by its host name: a tenant's names lead only to that tenant, and `app`
        answers callers that use the address of the process."""

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
        """Refuse requests to unknown names, and all requests until the names are known."""
        if self._looking is None:
            await send_problem(send, 503, "starting", f"the tenants in {self._folder.name} are not read yet")
            return
        host = Headers(scope=scope).get("host", "")
        await send_problem(send, 421, "unknown-host", f"no tenant here has the name {host!r}")

    async def drain(self) -> bool:
        """End the work of all tenants."""
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*(one.end() for one in self._tenants.values()))
        return True

    async def close(self) -> None:
        """Close nothing: each tenant closes its own connection."""

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except OSError as error:
                log.warning("the tenants in %s cannot be read: %s", self._folder, error)

    async def _look(self) -> None:
        """Begin, end and changes tenants as their files say; one whose file is wrong stays as it was."""
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
                wrong[name] = f"{taken[0]} is the host of {self._by_host[taken[0]].name}: name it in one of them"
                continue
            self._begin(name, spec)
        for name, what in wrong.items():
            if self._wrong.get(name) != what:
                log.error("tenant %s: %s", name, what)
        self._wrong = {name: what for name, what in wrong.items() if name not in self._tenants}

    def _read(self) -> dict[str, TenantSpec | str]:
        """Return the tenants by name, or what is wrong with their files."""
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
        # A tenant that restarts keeps its names until then: it is away, and no other tenant has them.
        self._forget_hosts(tenant)

    def _forget_hosts(self, tenant: Tenant) -> None:
        self._by_host = {host: one for host, one in self._by_host.items() if one is not tenant}
