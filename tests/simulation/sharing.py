"""Agents whose replicas are of two revisions, which share new runs by weights that change while the world plays."""

import random
from collections.abc import Collection
from typing import NamedTuple

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.rollout import Rollout, Share
from cadre.runtime.revision_queue import RevisionQueue
from simulation.history import History, Violation
from simulation.loop import Loop

REVISIONS = ("older", "newer")

STAYS = "a run's models are asked by its own revision"

_SHARED = 0.25
"""Of the agents, those with a rollout."""


class Change(NamedTuple):
    """From a time on the newer revision has this weight."""

    at: float
    weight: int


class Sharing:
    """The rollout of one agent, as processes hear of it: some later than others."""

    def __init__(self, agent: str, chance: random.Random) -> None:
        self._agent = agent
        self._changes = [Change(0.0, chance.choice((0, 10, 50, 100)))]
        self._changes += [
            Change(chance.random() * 8, chance.choice((0, 30, 100))) for _ in range(chance.choice((0, 1, 3)))
        ]
        self._changes.sort()

    def rollout(self, time: float) -> Rollout:
        """As it was made known at that time."""
        weight = [change.weight for change in self._changes if change.at <= max(time, 0.0)][-1]
        older, newer = REVISIONS
        shares = [
            Share(revision=older, slot=1, weight=100 - weight),
            Share(revision=newer, slot=2, weight=weight),
        ]
        return Rollout(agent=self._agent, shares=shares)


def drawn(agents: Collection[str], chance: random.Random) -> dict[str, Sharing]:
    """The rollouts of a seed, by agent."""
    return {name: Sharing(name, chance) for name in agents if chance.random() < _SHARED}


def revision_of(number: int) -> str:
    """The revision of the replica with this number."""
    return REVISIONS[number % len(REVISIONS)]


def queue_of(sharing: Sharing, revision: str, loop: Loop, lag: float) -> RevisionQueue:
    """Return what a replica that hears of changes `lag` seconds late knows about its queue."""
    return RevisionQueue(revision, lambda: sharing.rollout(loop.time() - lag), lambda: REVISIONS)


def check_writer(history: History, revision: str, entry: Entry) -> None:
    """Raises Violation when a replica begins a model call of a run that another revision has begun."""
    begins = any(isinstance(event, ev.RunAccepted) for event in entry.events)
    asks = any(isinstance(event, ev.ModelCalled) for event in entry.events)
    owner = history.of(entry.run).run.revision
    if asks and not begins and owner not in ("", revision):
        raise Violation(STAYS, f"entry {entry.n} of {entry.run}, which {owner} began, is {revision}'s")
