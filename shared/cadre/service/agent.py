"""Run agents as a process: their inbox consumers, their runners, their cards in the registry, their calls' queues."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from cadre.adapters.local_stack import find_nats, model_settings
from cadre.adapters.models.model_chain import ModelChain
from cadre.adapters.nats.bus import hear_interrupts
from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.effects import NatsEffects, NatsTallies
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.queues.consumers import NatsQueuedCalls
from cadre.adapters.nats.queues.queue import Queue, ShardQueues
from cadre.adapters.nats.registry import HEARTBEAT_SECONDS, NatsRegistry
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.authoring import AgentDefinition, spec_of
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.engine.budget import least_tokens
from cadre.engine.chat import Transcript, base_tokens
from cadre.engine.context.context_budget import room
from cadre.engine.kind import to_begin
from cadre.engine.toolset import called_tools, card_of, toolset_of
from cadre.errors import CommandFailed, SetupError
from cadre.journal.arrivals import Arrival, Toolset
from cadre.journal.events import ModelCalled
from cadre.journal.run import Run
from cadre.loop.decide import decide
from cadre.options import explained_function
from cadre.ports import CallQueue, Model
from cadre.prompting.prompts import Prompts, prompts_for
from cadre.protocol.cards import Presence
from cadre.protocol.messages import Task
from cadre.protocol.rollout import Rollout
from cadre.runtime.away_calls import AwayBound, AwayCalls
from cadre.runtime.inbox import EarlyCancels, Inbox
from cadre.runtime.journaling import World
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from cadre.service.frame import run
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.service.revision import RevisionSlots, blob_ref, differing_replicas, revision_of
from cadre.service.tested_models import doubtful_calls, with_tested_calls
from cadre.settings import ModelSettings, Settings, read_settings
from cadre.spec.agent import AgentSpec, MemorySpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.prices import Prices
from cadre.telemetry.logs import AGENT_AT_WORK
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters, Sample

log = logging.getLogger("cadre.agent")


Served = AgentDefinition | AgentSpec | Path | str
"""An agent that Python describes, or the path of an agent file."""


@partial(
    explained_function,
    host="the gateway, another process, has the address: `cadre up`",
    port="the gateway, another process, has the address: `cadre up`",
    tools="`cadre tools FILE` serves tools, `cadre up FILE.py` agents and tools",
    reload="`cadre up FILE.py --reload`",
)
def serve(*agents: Served | Sequence[Served], settings: Settings | None = None, model: Model | None = None) -> None:
    """Serve one agent or several until the process is stopped.

    `cadre tools` serves their tools; `cadre up FILE.py` serves both.

    Args:
        agents: Agents, specs, or paths of agent files, one by one or as a list.
        settings: By default those of the environment; if it names no NATS server, that of the `cadre up` of this
            folder.
        model: An object with `complete` that answers in place of the endpoints of the specs.

    Raises:
        SystemExit: It cannot start. One line on stderr says why, and the exit code is that of `cadre agent`.

    Examples:
        >>> from cadre import Agent
        >>> writer = Agent("writer", instructions="Write reports.", model="gpt-4o-mini")
        >>> serve(writer)  # doctest: +SKIP
    """
    try:
        if settings is None:
            find_nats()
            settings = read_settings()
        endpoint = model_settings()  # says now what is wrong with it
        given = [one for some in agents for one in (some if isinstance(some, list | tuple) else [some])]
        specs = [with_tested_calls(_checked(one, model), endpoint) for one in given]
        _check_names(specs)
        prompts = [prompts_for(spec) for spec in specs]
    except (SetupError, CommandFailed) as error:
        print(f"cadre: {error}", file=sys.stderr)
        raise SystemExit(2) from error

    async def start(platform: Platform) -> AgentHosts:
        made = zip(specs, prompts, strict=True)
        hosts = AgentHosts(platform, [AgentHost(agent, own, platform, model, model_settings) for agent, own in made])
        await hosts.start()
        return hosts

    noun = "agent" if len(specs) == 1 else "agents"
    own_names = [spec.name for spec in specs]
    status = run(f"{noun} {', '.join(own_names)}", settings, start, own_names)
    if status:
        raise SystemExit(status)


def _checked(agent: Any, model: Model | None) -> AgentSpec:
    """Return the agent of a file, or one made in Python: checked once more, as its lists may have been changed."""
    if isinstance(agent, AgentDefinition) and agent.model is not None and model is None:
        raise SetupError("its model is a test double: name a model, or pass serve(…, model=…)", agent=agent.name)
    if isinstance(agent, AgentDefinition | AgentSpec):
        return spec_of(agent)
    if isinstance(agent, Path | str):
        return read_agent(Path(agent))
    raise SetupError(f"serve takes agents and files of agents, not {type(agent).__name__} {agent!r}")


def _check_names(agents: Sequence[AgentSpec]) -> None:
    names = [agent.name for agent in agents]
    if not names:
        raise SetupError("no agent to serve: name at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SetupError(f"agent {twice[0]} is named twice: a second replica is a second process")


def tight_context(spec: AgentSpec, prompts: Prompts) -> str | None:
    """Return what to do about prompts that leave the agent's work less than half of its model's context; None when
    they do."""
    fixed, most = base_tokens(to_begin(spec), prompts), room(spec)
    if 2 * fixed <= most:
        return None
    hint = "" if spec.prompts is not None else "; set prompts: short"
    return f"its prompts alone take some {fixed} of the {most} tokens that model.context leaves for a request{hint}"


def _with_model_name(spec: AgentSpec, settings: ModelSettings) -> AgentSpec:
    """Return the spec as its runs keep it: a journal names the requested model, even for calls without an answer."""
    model = msgspec.structs.replace(spec.model, name=spec.model.name or settings.name)
    return msgspec.structs.replace(spec, model=model)


def _begin_counters(meters: Meters, agent: str) -> None:
    """A counter that begins with its first increase is read as one that never grew."""
    for metric in (names.STEPS, names.ANSWERS_LATE, names.FENCE_LOSSES):
        meters.record(metric, 0, {names.AGENT: agent})


class AgentHost:
    """One agent of a service process."""

    def __init__(
        self,
        spec: AgentSpec,
        prompts: Prompts,
        platform: Platform,
        model: Model | None,
        endpoint: Callable[[], ModelSettings] = ModelSettings,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._card = card_of(spec, prompt_tokens(spec, prompts))
        self._prompts = PinnedPrompts(prompts, platform.blobs)
        self._platform = platform
        self._registry = platform.registry
        self._toolset = Toolset()
        self._toolset_version = -1
        asks_model = facts_of(spec).asks_model
        self._asks_endpoint = model is None and asks_model
        self._own_model = ModelChain(spec.model, endpoint, platform.blobs)
        world = World(
            platform.journal,
            platform.bus,
            model or self._own_model,
            platform.clock,
            NatsTallies(platform.nc, platform.topology),
            platform.settings.instance_name(),
        )
        prices = Prices.read(platform.settings.prices)
        named = _with_model_name(spec, endpoint())
        self._runner = Runner(named, self._prompts, world, self._current_toolset, prices)
        self._priced_models = prices.known_among(named.model) if asks_model else []
        self._runner.journaling.meters = platform.meters
        _begin_counters(platform.meters, spec.name)
        self._runner.journaling.revision = revision_of(spec, prompts)
        self._early_cancels = EarlyCancels(self._runner, platform.bus.find, platform.blobs)
        topology = platform.topology
        self._away_calls = self._bounded_by(spec.limits.away) if spec.limits.away is not None else None
        self._looking: asyncio.Task[None] | None = None
        quarantine = NatsQuarantine(platform.nc, topology)
        inbox = Inbox(spec.name, self._runner, world, platform.blobs, quarantine)
        limiter = FairLimiter(platform.settings.concurrency, queues=topology.shards)
        consumer, filter_of = (
            topology.agent_consumer(spec.name),
            partial(topology.inbox_filter, agent=spec.name),
        )
        self._queues = ShardQueues(platform.nc, platform.shards, consumer, filter_of, inbox.handle, limiter, Queue)
        self._slots = RevisionSlots(platform, spec.name, self._runner.journaling.revision, inbox.handle, limiter)
        self._runner.journaling.revisions = self._slots.record_queue

    @property
    def lack(self) -> str | None:
        """Return what its model lacks for any call, or None."""
        return self._own_model.missing() if self._asks_endpoint else None

    @property
    def missing(self) -> str | None:
        """Return what its file names and nothing has ever offered; None if nothing is missing."""
        missing = self._current_toolset().missing
        return f"agent {self._spec.name}: nothing offers {', '.join(missing)}" if missing else None

    async def prepare(self) -> Presence:
        """Make all ready but for what others must see first; returns what they are to see."""
        AGENT_AT_WORK.set(self._spec.name)
        nc, topology = self._platform.nc, self._platform.topology
        await NatsEffects(nc, topology).check_right(self._spec.name, "_")
        await hear_interrupts(nc, topology, self._early_cancels.hear)
        if (lack := self.lack) is not None:
            log.warning("%s: every run will fail: %s", self._spec.name, lack)
        if (tight := tight_context(self._spec, self._prompts.own)) is not None:
            log.warning("%s: %s", self._spec.name, tight)
        if (doubt := doubtful_calls(self._spec)) is not None:
            log.warning("%s: %s", self._spec.name, doubt)
        presence = self._platform.presence(
            agent=self._card,
            revision=self._runner.journaling.revision,
            prompts=self._prompts.own.ref,
            spec=blob_ref(msgspec.json.encode(self._spec)),
        )
        return msgspec.structs.replace(presence, priced_models=self._priced_models)

    async def begin(self) -> None:
        """Wait a moment for the team, and begins to take messages."""
        AGENT_AT_WORK.set(self._spec.name)
        # Behind the announcement: what a live service names is not removed.
        await retry(self._prompts.store, pauses=EVERY_SECOND, log=log)
        spec = msgspec.json.encode(self._spec)
        await retry(partial(self._platform.blobs.put, spec), pauses=EVERY_SECOND, log=log)
        await self._await_team()
        revision = self._runner.journaling.revision
        shared = self._registry.rollout(self._spec.name) is not None
        for other in () if shared else differing_replicas(self._card, revision, self._registry.presences()):
            log.warning(
                "replica %s of %s has revision %s, and this one %s: they differ in spec or prompts, and either takes"
                " runs; start both from the same files, or say who gets how many: `cadre rollout`",
                *(other.instance, self._spec.name, other.revision, revision),
            )
        self._slots.start()
        await self._queues.start()
        if self._away_calls is not None:
            looking = self._away_calls.look_after(self._registry.changed)
            self._looking = asyncio.create_task(looking, name=f"calls of {self._spec.name} to what is away")

    def _bounded_by(self, seconds: float) -> AwayCalls:
        nc, topology, bus = self._platform.nc, self._platform.topology, self._platform.bus
        return AwayCalls(
            AwayBound(self._spec.name, seconds, lambda: topology.shards),
            lambda: absent_queues(self._spec, self._current_toolset(), self._registry),
            NatsQueuedCalls(nc, topology, self._spec.name),
            self._platform.journal,
            bus,
            self._platform.clock,
        )

    async def _await_team(self) -> None:
        """Wait until all of the team is live, but not for long.

        After an outage all services come back at once: runs in waiting should not be offered half a team.
        """
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS + 0.5):
                while self._current_toolset().missing:
                    await self._registry.changed()
        except TimeoutError:
            missing = ", ".join(self._current_toolset().missing)
            log.warning("%s begins without %s, which nothing has ever offered", self._spec.name, missing)

    async def samples(self) -> list[Sample]:
        """Return the figures of its queues, and of the calls that wait for their model."""
        waiting = Sample(names.MODEL_WAITING, self._own_model.waiting, {names.AGENT: self._spec.name})
        return [*queue_samples([*self._queues.queues, *self._slots.queues]), waiting]

    async def drain(self, grace: float) -> None:
        """Finish or hand back the messages in hand within `grace` seconds."""
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(self._slots.drain(grace), self._queues.drain(grace))
        await self._own_model.close()

    def _current_toolset(self) -> Toolset:
        if self._toolset_version != self._registry.version:
            self._toolset_version = self._registry.version
            self._toolset = toolset_of(self._spec, self._registry.reachable())
        return self._toolset


class AgentHosts:
    """The agents of a service process, as its part (`cadre.service.platform.Part`)."""

    app: AsgiApp | None = None

    def __init__(self, platform: Platform, hosts: Sequence[AgentHost]) -> None:
        self._registry = platform.registry
        self._hosts = hosts

    async def start(self) -> None:
        """Announce the agents, wait a moment for their teams, and begin to take messages."""
        # A task each: what it begins, and what that logs, is of this agent.
        cards = [await asyncio.create_task(host.prepare()) for host in self._hosts]
        await self._registry.announce(cards, part=" ".join(host.name for host in self._hosts))
        await asyncio.gather(*(host.begin() for host in self._hosts))

    def unready(self) -> str | None:
        """An agent is ready without a model, tools or members: what it lacks, it says in each run, and at /readyz."""
        return None

    def about(self) -> dict[str, str]:
        """Return what its models lack, so that every run fails (`model`), and what its files name and nothing has ever
        offered (`lacks`)."""
        found = {}
        if lacks := dict.fromkeys(host.lack for host in self._hosts if host.lack is not None):
            found["model"] = "; ".join(lacks)
        if missing := [line for host in self._hosts if (line := host.missing) is not None]:
            found["lacks"] = "; ".join(missing)
        return found

    async def samples(self) -> list[Sample]:
        """Return the figures of all agents."""
        return [sample for host in self._hosts for sample in await host.samples()]

    async def drain(self, grace: float) -> None:
        """Finish or hand back the messages in hand within `grace` seconds."""
        await asyncio.gather(*(host.drain(grace) for host in self._hosts))


def prompt_tokens(spec: AgentSpec, prompts: Prompts) -> int:
    """Return the tokens of the first request without its task and tools; 0 for an agent that does not begin by asking
    its model."""
    spec = msgspec.structs.replace(spec, memory=MemorySpec())
    run = Run(id="first", tree="first")
    task = Task(id="first:task", tree=run.tree, run=run.id, at=0.0, agent=spec.name, task="")
    arrival = Arrival(what=task, at=0.0, cause=task.id, toolset=Toolset(), spec=spec)
    called = decide(run, arrival, task.id)[-1]
    if not isinstance(called, ModelCalled):
        return 0
    request = Transcript(prompts).request(run, called.purpose)
    texts = [message["content"] for message in request.messages]
    return sum(least_tokens(text) for text in texts if isinstance(text, str))


def absent_queues(spec: AgentSpec, toolset: Toolset, registry: NatsRegistry) -> dict[CallQueue, float]:
    """Return since when (Unix seconds) nothing serves each of them; 0 where nothing ever has. What is at rest is
    not away: what waits for it starts it."""
    known = registry.absences()
    tools = {*called_tools(spec), *toolset.tools, *(toolset.with_files.tools if toolset.with_files else ())}
    members = {*toolset.members, *(member for member in spec.team if isinstance(member, str))}
    queues = [CallQueue("tool", tool) for tool in tools]
    facts = facts_of(spec)
    # What serves its own pools is as much a part of the agent as the replicas that take from its inbox.
    queues += [CallQueue("sandbox", pool) for pool in facts.pools if not facts.serves_pools]
    found = {
        queue: since for queue in queues if (since := known.get(ServiceKey(queue.kind, queue.name), 0.0)) is not None
    }
    for name in members:
        found |= _of_member(name, known, registry.rollout(name))
    return found


def _of_member(
    name: str, known: Mapping[ServiceKey, float | None], rollout: Rollout | None
) -> Iterator[tuple[CallQueue, float]]:
    """Yield the member's own queue, and those of its revisions that none of its replicas takes from."""
    since = known.get(ServiceKey("agent", name), 0.0)
    if since is not None:
        yield CallQueue("agent", name), since
    if rollout is None:
        return
    for share in rollout.shares:
        taker = known.get(ServiceKey("agent", name, rollout.taker(share).revision), 0.0)
        if taker is not None:
            yield CallQueue("agent", name, share.slot), taker
