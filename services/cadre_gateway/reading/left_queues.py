"""The queues that services have left behind: which there are, and their removal, on demand or an hour after the service
was retired."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from cadre.adapters.nats.queues.left_queues import LeftQueue, NatsLeftQueues
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.api.directory import ServiceQueue
from cadre.ports import Clock
from cadre_gateway.requests.problems import Problem

log = logging.getLogger("cadre.janitor")

RETIRED_SECONDS = 3600.0
"""Seconds that a retired service keeps its queue: it may have been retired by mistake, and its pods may still end."""

State = Literal["served", "away", "rollout", "retired", "forgotten"]


class LeftQueues:
    """The queues of a deployment, and the services that are known to serve them. Every method raises BusUnavailable."""

    def __init__(
        self,
        queues: NatsLeftQueues,
        registry: NatsRegistry,
        clock: Clock,
        retire: Callable[[ServiceKey], Awaitable[None]],
    ) -> None:
        self._queues = queues
        self._registry = registry
        self._clock = clock
        self._retire = retire

    async def list(self) -> list[ServiceQueue]:
        """Return all queues, by kind and name."""
        return [
            ServiceQueue(
                kind=service.kind,  # type: ignore[arg-type]  # a literal of the adapter's
                name=service.name,
                state=self._state(service, queue),
                waiting=queue.waiting,
            )
            for service, queue in sorted((await self._queues.states()).items())
        ]

    async def remove(self, service: ServiceKey) -> None:
        """Remove a queue that nothing serves. Raises Problem: it does not exist, or it is in use."""
        queue = (await self._queues.states()).get(service)
        if queue is None:
            raise Problem(
                404,
                "unknown-queue",
                f"no {service.kind} {service.name!r} has a queue: `cadre sweep --dry-run` lists what is left behind",
            )
        if (state := self._state(service, queue)) not in ("retired", "forgotten"):
            raise _in_use(service, f"it is {state}: `cadre retire {service.name}` first, and stop its processes")
        if state == "forgotten":
            await self._retire(service)
        if queue.waiting or not await self._queues.remove(service):
            raise _in_use(
                service,
                f"{queue.waiting} messages wait in it or are in hand: serve them, or cancel their runs"
                if queue.waiting
                else "somebody has begun to serve it",
            )

    async def sweep(self) -> None:
        """Remove the empty queues of services that were retired an hour ago or earlier."""
        before = self._clock.now() - RETIRED_SECONDS
        due = {service for service, at in self._registry.retired().items() if at <= before}
        if not due:
            return
        for service, queue in (await self._queues.states()).items():
            is_left = service in due and self._state(service, queue) == "retired" and not queue.waiting
            if is_left and await self._queues.remove(service):
                log.info("the queue of %s %s is removed: the service was retired", *service[:2])

    def _state(self, service: ServiceKey, queue: LeftQueue) -> State:
        known = self._registry.absences()
        if queue.is_pulled or (service in known and known[service] is None):
            return "served"
        if service in known:
            return "away"
        if service.kind == "agent" and self._registry.rollout(service.name) is not None:
            return "rollout"
        return "retired" if service in self._registry.retired() else "forgotten"


def _in_use(service: ServiceKey, why: str) -> Problem:
    return Problem(409, "queue-in-use", f"the queue of {service.kind} {service.name} stays: {why}")
