"""Cache the folded runs that this process works on, and the prompts that each began with. The journal is the truth."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from cadre.delivery.retry import retry
from cadre.engine.chat import Transcript
from cadre.engine.fold import fold
from cadre.errors import BlobMissing, PromptError
from cadre.journal.entry import BackPointers
from cadre.journal.run import Run
from cadre.ports import Appended, Blobs, Clock, Journal, Stored
from cadre.prompting.prompt_file import shipped_names
from cadre.prompting.prompts import Prompts
from cadre.protocol.topology import tree_of
from cadre.recent import Recent

MOST_RUNS = 512

MOST_READS = 16
"""Journals that a process reads at once."""

_PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between two tries of a read. The server may have the first one in its queue still."""

T = TypeVar("T")


class CachedRun:
    """A run as of the journal's entry at `seq`; changed only under `lock`, by an append.

    It is taken one entry further while that entry is on its way: `invalid` when the entry did not arrive.
    """

    def __init__(self, run: Run, prompts: Prompts) -> None:
        self.run = run
        self.prompts = prompts
        self.transcript = Transcript(prompts)
        self.lock = asyncio.Lock()
        self.seq = 0
        self.hash = ""
        """Of the entry at `seq`; "" when it has none."""
        self.invalid = False
        self.as_of = 0.0
        """Time of the last answer of the journal, by this process's clock (see AnswerWait)."""
        self.pointers = BackPointers()
        """Of the next entry."""
        self._places: dict[str, int] = {}
        """Stream sequences of the entries, by the record that each accounts for."""

    @classmethod
    def folded(cls, run: Run, stored: list[Stored], prompts: Prompts, as_of: float) -> CachedRun:
        """Return the run as the `stored` entries of its journal say, as read with its own prompts."""
        cached = cls(run, prompts)
        cached.as_of = as_of
        for seq, entry in stored:
            cached._note(seq, entry.hash, entry.cause)
        return cached

    def accounted_at(self, record_id: str) -> int:
        """Return the sequence of the entry that accounts for the record; 0 if no entry does."""
        return self._places.get(record_id, 0)

    def appended(self, appended: Appended, cause: str, at: float) -> None:
        """The entry that accounts for `cause` is the run's last one as of `at`."""
        self.as_of = at
        self._note(appended.seq, appended.hash, cause)

    def _note(self, seq: int, hash_: str, cause: str) -> None:
        self.seq, self.hash = seq, hash_
        self.pointers.note(seq)
        self._places[cause] = seq


BEAT_SECONDS = 0.5


class AnswerWait:
    """A context in which an answer of the journal is awaited; `as_of` is a time before which it was not made.

    That is the beginning, or a beat at which the answer was not here yet: an answer of a slow server is as fresh as
    that of a fast one. Where the process itself stood still, no beat came, and the answer may be as old as the
    standstill. The last beat does not count: it may be late, and run before what has arrived is read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.as_of = self._last = clock.now()

    def __enter__(self) -> Self:
        self._handle = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)
        return self

    def _beat(self) -> None:
        self.as_of, self._last = self._last, self._clock.now()
        self._handle = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def __exit__(self, *_: object) -> None:
        self._handle.cancel()


class Locked:
    """A context that gives the run's state, and keeps others of this process from reading or changing it."""

    def __init__(self, cache: RunCache, tree: str, run: str, fresh: bool, within: float) -> None:
        self._cache, self._tree, self._run = cache, tree, run
        self._fresh, self._within = fresh, within

    async def __aenter__(self) -> CachedRun:
        while True:
            cached = await self._cache.get(self._tree, self._run, fresh=self._fresh)
            await cached.lock.acquire()
            try:
                if not cached.invalid and self._cache.age(cached) > self._within:
                    # Once: the load of more questions would make the next answer later still.
                    await self._cache.ask_again(cached)
            except BaseException:
                cached.lock.release()
                raise
            if not cached.invalid:
                self._cached = cached
                return cached
            cached.lock.release()
            self._fresh = False

    async def __aexit__(self, *_: object) -> None:
        self._cached.lock.release()


class RunCache:
    """At most MOST_RUNS folded runs, the least recently used forgotten first.

    A journal is read by one reader of the process at a time, and at most MOST_READS are read at once. While NATS does
    not answer, a read is tried again after growing pauses: a server that is slow must not be slower for that.
    """

    def __init__(self, journal: Journal, prompts: PinnedPrompts, clock: Clock) -> None:
        self._journal = journal
        self._prompts = prompts
        self._clock = clock
        self._cached = Recent[str, CachedRun](MOST_RUNS)
        self._reading: dict[str, asyncio.Task[CachedRun]] = {}
        self._places = asyncio.Semaphore(MOST_READS)

    def locked(self, tree: str, run: str, *, fresh: bool = False, within: float = math.inf) -> Locked:
        """Return the run's state as of at most `within` seconds ago."""
        return Locked(self, tree, run, fresh, within)

    async def accounts_for(self, record_id: str, tree: str, run: str) -> bool:
        """Return whether the run's journal accounts for the record."""
        async with self.locked(tree, run) as cached:
            if record_id in cached.run.seen:
                return True
            self.invalidate(cached)  # what is known may be stale
        async with self.locked(tree, run) as cached:
            return record_id in cached.run.seen

    def age(self, cached: CachedRun) -> float:
        """Return the seconds since the journal was asked."""
        return abs(self._clock.now() - cached.as_of)

    async def get(self, tree: str, run: str, *, fresh: bool = False) -> CachedRun:
        """Return the run's state, folded if need be; `fresh` takes it for new without asking (the fence will tell)."""
        cached = self._cached.get(run)
        if cached is None and not fresh:
            return await self._shared_read(tree, run)
        if cached is None:
            cached = CachedRun.folded(fold((), run, tree), [], self._prompts.own, self._clock.now())
        self._cached[run] = cached
        return cached

    async def _shared_read(self, tree: str, run: str) -> CachedRun:
        reading = self._reading.get(run)
        if reading is None:
            reading = self._reading[run] = asyncio.create_task(self._read(tree, run), name=f"reading {run}")
        return await asyncio.shield(reading)

    async def _read(self, tree: str, run: str) -> CachedRun:
        try:
            with AnswerWait(self._clock) as answer:
                stored = await self._patiently(lambda: self._journal.read(tree, run))
            state = fold((one.entry for one in stored), run, tree)
            prompts = await retry(lambda: self._prompts.find(state.prompts), self._clock.sleep)
            # A run that was taken for new meanwhile needs no read: all must share one state and one lock.
            if (cached := self._cached.get(run)) is None:
                cached = self._cached[run] = CachedRun.folded(state, stored, prompts, answer.as_of)
            return cached
        finally:
            # A callback of the task would run later: a handler that invalidates the state before that would get the
            # same state again and again, in a loop that never yields.
            del self._reading[run]

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        async def in_turn() -> T:
            async with self._places:
                return await read()

        return await retry(in_turn, self._clock.sleep, pauses=_PAUSES)

    async def ask_again(self, cached: CachedRun) -> None:
        """Invalidate the state unless it is the one behind the journal's last entry. Reading the whole journal again
        could take longer than the answer may be old."""
        with AnswerWait(self._clock) as answer:
            last = await self._patiently(lambda: self._journal.last(cached.run.tree, cached.run.id))
        if last == cached.seq:
            cached.as_of = answer.as_of
        else:
            self.invalidate(cached)

    def invalidate(self, cached: CachedRun) -> None:
        """Mark the state as unreliable: the next reader folds the journal again."""
        cached.invalid = True
        self.forget(cached)

    def forget(self, cached: CachedRun) -> None:
        if self._cached.get(cached.run.id) is cached:
            del self._cached[cached.run.id]


async def read_run(journal: Journal, run: str) -> Run:
    """Return the state of a run that this process does not work on. Raises BusUnavailable."""
    tree = tree_of(run)
    return fold((stored.entry for stored in await journal.read(tree, run)), run, tree)


log = logging.getLogger("cadre.runner")

MOST_PROMPTS = 16
"""Prompts of other revisions that a process keeps compiled."""


class PinnedPrompts:
    """The prompts of one service, and those of the runs that began with others.

    `own` are the service's. They are stored once per start, under the digest of their texts, which a run's journal
    names: a replica that was started from other files reads them there.
    """

    def __init__(self, own: Prompts, blobs: Blobs | None = None) -> None:
        self.own = own
        self.ref = ""
        """The reference under which new runs find `own` again; "" before they are stored."""
        self._blobs = blobs
        self._known = Recent[str, Prompts](MOST_PROMPTS)

    async def store(self) -> None:
        """Store the service's own prompts. Raises RetryableError."""
        if self._blobs is not None:
            self.ref = await self._blobs.put(self.own.encoded)

    async def find(self, ref: str) -> Prompts:
        """Return the prompts of that reference; the service's own for "" and where they are gone. Raises
        BusUnavailable."""
        if ref in ("", self.own.ref) or self._blobs is None:
            return self.own
        prompts = self._known.get(ref)
        if prompts is None:
            prompts = await self._read(ref, self._blobs)
        self._known[ref] = prompts
        return prompts

    async def _read(self, ref: str, blobs: Blobs) -> Prompts:
        try:
            return await read_prompts(ref, blobs)
        except (BlobMissing, PromptError) as error:
            log.warning("runs go on with other prompts than they began with: %s", error)
            return self.own


async def read_prompts(ref: str, blobs: Blobs) -> Prompts:
    """Return the prompts of that reference, or those of the installed version if they are the very same. Raises
    BlobMissing, PromptError, BusUnavailable."""
    try:
        return Prompts.decode(ref, await blobs.get(ref))
    except (BlobMissing, PromptError):
        found = next((one for one in map(Prompts.load, shipped_names()) if one.ref == ref), None)
        if found is None:
            raise
        return found
