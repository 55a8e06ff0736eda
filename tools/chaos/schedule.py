"""The process that is hurt, the moment and the way: a function of the seed alone."""

import random
from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["kill", "pause", "restart"]

SHORTEST_PAUSE, LONGEST_PAUSE = 6.0, 9.0
"""Seconds; longer than the 4 s after which a silent worker's record goes to another replica."""

_FIRST = 1.0
_SHORTEST_GAP, _MEAN_GAP, _LONGEST_GAP = 0.2, 1.2, 4.0
_LONGEST_ABSENCE = 2.0
_ALL_AT_ONCE = 0.2
"""The share of kills that hit every replica of its group that is there."""
_EARLY = 0.2
"""The share of kills and pauses that may come while its victim is still starting."""
_AMID = 0.7
"""The share of kills and pauses of an executor that are to come in the middle of an effect."""

_RECOVERY: dict[Kind, float] = {"kill": 3.0, "pause": 1.0, "restart": 10.0}
"""Seconds that a victim is left alone once its fault is over."""

MUST: list[tuple[Kind, str]] = [
    ("kill", "worker"),
    ("kill", "tools"),
    ("kill", "nats"),
    ("kill", "gateway"),
    ("pause", "tools"),
    ("pause", "worker"),
    ("restart", "lead"),
    ("kill", "sandbox"),
    ("kill", "tracer"),
    ("pause", "sandbox"),
]
"""In every schedule, however short, in its own order."""

_WEIGHTS: dict[tuple[Kind, str], float] = {
    ("kill", "boss"): 3,
    ("kill", "lead"): 3,
    ("kill", "worker"): 3,
    ("kill", "coder"): 2,
    ("kill", "clerk"): 2,
    ("kill", "seeker"): 2,
    ("kill", "queuer"): 2,
    ("kill", "proposer"): 2,
    ("kill", "planner"): 2,
    ("kill", "tools"): 5,
    ("kill", "sandbox"): 4,
    ("kill", "tracer"): 2,
    ("kill", "gateway"): 2,
    ("kill", "model"): 1,
    ("kill", "nats"): 1.5,
    ("pause", "boss"): 1,
    ("pause", "lead"): 1,
    ("pause", "worker"): 1,
    ("pause", "coder"): 0.7,
    ("pause", "clerk"): 0.7,
    ("pause", "seeker"): 0.7,
    ("pause", "queuer"): 0.7,
    ("pause", "proposer"): 0.7,
    ("pause", "planner"): 0.7,
    ("pause", "tools"): 2,
    ("pause", "sandbox"): 1,
    ("pause", "tracer"): 0.5,
    ("pause", "gateway"): 0.5,
    ("pause", "nats"): 0.3,
    ("restart", "boss"): 0.7,
    ("restart", "lead"): 0.7,
    ("restart", "worker"): 0.7,
    ("restart", "coder"): 0.5,
    ("restart", "clerk"): 0.5,
    ("restart", "seeker"): 0.5,
    ("restart", "queuer"): 0.5,
    ("restart", "proposer"): 0.5,
    ("restart", "planner"): 0.5,
    ("restart", "tools"): 1,
    ("restart", "sandbox"): 1,
    ("restart", "tracer"): 0.5,
    ("restart", "gateway"): 0.5,
    ("restart", "nats"): 0.3,
}


class Fault(NamedTuple):
    """`kill`: SIGKILL of all victims at once, started again after `lasts` seconds.
    `pause`: SIGSTOP, SIGCONT after `lasts` seconds.
    `restart`: each victim in turn SIGTERM, its exit awaited, started again and ready."""

    at: float
    """Seconds since the chaos began."""
    kind: Kind
    victims: tuple[str, ...]
    lasts: float
    early: bool = False
    """Not put off until the victims are ready again after their last fault."""
    amid: bool = False
    """Put off, a little, until the (first) victim has just begun to change the world."""


def schedule(seed: int, seconds: float, groups: Mapping[str, tuple[str, ...]]) -> list[Fault]:
    """Faults of `seconds` of chaos; `groups` has the names of the replicas of each service.

    A process is hurt again only some seconds after it recovered, and a group whose replicas are restarted one
    after the other is not hurt otherwise meanwhile: no one promises a service of which no replica is left.
    """
    chance = random.Random(seed)
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    due = chance.sample(MUST, len(MUST))
    free_at = {name: 0.0 for names in groups.values() for name in names}
    faults: list[Fault] = []
    at = _FIRST
    while at < seconds:
        kind, group = due[0] if due else chance.choices(kinds, weights)[0]
        fault = _fault(chance, at, kind, groups[group], free_at)
        if fault is not None and kind != "restart":
            early = chance.random() < _EARLY
            amid = group == "tools" and not early and chance.random() < _AMID
            fault = fault._replace(early=early, amid=amid)
        if fault is not None:
            faults.append(fault)
            due = due[1:]
            recovery = _RECOVERY[kind] * (len(fault.victims) if kind == "restart" else 1)
            free_at |= dict.fromkeys(fault.victims, at + fault.lasts + recovery)
        elif due:
            due = [*due[1:], due[0]]
        gap = chance.expovariate(1 / _MEAN_GAP)
        at += min(max(gap, _SHORTEST_GAP), _LONGEST_GAP)
    return faults


def _fault(
    chance: random.Random, at: float, kind: Kind, names: tuple[str, ...], free_at: Mapping[str, float]
) -> Fault | None:
    """None when no one of the group can be hurt that way now."""
    free = [name for name in names if free_at[name] <= at]
    if kind == "restart":
        return Fault(at, kind, names, 0.0) if len(free) == len(names) else None
    if not free:
        return None
    victim = (chance.choice(free),)
    if kind == "pause":
        return Fault(at, kind, victim, chance.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
    victims = tuple(free) if chance.random() < _ALL_AT_ONCE else victim
    return Fault(at, kind, victims, chance.uniform(0, _LONGEST_ABSENCE))
