"""The queue to which a record belongs while an agent's revisions share its runs: that of the revision of its run."""

from collections.abc import Callable, Collection

from cadre.journal.run import Phase, Run
from cadre.protocol.messages import Record, Task
from cadre.protocol.rollout import Rollout, Share

PASS_ON_SECONDS = 4.0
"""A worker that has taken longer than the ack wait to pass a record on does not ack it: somebody else has it by now,
who may know better where it belongs, and what it has passed on comes twice at most."""


class Elsewhere(Exception):
    """The record belongs in the queue of another revision."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"slot {slot}")
        self.slot = slot


class RevisionQueue:
    """The queues from the point of view of one revision. Without a rollout every record is in its place."""

    def __init__(
        self,
        revision: str = "",
        rollout: Callable[[], Rollout | None] = lambda: None,
        live: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """`live` returns the revisions of the agent that have a live replica."""
        self._revision = revision
        self._rollout = rollout
        self._live = live

    def check(self, run: Run, record: Record, slot: int, deliveries: int) -> None:
        """Raise Elsewhere for a record that is to be passed on; `slot` is the queue that it came from.

        Any revision may handle a run that has ended, or whose revision is unknown. A task in the queue of a revision
        has been given to it: another choice would have it go round when weights change.
        """
        rollout = self._rollout()
        if rollout is None or run.phase is Phase.DONE:
            return
        owner = self._owner(rollout, run, record, slot)
        if owner is None:
            return
        if owner.revision != self._revision:
            raise Elsewhere(owner.slot)
        if slot == 0 and deliveries > 1:
            # The earlier worker may have died after passing it on: this keeps it in one queue, not two.
            raise Elsewhere(owner.slot)

    def _owner(self, rollout: Rollout, run: Run, record: Record, slot: int) -> Share | None:
        if run.revision:
            return rollout.owner(run.revision)
        if run.phase is Phase.NEW and isinstance(record, Task) and not slot:
            return rollout.choose(run.id, self._live())
        return None
