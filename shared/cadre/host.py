"""An agent as a process: its inbox consumers, its runner, its card in the registry."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from cadre.adapters.nats_interrupts import hear_interrupts
from cadre.adapters.nats_queue import Delivery, Queue
from cadre.adapters.nats_registry import HEARTBEAT
from cadre.adapters.openai_model import OpenAIModel
from cadre.agent_file import read_agent
from cadre.cli.exits import Failure
from cadre.cli.state import find_nats
from cadre.clock import SystemClock
from cadre.errors import RetryableError, SetupError, TerminalError
from cadre.health import AsgiApp
from cadre.loop.offer import Offer, offer_of
from cadre.messages import AgentCard, ErrorInfo, Report, Task
from cadre.ports import Model
from cadre.prompting import Prompts
from cadre.runner import Runner, World
from cadre.service import Platform, run
from cadre.settings import Settings, read_model_settings, read_settings
from cadre.specs import AgentSpec, Selector
from cadre.subjects import parent_of, report_id
from cadre.wire import unpack_record

log = logging.getLogger("cadre.agent")

POISON_AFTER = 5
"""Deliveries after which a record is held to be what kills its workers."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 8.0

T = TypeVar("T")


def serve(
    spec: AgentSpec | Path | str, settings: Settings | None = None, *, model: Model | None = None
) -> None:
    """Serves an agent until the process is told to stop; without `settings` with those of the environment and,
    where that names no NATS server, at the one of the `cadre up` of the current folder.

    `model` replaces the OpenAI-compatible endpoint of the spec. Raises SystemExit with the documented exit
    code, behind one line on stderr, when it cannot start: a script that calls it ends as `cadre agent` does.
    """
    try:
        if settings is None:
            find_nats()
            settings = read_settings()
        agent = spec if isinstance(spec, AgentSpec) else read_agent(Path(spec))
        prompts = Prompts.load(agent.prompts or agent.kind)
    except (SetupError, Failure) as error:
        print(f"cadre: {error}", file=sys.stderr)
        raise SystemExit(2) from error

    async def start(platform: Platform) -> AgentHost:
        host = AgentHost(agent, prompts, platform, model)
        await host.start()
        return host

    status = run(f"agent {agent.name}", settings, start)
    if status:
        raise SystemExit(status)


def card_of(spec: AgentSpec) -> AgentCard:
    return AgentCard(
        name=spec.name,
        description=spec.description,
        kind=spec.kind,
        labels=spec.labels,
        version=spec.version,
        tools=spec.tools,
        team=[str(member) if isinstance(member, Selector) else member for member in spec.team],
    )


class AgentHost:
    """service.Part of an agent."""

    app: AsgiApp | None = None

    def __init__(self, spec: AgentSpec, prompts: Prompts, platform: Platform, model: Model | None) -> None:
        self._spec = spec
        self._platform = platform
        self._registry = platform.registry
        self._offer = Offer()
        self._offer_version = -1
        self._asks_endpoint = model is None
        self._own_model = OpenAIModel(spec.model, read_model_settings(), platform.blobs)
        self._runner = Runner(
            spec,
            prompts,
            World(platform.journal, platform.bus, model or self._own_model, SystemClock()),
            self._current_offer,
        )
        topology = platform.topology
        self._queues = [
            Queue(
                platform.nc,
                topology.stream(shard),
                topology.agent_consumer(spec.name),
                topology.inbox_filter(shard, spec.name),
                self._on_delivery,
                credit=max(1, platform.settings.concurrency // topology.shards),
            )
            for shard in range(topology.shards)
        ]

    async def start(self) -> None:
        await hear_interrupts(self._platform.nc, self._platform.topology, self._runner.interrupt)
        if self._asks_endpoint and (lack := self._own_model.missing()) is not None:
            log.warning("%s: every run will fail: %s", self._spec.name, lack)
        await self._registry.announce([self._platform.presence(agent=card_of(self._spec))])
        await self._team_found()
        for queue in self._queues:
            await queue.start()

    async def _team_found(self) -> None:
        """After an outage everybody comes back at once: runs in waiting should not be offered half a team."""
        try:
            async with asyncio.timeout(HEARTBEAT + 0.5):
                while self._current_offer().missing:
                    await self._registry.changed()
        except TimeoutError:
            missing = ", ".join(self._current_offer().missing)
            log.warning("%s begins without %s, which no live service offers", self._spec.name, missing)

    def unready(self) -> str | None:
        return None

    async def drain(self, grace: float) -> None:
        await asyncio.gather(*(queue.drain(grace) for queue in self._queues))
        await self._own_model.close()

    def _current_offer(self) -> Offer:
        if self._offer_version != self._registry.version:
            self._offer_version = self._registry.version
            self._offer = offer_of(self._spec, self._registry.presences())
        return self._offer

    async def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.deliveries > POISON_AFTER:
            await self._give_up(delivery)
            return
        try:
            record = await _patiently(lambda _: unpack_record(delivery.data, self._platform.blobs))
            if await _patiently(
                lambda tries: self._runner.handle(record, delivery.deliveries + tries, delivery.seq)
            ):
                await delivery.ack()
        except TerminalError as error:
            log.error("dead letter %s: %s", delivery.subject, error)
            await self._tell_whoever_waits(delivery, str(error))
            await delivery.term(str(error))

    async def _tell_whoever_waits(self, delivery: Delivery, why: str) -> None:
        """A task that cannot be read begins no run, but its manager waits for a Report all the same."""
        topology = self._platform.topology
        tree, run_id = topology.parse(delivery.subject)
        parent = parent_of(run_id)
        if parent is None or await self._platform.journal.read(tree, run_id):
            return
        report = Report(
            id=report_id(run_id),
            tree=tree,
            run=parent,
            at=time.time(),
            child=run_id,
            agent=self._spec.name,
            state="error",
            error=ErrorInfo("Poisoned", f"the task could not be read: {why}"),
        )
        await self._platform.bus.send(report, self._spec.name, to=topology.sender(delivery.subject))

    async def _give_up(self, delivery: Delivery) -> None:
        tree, run_id = self._platform.topology.parse(delivery.subject)
        try:
            record = await unpack_record(delivery.data, self._platform.blobs)
        except TerminalError:
            record = None  # it may be the very reason: the run ends without it
        task = record if isinstance(record, Task) else None
        record_id = record.id if record is not None else f"poison:{delivery.seq}"
        try:
            await self._runner.poison(record_id, tree, run_id, delivery.deliveries, task)
        except TerminalError as error:
            log.error("run %s cannot be ended: %s", run_id, error)
        why = f"delivered {delivery.deliveries} times and never handled to the end"
        if record is None:
            await self._tell_whoever_waits(delivery, why)
        await delivery.term(why)


async def _patiently(attempt: Callable[[int], Awaitable[T]]) -> T:
    """A bus that fails is waited for here, so that deliveries count crashes and nothing else.

    `attempt` is told how often it has failed before.
    """
    tries, pause = 0, _FIRST_PAUSE
    while True:
        try:
            return await attempt(tries)
        except RetryableError as error:
            log.warning("%s; trying again in %.1f s", error, pause)
            await asyncio.sleep(pause)
            tries, pause = tries + 1, min(2 * pause, _LONGEST_PAUSE)
