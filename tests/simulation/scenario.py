"""The scenario of a seed: a team, what it is asked to do, who interferes from outside, and how it is deployed."""

import random
from typing import NamedTuple

import msgspec

from cadre.journal.arrivals import Toolset
from cadre.protocol.cards import AgentCard
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec, Limits, MemorySpec
from cadre.spec.model import ModelSpec
from simulation.contexts import narrowed
from simulation.kinds.registry import draw_kind, simulated
from simulation.planner import Planner
from simulation.plans import Plan
from simulation.sharing import drawn
from simulation.tools import CARDS, CHECK

NAMES = ("lead", "mid", "low")
"""Each may delegate to those behind it."""

FALLING_BACK = 0.4
"""Of the agents, those with models to fall back on."""


class Order(NamedTuple):
    """A root run that is asked for at a time, perhaps twice."""

    run: str
    agent: str
    plan: Plan
    at: float
    times: int
    seconds: float | None
    """Until its deadline."""
    budget: Budget | None
    user: str | None = None


class CancelOrder(NamedTuple):
    """Somebody cancels some run of the tree, of those there are at that time."""

    tree: str
    at: float
    pick: float


class Scenario:
    """Everything about a seed that is settled before it begins."""

    def __init__(self, chance: random.Random, more: random.Random) -> None:
        """`more` draws what came later than the rest, so that earlier seeds keep their stories."""
        self.chance, self._more = chance, more
        self.shards = chance.choice((1, 1, 2))
        self.poison = chance.random() < 0.12
        self.specs = self._team()
        self.offers = {name: _offer(spec, self.specs) for name, spec in self.specs.items()}
        self.specs = self._with_more()
        planner = Planner(chance, self.specs, poison=self.poison)
        self.orders = [
            Order(
                run=f"r{number}",
                agent="lead",
                plan=planner.draw("lead"),
                at=chance.random() * 3,
                times=1 + (chance.random() < 0.2),
                seconds=chance.choice((2.0, 10.0, 60.0)) if chance.random() < 0.12 else None,
                budget=_budget(chance) if chance.random() < 0.1 else None,
            )
            for number in range(chance.choice((1, 1, 1, 2)))
        ]
        self.orders = [order._replace(user=more.choice((None, "ada", "ada", "bob"))) for order in self.orders]
        self.plans = planner.plans
        self.cancels = [
            CancelOrder(order.run, chance.expovariate(0.15), chance.random())
            for order in self.orders
            if chance.random() < 0.25
        ]
        self.replicas = {name: chance.choice((1, 2, 2, 3)) for name in self.specs}
        self.executors = chance.choice((1, 2, 2))
        self.credit = chance.choice((1, 2, 4, 8))
        self.sandboxes = chance.choice((1, 2, 2, 3)) if any(s.kind == "code" for s in self.specs.values()) else 0
        remembers = any(spec.memory != MemorySpec() for spec in self.specs.values())
        self.memories = more.choice((1, 2)) if remembers else 0
        """Processes of the memory service."""
        self.memory_seconds = more.choice((0.0, 1.0, 6.0))
        """The most that its engine takes."""
        self.checks = any(spec.checks for spec in self.specs.values())
        self.sessions = chance.choice((1, 2, 8))
        """Interpreters of one sandbox."""
        self.piece_exchanges = chance.choice((1, 2, 16))
        """Exchanges of a block that its messages repeat at most."""
        self.idle_seconds = chance.choice((1.0, 600.0, 600.0))
        """The time for which one is kept for a run that does not come back."""
        self.fan = chance.choice((2, 4, 32))
        self.most_runs = chance.choice((1, 2, 512))
        """Folded runs that a worker keeps in mind."""
        self.most_skew = chance.choice((0.0, 0.0, 0.3, 2.0))
        self.sharing = drawn(self.specs, random.Random(f"rollouts {more.getstate()[1][:4]}"))
        """Agents of two revisions."""
        for name in self.sharing:
            self.replicas[name] = max(2, self.replicas[name])

    def _team(self) -> dict[str, AgentSpec]:
        chance = self.chance
        names = NAMES[: chance.choice((1, 2, 2, 3))]
        specs = [self._spec(name, list(names[at + 1 :])) for at, name in enumerate(names)]
        own = random.Random(f"kinds {self._more.getstate()[1][:4]}")
        return {spec.name: simulated(spec).drawn(spec, own, poison=self.poison) for spec in specs}

    def _spec(self, name: str, team: list[str]) -> AgentSpec:
        chance = self.chance
        patient = chance.random() < 0.8
        return AgentSpec(
            name=name,
            description=f"Works as {name}.",
            kind=draw_kind(chance),
            tools=list(CARDS),
            team=list(team),
            model=ModelSpec(retries=1000, patience=1e6) if patient else ModelSpec(retries=1),
            planning_interval=2 if chance.random() < 0.15 else None,
            limits=self._limits(),
            permission="restricted" if chance.random() < 0.05 else "open",
            approvals=self._approvals(team),
            approval_seconds=chance.choice((None, 5.0, 60.0)),
            timeouts=self._timeouts(team),
        )

    def _with_more(self) -> dict[str, AgentSpec]:
        """Some teams remember, some have little room for what they do, some have their answers checked."""
        more, specs = self._more, dict(self.specs)
        remember, narrow, check = more.random() < 0.3, more.random() < 0.2, more.random() < 0.15
        for name, spec in specs.items():
            if remember and more.random() < 0.8:
                spec = msgspec.structs.replace(spec, memory=_memory(more))
            if check:
                spec = msgspec.structs.replace(spec, checks=[CHECK])
            if narrow:
                spec = narrowed(spec, self.offers[name], more)
            specs[name] = spec
        return self._with_fallbacks(specs)

    def _with_fallbacks(self, specs: dict[str, AgentSpec]) -> dict[str, AgentSpec]:
        """Some agents have further models behind their own, which gives up sooner then; drawn next to the rest, too."""
        own = random.Random(f"fallbacks {self._more.getstate()[1][:4]}")
        for name, spec in specs.items():
            if own.random() < FALLING_BACK:
                form = {key: getattr(spec.model, key) for key in ("context", "max_tokens", "structured")}
                others = [
                    ModelSpec(name=f"{name}-{number}", retries=own.choice((1, 1000)), patience=1e6, **form)
                    for number in range(1, own.choice((2, 3)))
                ]
                model = msgspec.structs.replace(spec.model, retries=own.choice((0, 1)), fallbacks=others)
                specs[name] = msgspec.structs.replace(spec, model=model)
        return specs

    def _limits(self) -> Limits:
        chance = self.chance
        return Limits(
            max_steps=chance.choice((2, 6, 6, 6)),
            parallel=chance.choice((1, 2, 32, 32)),
            repeats=chance.choice((2, 5)),
            seconds=chance.choice((5.0, 30.0)) if chance.random() < 0.08 else None,
            budget=_budget(chance) if chance.random() < 0.08 else None,
        )

    def _approvals(self, team: list[str]) -> dict[str, str]:
        chance = self.chance
        if chance.random() < 0.75:
            return {}
        held = chance.choice(("book", "look", "*", *team))
        return {held: chance.choice(("always", "when: n % 2 == 0"))}

    def _timeouts(self, team: list[str]) -> dict[str, float]:
        chance = self.chance
        if chance.random() < 0.8:
            return {}
        return {chance.choice(("book", "save", "*", *team)): chance.choice((1.5, 6.0, 20.0))}

    def __str__(self) -> str:
        team = ", ".join(f"{name} ({spec.kind}) x{self.replicas[name]}" for name, spec in self.specs.items())
        return (
            f"team {team}; executors {self.executors}; sandboxes {self.sandboxes}; credit {self.credit};"
            f" memory services {self.memories}; checks {self.checks};"
            f" shards {self.shards}; plans {len(self.plans)}; cancels {len(self.cancels)}; poison {self.poison};"
            f" back-pointers in blocks of {self.fan}"
        )


def _memory(chance: random.Random) -> MemorySpec:
    return MemorySpec(
        recall=chance.choice((0, 1, 3, 3)),
        remember=chance.choice(("nothing", "answers", "steps", "steps")),
        scope=chance.choice(("run", "agent", "user", "team")),
        team="house",
        seconds=chance.choice((1.5, 6.0, 30.0)),
    )


def _budget(chance: random.Random) -> Budget:
    """Narrow enough to be used up by some runs."""
    return chance.choice(
        (Budget(steps=chance.randrange(1, 6)), Budget(tokens=chance.randrange(10, 120)), Budget(depth=1))
    )


def _offer(spec: AgentSpec, specs: dict[str, AgentSpec]) -> Toolset:
    members = {
        name: AgentCard(name=name, description=specs[name].description) for name in spec.team if isinstance(name, str)
    }
    return Toolset(tools={name: CARDS[name] for name in spec.tools}, members=members)
