"""Caches the folded runs that this process works on. The journal is the truth."""

from __future__ import annotations

import asyncio
import math

from cadre.engine.chat import Transcript
from cadre.journal.run import Run
from cadre.loop.fold import fold
from cadre.ports import Appended, Clock, Journal, Stored
from cadre.prompting.prompts import Prompts
from cadre.protocol.topology import tree_of
from cadre.recent import Recent
from cadre.runtime.pinned_prompts import PinnedPrompts

SNAPSHOT_ENTRIES = 64
"""Fewer entries have no snapshot behind them unless they are large."""
SNAPSHOT_BYTES = 4 * 1024 * 1024
"""So many bytes of entries are large: it takes long to read them."""
SNAPSHOT_GROWTH = 2
"""A snapshot follows large entries only when they are so many times as many as those before the last snapshot."""
POINTER_BYTES = 8
"""What a back-pointer takes in an entry."""

MAX_BACK_POINTERS = 1024

MOST_RUNS = 512


class Held:
    """A run as of the journal's entry at `seq`; changed only under `lock`, by an append.

    It is taken one entry further while that entry is on its way: `spoiled` when the entry did not arrive.
    """

    def __init__(self, run: Run, prompts: Prompts) -> None:
        self.run = run
        self.prompts = prompts
        self.transcript = Transcript(prompts)
        self.lock = asyncio.Lock()
        self.seq = 0
        self.hash = ""
        """Of the entry at `seq`; "" when it has none."""
        self.spoiled = False
        self.as_of = 0.0
        """When the journal was last asked, by this process's clock: it had no further entry then."""
        self._chain: list[int] = []
        self._bytes = 0
        self._places: dict[str, int] = {}
        """Stream sequences of the chain's entries, by the record that each accounts for."""
        self._covered = 0
        """Entries before those of the chain: the last snapshot stands for them."""

    @classmethod
    def folded(cls, run: Run, stored: list[Stored], prompts: Prompts) -> Held:
        """A run as the `stored` entries of its journal tell, as read with its own prompts."""
        held = cls(run, prompts)
        if stored:
            held.seq, held.hash = stored[-1].seq, stored[-1].entry.hash
            held._chain = [one.seq for one in stored]
            held._places = {one.entry.cause: one.seq for one in stored}
            held._covered = stored[0].entry.n - 1
            held._bytes = sum(one.size for one in stored[1:])
        return held

    def is_snapshot_due(self) -> bool:
        """Whether the next entry carries a snapshot, and the fold begins there.

        A snapshot is about as large as all entries before it, and each entry points back to all since the last one. So
        it is due when the pointers have cost as much as it will, at the latest when reading would take too long.
        """
        since = len(self._chain)
        if self._bytes >= SNAPSHOT_BYTES and since >= SNAPSHOT_GROWTH * self._covered:
            return True
        if since < SNAPSHOT_ENTRIES:
            return False
        pointers = POINTER_BYTES * since * since // 2
        snapshot = (self._bytes - pointers) * (self._covered + since) // since
        return since >= MAX_BACK_POINTERS or pointers >= snapshot

    def back_pointers(self) -> list[int]:
        return [] if self.is_snapshot_due() else list(self._chain)

    def accounted_at(self, record_id: str) -> int:
        """The sequence of the entry that accounts for the record, or a later one where that lies behind a snapshot."""
        return self._places.get(record_id, self._chain[0] if self._chain else 0)

    def appended(self, appended: Appended, cause: str, at: float, *, snapshot: bool) -> None:
        """The entry that accounts for `cause` is the run's last one now; it was sent at `at`."""
        self.seq, self.hash, self.as_of = appended.seq, appended.hash, at
        if snapshot:
            self._chain, self._bytes, self._covered = [appended.seq], 0, self.run.entries - 1
            self._places = {cause: appended.seq}
        else:
            self._chain.append(appended.seq)
            self._places[cause] = appended.seq
            self._bytes += appended.size


class Locked:
    """A context that gives the run's state, and keeps others of this process from reading or changing it.

    Raises BusUnavailable.
    """

    def __init__(self, cache: RunCache, tree: str, run: str, fresh: bool, within: float) -> None:
        self._cache, self._tree, self._run = cache, tree, run
        self._fresh, self._within = fresh, within

    async def __aenter__(self) -> Held:
        while True:
            held = await self._cache.get(self._tree, self._run, fresh=self._fresh)
            await held.lock.acquire()
            if self._within < math.inf and not held.spoiled and self._cache.age(held) > self._within:
                self._cache.spoil(held)
            if not held.spoiled:
                self._held = held
                return held
            held.lock.release()
            self._fresh = False

    async def __aexit__(self, *_: object) -> None:
        self._held.lock.release()


class RunCache:
    """At most MOST_RUNS folded runs, the least recently used forgotten first."""

    def __init__(self, journal: Journal, prompts: PinnedPrompts, clock: Clock) -> None:
        self._journal = journal
        self._prompts = prompts
        self._clock = clock
        self._held = Recent[str, Held](MOST_RUNS)

    def locked(self, tree: str, run: str, *, fresh: bool = False, within: float = math.inf) -> Locked:
        """The run's state, folded anew where the journal has not been asked for more than `within` seconds."""
        return Locked(self, tree, run, fresh, within)

    async def accounts_for(self, record_id: str, tree: str, run: str) -> bool:
        """Return whether the run's journal accounts for the record. Raises BusUnavailable."""
        async with self.locked(tree, run) as held:
            if record_id in held.run.seen:
                return True
            self.spoil(held)  # what is known may be stale
        async with self.locked(tree, run) as held:
            return record_id in held.run.seen

    def age(self, held: Held) -> float:
        """Seconds since the journal was asked."""
        return abs(self._clock.now() - held.as_of)

    async def get(self, tree: str, run: str, *, fresh: bool = False) -> Held:
        """The run's state, folded if need be; `fresh` takes it for new without asking (the fence will tell)."""
        held = self._held.get(run)
        if held is None:
            asked = self._clock.now()
            stored = [] if fresh else await self._journal.read(tree, run)
            state = fold((one.entry for one in stored), run, tree)
            prompts = await self._prompts.find(state.prompts)
            # Somebody else may have folded it meanwhile: all must share one state and one lock.
            if (held := self._held.get(run)) is None:
                held = Held.folded(state, stored, prompts)
                held.as_of = asked
            self._held[run] = held
        else:
            self._held.move_to_end(run)
        return held

    def spoil(self, held: Held) -> None:
        """Nobody knows what the journal holds: whoever waits for the lock folds again."""
        held.spoiled = True
        self.forget(held)

    def forget(self, held: Held) -> None:
        if self._held.get(held.run.id) is held:
            del self._held[held.run.id]


async def read_run(journal: Journal, run: str) -> Run:
    """The state of a run that this process does not work on. Raises BusUnavailable."""
    tree = tree_of(run)
    return fold((stored.entry for stored in await journal.read(tree, run)), run, tree)
