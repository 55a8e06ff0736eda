"""A run on its way through its journal, decided again entry by entry: in the run in hand, for as long as the decisions
are the journaled ones."""

from cadre.engine.fold import apply_entry, fold
from cadre.journal.arrivals import Arrival
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.journal.run import Run
from cadre.loop.decide import decide


class Retraced:
    """`run` is in the state behind the entries that were taken."""

    def __init__(self, run: str, tree: str) -> None:
        self.run = Run(id=run, tree=tree)
        self._taken: list[Entry] = []
        self._decided: list[AnyEvent] | None = None
        self._is_touched = False

    def decide(self, arrival: Arrival, cause: str) -> list[AnyEvent]:
        """Return what is decided now in the place of the next entry, which is then to be taken. Raises what deciding
        raises."""
        self._is_touched = True
        self._decided = decide(self.run, arrival, cause)
        return self._decided

    def take(self, entry: Entry) -> None:
        """Go on behind the entry, whatever was decided in its place."""
        decided, is_touched = self._decided, self._is_touched
        self._decided, self._is_touched = None, False
        if is_touched and (decided != entry.events or self.run.entries != entry.n):
            self.run, is_touched = fold(self._taken, self.run.id, self.run.tree), False
        if not is_touched:
            apply_entry(self.run, entry)
        self._taken.append(entry)
