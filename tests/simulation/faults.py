"""The faults of a seed: each kind is switched on or off, and in the end all trouble is over.

Trouble of few kinds at a time finds more than a little of everything always: a seed draws its own mix.
"""

import random

from simulation.trace import Trace

KINDS: dict[str, tuple[float, ...]] = {
    # per step of a worker
    "crash": (0.003, 0.01, 0.04),
    "stop": (0.001, 0.006),
    "cut": (0.001, 0.006),
    "drain": (0.001, 0.006),
    "restart-server": (0.001, 0.004),
    # per request, post or delivery
    "lost-request": (0.01, 0.05),
    "lost-answer": (0.01, 0.05, 0.2),
    "late-request": (0.005, 0.02),
    "crash-behind": (0.01, 0.05),
    "full": (0.01, 0.05),
    "lost-delivery": (0.01, 0.05),
    "lost-ack": (0.02, 0.1),
    "lost-interrupt": (0.3, 1.0),
    "early-expiry": (0.05, 0.3),
    "stale-read": (0.1, 0.5),
    "slow": (0.01, 0.05),
    # per decision of an agent: a tool or a member is not there
    "missing": (0.02, 0.1),
    # per model call
    "model-busy": (0.05, 0.2),
    "model-limited": (0.05, 0.2),
    "model-refuses": (0.01,),
    "model-slow": (0.05, 0.2),
    # per thing that code does, and per interpreter
    "box-killed": (0.03, 0.15),
    "code-slow": (0.1, 0.3),
    "no-box": (0.05, 0.2),
    "unrestorable": (0.3, 0.8),
    # per memory that is stored: its engine says nothing, and may not have stored it
    "engine-silent": (0.1, 0.4),
}
"""The probability of each kind if a seed has it on."""

PROFILES: tuple[dict[str, float], ...] = (
    {},
    {},
    # Two workers at one record, and the one that wins dies of it.
    {"early-expiry": 0.3, "model-slow": 0.4, "crash-behind": 0.1},
    {"stop": 0.01, "cut": 0.01, "crash-behind": 0.05, "slow": 0.05},
)
"""Mixes in which one misfortune meets another: a seed's own kinds come on top."""

HARMLESS = frozenset({"slow", "stale-read", "lost-interrupt", "model-slow"})
"""Of these there may be any number."""

BEFORE_A_STEP = ("crash", "stop", "cut", "drain", "restart-server")


class Faults:
    """The seed's trouble, at most so much of it."""

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        self._chance = chance
        self._draw = chance.random
        self._trace = trace
        quiet = chance.random() < 0.05
        self.left = 0 if quiet else chance.choice((3, 8, 20, 40, 80))
        share = chance.choice((0.15, 0.35, 0.6, 0.9))
        self._rates = {kind: chance.choice(rates) if chance.random() < share else 0.0 for kind, rates in KINDS.items()}
        profile = chance.choice(PROFILES)
        if profile and not quiet:
            self._rates |= profile
            self.left = max(self.left, 20)
        self._hazard = sum(self._rates[kind] for kind in BEFORE_A_STEP)

    def happens(self, kind: str) -> bool:
        rate = self._rates[kind]
        if rate and self.left and self._draw() < rate:
            self.left -= kind not in HARMLESS
            self._trace.note(kind)
            return True
        return False

    def note(self, what: str) -> None:
        """Count what is no fault, and may be the consequence of one."""
        self._trace.note(what)

    def before_step(self) -> str | None:
        """Return what befalls a worker before its next step, if anything does."""
        if not self._hazard or not self.left:
            return None
        point = self._draw()
        if point >= self._hazard:
            return None
        for kind in BEFORE_A_STEP:
            point -= self._rates[kind]
            if point < 0:
                self.left -= 1
                return kind
        return None

    def __str__(self) -> str:
        on = ", ".join(f"{kind} {rate:g}" for kind, rate in self._rates.items() if rate)
        return f"trouble {self.left}: {on or 'none'}"
