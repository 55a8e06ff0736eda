"""The operator's loop: what changes is watched by kopf, and its namespace is brought up to date."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import httpx2
import kopf
import uvicorn

from cadre.deploy.k8s.manifest import MANAGED_BY, PART_OF
from cadre.deploy.k8s.object_kinds import GROUP, OBJECT_KINDS, VERSION
from cadre.errors import CadreError
from cadre.service.frame import HttpServer
from cadre.service.health import Unready, send_problem, with_health
from cadre_operator.cluster import MANAGER, ApiError, login
from cadre_operator.reconcile import VALUES_MAP, Reconciler

RESYNC_SECONDS = 300.0
"""Every namespace is looked at so often, whether or not something has changed there."""

_GATHER_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 60.0
_PASSING = (ApiError, CadreError, httpx2.HTTPError)

_logger = logging.getLogger(__name__)


class Operator:
    """Watches namespaces, all unless some are named, and reconciles those where something has changed."""

    def __init__(self, reconciler: Reconciler, namespaces: Sequence[str]) -> None:
        self._reconciler = reconciler
        self._namespaces = namespaces
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._known: set[str] = set(namespaces)
        self._pauses: dict[str, float] = {}
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By namespace: of its rounds one is at work, and at most one waits."""
        self._gateways: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._gateway_pauses: dict[str, float] = {}
        self._unseen: set[str] | None = None
        """Namespaces that were there when it began, and that it has not looked at; None before they are known."""
        self._settling: asyncio.TaskGroup
        self._own: list[asyncio.Task[None]] = []

    def unready(self) -> Unready | None:
        """Return why its statuses may be those of an operator before it."""
        if self._unseen is None:
            return Unready("starting", "the namespaces are not known yet")
        if self._unseen:
            return Unready("starting", f"not looked at yet: {', '.join(sorted(self._unseen))}")
        return None

    async def run(self, host: str, port: int) -> None:
        """Run until SIGTERM or SIGINT. `port` is that of its probes; 0: it answers none."""
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        for kind, selector in (
            ("deployments", f"{MANAGED_BY}={MANAGER}"),
            ("jobs", f"{MANAGED_BY}={MANAGER}"),
            ("secrets", f"{MANAGED_BY}={MANAGER}"),
            ("pods", f"{PART_OF}=cadre"),
        ):
            settings.watching.label_selectors[kind] = selector
        settings.watching.field_selectors["configmaps"] = f"metadata.name={VALUES_MAP}"
        watching = asyncio.create_task(
            kopf.operator(
                registry=self._registry(),
                settings=settings,
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
            )
        )
        self._own = [asyncio.create_task(self._work()), asyncio.create_task(self._resync())]
        tasks = [watching, *self._own, *([asyncio.create_task(self._probes(host, port))] if port else [])]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for one in ended:
            if isinstance(one, Exception):
                raise one

    async def _probes(self, host: str, port: int) -> None:
        app = with_health(_no_page, self.unready)
        settings = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off")
        await HttpServer(settings).serve()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(login)
        kopf.on.cleanup(registry=registry)(self._end)
        for one in OBJECT_KINDS:
            kopf.on.event(GROUP, VERSION, one.plural, registry=registry)(self._hear)
        for group, version, plural in (
            ("apps", "v1", "deployments"),
            ("batch", "v1", "jobs"),
            ("", "v1", "configmaps"),
            # Who deletes a key gets a new one.
            ("", "v1", "secrets"),
            # Why a pod does not come up, its Deployment does not say.
            ("", "v1", "pods"),
            ("autoscaling", "v2", "horizontalpodautoscalers"),
        ):
            kopf.on.event(group, version, plural, registry=registry)(self._hear)
        return registry

    async def _end(self, **_: Any) -> None:
        """End all rounds: kopf waits for tasks that are left, and fails with the errors that they have meanwhile."""
        for task in self._own:
            task.cancel()
        await asyncio.gather(*self._own, return_exceptions=True)

    async def _hear(self, namespace: str | None, **_: Any) -> None:
        if namespace is not None:
            self._add(namespace)

    def _add(self, namespace: str) -> None:
        self._known.add(namespace)
        if namespace not in self._waiting:
            self._waiting.add(namespace)
            self._changed.put_nowait(namespace)

    async def _resync(self) -> None:
        self._known |= await self._used()
        self._unseen = {*self._known}
        while True:
            for namespace in sorted(self._known):
                self._add(namespace)
            await asyncio.sleep(RESYNC_SECONDS)

    async def _used(self) -> set[str]:
        """Return the namespaces that it acts on and that have objects."""
        while not self._namespaces:
            try:
                return await self._reconciler.namespaces()
            except _PASSING as error:
                _logger.warning("namespaces: %s; tried again in 1 s", error)
                await asyncio.sleep(1)
        return {*self._namespaces}

    async def _work(self) -> None:
        """Bring each namespace that has changed up to date; those of several namespaces are at work together."""
        async with asyncio.TaskGroup() as rounds:
            self._settling = rounds
            while True:
                namespace = await self._changed.get()
                rounds.create_task(self._round(namespace), name=f"round of {namespace}")

    async def _round(self, namespace: str) -> None:
        await asyncio.sleep(_GATHER_SECONDS)  # several objects are mostly applied together
        async with self._one_by_one[namespace]:
            self._waiting.discard(namespace)
            try:
                is_used = await self._reconciler.reconcile(namespace)
            except _PASSING as error:
                self._again(namespace, self._pauses, error)
            else:
                self._pauses.pop(namespace, None)
                self._settling.create_task(self._settle(namespace), name=f"gateway of {namespace}")
                if not is_used and namespace not in (*self._namespaces, *self._waiting):
                    self._known.discard(namespace)  # until something is heard of it
            if self._unseen:
                self._unseen.discard(namespace)  # one that cannot be brought up to date stops no other

    async def _settle(self, namespace: str) -> None:
        """Bring the namespace's gateway up to date: no round waits for it."""
        async with self._gateways[namespace]:
            try:
                await self._reconciler.settle(namespace)
            except _PASSING as error:
                self._again(namespace, self._gateway_pauses, error)
            else:
                self._gateway_pauses.pop(namespace, None)

    def _again(self, namespace: str, pauses: dict[str, float], error: Exception) -> None:
        pause = pauses[namespace] = min(pauses.get(namespace, 0.5) * 2, _MOST_PAUSE_SECONDS)
        _logger.warning("%s: %s; tried again in %g s", namespace, error, pause)
        asyncio.get_running_loop().call_later(pause, self._add, namespace)


async def _no_page(scope: Any, receive: Any, send: Any) -> None:
    await send_problem(send, 404, "not-found", "the operator answers at /healthz and /readyz")
