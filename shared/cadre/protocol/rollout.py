"""Rollouts: by which weights the revisions of an agent share its new runs, and which revision's queue a run is in.

Pure. Everybody who has the same record decides alike; what counts in the end is the first entry of a run's journal,
which names its revision.
"""

from collections.abc import Container
from hashlib import blake2b
from typing import Literal

import msgspec

SLOTS = 4
"""Queues that an agent has for its revisions, and so the number of revisions that a rollout may have at once: names of
queues stand in the permissions of NATS users, digests of files cannot."""

_HASH_BYTES = 8


class Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A revision in a rollout."""

    revision: str
    slot: int
    """Its queue, from 1 to SLOTS."""
    weight: int = 0
    """Of a hundred new runs, those that it gets."""
    state: Literal["opening", "open", "closing"] = "open"
    """`opening` until its queue is there; `closing` once nothing may be sent there any more."""
    adopted_by: str = ""
    """The revision whose replicas go on with its runs; empty for its own."""
    beside: str = ""
    """The name of the objects that its replicas were last in, if they are separate from those of the first."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shares of an agent's revisions in its runs; without shares, there is no rollout (any more)."""

    v: Literal[1] = 1
    agent: str
    version: int = 0
    """Goes up with every change."""
    shares: list[Share] = []
    """The oldest first."""
    changed_at: float = 0.0
    """Unix seconds."""

    def share_of(self, revision: str) -> Share | None:
        """The share of exactly this revision."""
        return next((one for one in self.shares if one.revision == revision), None)

    def owner(self, revision: str) -> Share | None:
        """The share whose replicas go on with the runs of a revision; None when any may.

        Runs of a revision that has no share are those of the one with the most weight.
        """
        share = self.share_of(revision)
        taker = self.taker(share) if share is not None else None
        if taker is None or taker.state != "open":
            return max(self._open(), key=lambda one: one.weight, default=None)
        return taker

    def slots_of(self, revision: str) -> set[int]:
        """The queues that replicas of this revision take from: their own, and those of the revisions adopted."""
        return {one.slot for one in self.shares if one.state != "opening" and self.taker(one).revision == revision}

    def candidates(self, live: Container[str]) -> list[Share]:
        """Those that share new runs: those with a weight that are live; all that have one where none of them is."""
        weighted = [one for one in self._open() if one.weight > 0]
        return [one for one in weighted if one.revision in live] or weighted

    def choose(self, run: str, live: Container[str]) -> Share | None:
        """The revision that a run is to begin with: always the same one for these weights and live revisions.

        None: any may.
        """
        candidates = self.candidates(live)
        if not candidates:
            return None
        digest = blake2b(run.encode(), digest_size=_HASH_BYTES).digest()
        place = int.from_bytes(digest) / 256**_HASH_BYTES * sum(one.weight for one in candidates)
        for share in candidates:
            place -= share.weight
            if place < 0:
                return share
        return candidates[-1]

    def _open(self) -> list[Share]:
        return [one for one in self.shares if one.state == "open"]

    def taker(self, share: Share) -> Share:
        """The share whose replicas go on with the runs of this one."""
        followed = {share.revision}
        while (taker := self.share_of(share.adopted_by)) is not None and taker.revision not in followed:
            followed.add(taker.revision)
            share = taker
        return share


def slot_receiver(agent: str, slot: int) -> str:
    """Return what stands in the agent's place in the subjects of a queue of its revisions: no agent can have such a
    name.
    """
    return f"{agent}~{slot}" if slot else agent


def rollout_key(bucket: str, agent: str = "*") -> str:
    """The subject of an agent's rollout in the registry's bucket, next to those of replicas."""
    return f"$KV.{bucket}.rollout.{agent}"


def slot_of(receiver: str) -> tuple[str, int]:
    """The agent and the slot, 0 for the agent's own queue, that a receiver stands for."""
    agent, _, slot = receiver.partition("~")
    return agent, int(slot) if slot.isdigit() else 0
