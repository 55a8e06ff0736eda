"""The embedded store: one SQLite file keeps the points; numpy filters them and compares their vectors in memory.

Fields and vectors are kept in memory (1.7 KB for a point of 384 dimensions), texts and words in the file only. There is
no graph: a search reads exactly what its filter leaves. One thread does all work; SQLite and numpy release the
interpreter meanwhile, so that the service's loop goes on.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from cadre_memory.bm25 import SparseVector
from cadre_memory.index import vector_index
from cadre_memory.index.vector_index import (
    PREFETCH,
    RRF_K,
    AllOf,
    AnyOf,
    Backend,
    Between,
    CollectionGone,
    Condition,
    Equal,
    Ids,
    IndexRefused,
    IndexUnavailable,
    Not,
    OneOf,
    Point,
    PointRecord,
    PointSelector,
    Query,
    RecordPage,
    ScoredPoint,
    Store,
    condition_of,
    visible,
)

FILE = "memory.sqlite"
_OWNER = "owner"
_CACHE_KB = 8_192
_WAL_BYTES = 8 * 1024 * 1024

_TABLES = """
CREATE TABLE IF NOT EXISTS collections (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE IF NOT EXISTS aliases (name TEXT PRIMARY KEY, collection TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS points (
    number INTEGER PRIMARY KEY, collection INTEGER NOT NULL, id TEXT NOT NULL,
    words BLOB NOT NULL, vectors BLOB NOT NULL, payload TEXT NOT NULL,
    UNIQUE (collection, id)
) STRICT;
CREATE TABLE IF NOT EXISTS words (
    word INTEGER NOT NULL, point INTEGER NOT NULL, weight REAL NOT NULL,
    PRIMARY KEY (word, point)
) STRICT, WITHOUT ROWID;
"""

_TEXTS = (vector_index.OWNER, *vector_index.KEYWORDS)
_TYPES = {
    "number": "i8",
    "there": "?",
    **dict.fromkeys(_TEXTS, "i4"),
    **dict.fromkeys(vector_index.NUMBERS, "f8"),
}

T = TypeVar("T")
Mask = NDArray[np.bool_]
Slots = NDArray[np.intp]
Floats = NDArray[np.float32]


class Columns:
    """The searchable parts of a collection's points, in memory: fields and vectors, by slot, in order of storing."""

    def __init__(self, number: int, dim: int | None) -> None:
        self.number = number
        self.ids: list[str] = []
        self._slots: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._room = 256
        self._fields: dict[str, NDArray[Any]] = {name: np.zeros(256, type) for name, type in _TYPES.items()}
        self._vectors = np.zeros((256 if dim else 0, dim or 1), np.float32)
        self._slot_of_vector = np.zeros(len(self._vectors), np.intp)
        self._filled = 0

    @classmethod
    def load(cls, file: sqlite3.Connection, collection: str) -> Self:
        """Read them from the file. Raise CollectionGone."""
        found = file.execute("SELECT number FROM collections WHERE name = ?", [collection]).fetchone()
        if found is None:
            raise CollectionGone(f"there is no collection {collection}")
        columns = cls(found[0], vector_index.dim_of(collection))
        stored = "SELECT number, id, payload, vectors FROM points WHERE collection = ? ORDER BY number"
        for number, id, payload, vectors in file.execute(stored, found):
            columns.add(number, id, msgspec.json.decode(payload), vectors)
        return columns

    def field(self, name: str) -> NDArray[Any]:
        """Return a field of all points, by slot."""
        return self._fields[name][: len(self.ids)]

    @property
    def wasteful(self) -> bool:
        """Return whether most slots are of points that were removed."""
        return len(self.ids) > 2 * len(self._slots) + 1000

    def number_of(self, id: str) -> int | None:
        """Return the number of a point in the file; None when there is no such point."""
        slot = self._slots.get(id)
        return None if slot is None else int(self._fields["number"][slot])

    def add(self, number: int, id: str, payload: dict[str, Any], vectors: bytes) -> None:
        """Add a point whose number is higher than all before."""
        slot = len(self.ids)
        if slot == self._room:
            self._room *= 2
            self._fields = {name: np.resize(values, self._room) for name, values in self._fields.items()}
        self._fields["number"][slot] = number
        self._fields["there"][slot] = True
        for name in _TEXTS:
            self._fields[name][slot] = self._codes.setdefault(payload.get(name, ""), len(self._codes))
        for name in vector_index.NUMBERS:
            value = payload.get(name)
            self._fields[name][slot] = np.nan if value is None else value
        self.ids.append(id)
        self._slots[id] = slot
        self._put(slot, vectors)

    def embed(self, id: str, vectors: bytes) -> None:
        """Add the vectors of a point that has none yet, and mark it as done."""
        slot = self._slots[id]
        self._fields["embed_state"][slot] = self._codes.setdefault("done", len(self._codes))
        self._slot_of_vector[: self._filled][self._slot_of_vector[: self._filled] == slot] = -1
        self._put(slot, vectors)

    def remove(self, slots: Iterable[int]) -> None:
        """Remove points by their slots."""
        for slot in slots:
            del self._slots[self.ids[slot]]
            self._fields["there"][slot] = False

    def _put(self, slot: int, vectors: bytes) -> None:
        windows = np.frombuffer(vectors, np.float32).reshape(-1, self._vectors.shape[1])
        until = self._filled + len(windows)
        while until > len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
            self._slot_of_vector = np.concatenate([self._slot_of_vector, np.zeros_like(self._slot_of_vector)])
        self._vectors[self._filled : until] = windows
        self._slot_of_vector[self._filled : until] = slot
        self._filled = until

    def mask(self, condition: Condition) -> Mask:
        """Return for each slot whether its point is there and fits."""
        there: Mask = self.field("there")
        return self._fits(condition) & there

    def _fits(self, condition: Condition) -> Mask:
        fits: Mask = np.ones(len(self.ids), bool)
        match condition:
            case Equal(field, value):
                fits = self.field(field) == self._codes.get(value, -1)
            case OneOf(field, values):
                fits = np.isin(self.field(field), [self._codes.get(value, -1) for value in values])
            case Between(field, least, most):
                found = self.field(field)
                fits = ~np.isnan(found)
                if least is not None:
                    fits &= found >= least
                if most is not None:
                    fits &= found <= most
            case Ids(ids):
                fits[:] = False
                fits[[self._slots[id] for id in ids if id in self._slots]] = True
            case Not(part):
                fits = ~self._fits(part)
            case AnyOf(parts):
                fits = np.logical_or.reduce([self._fits(one) for one in parts])
            case AllOf(parts):
                fits = np.logical_and.reduce([fits, *map(self._fits, parts)])
        return fits

    def by_meaning(self, query: list[float], wanted: Mask) -> tuple[Slots, Floats]:
        """Return slots, and the cosine of the best window of each."""
        slots = self._slot_of_vector[: self._filled]
        of_wanted = np.flatnonzero(wanted[slots] & (slots >= 0))
        vectors = self._vectors[: self._filled]
        if len(of_wanted) < self._filled:
            slots, vectors = slots[of_wanted], vectors[of_wanted]
        best = np.full(len(self.ids), -np.inf, np.float32)
        np.maximum.at(best, slots, vectors @ _unit([query])[0])
        found = np.flatnonzero(best > -np.inf)
        return found, best[found]

    def by_words(
        self, query: SparseVector, words: list[tuple[int, int, float]], wanted: Mask, corpus: Mask
    ) -> tuple[Slots, Floats]:
        """Return slots and BM25 scores. `words` has (word, number of a point, weight) of the query's words; how rare
        a word is counts within the corpus."""
        found = np.array(words, [("word", "i8"), ("point", "i8"), ("weight", "f8")])
        numbers = self.field("number")
        slots = np.searchsorted(numbers, found["point"])
        known = slots < len(numbers)
        known[known] = numbers[slots[known]] == found["point"][known]
        known[known] = corpus[slots[known]]
        found, slots = found[known], slots[known]
        distinct, which, points = np.unique(found["word"], return_inverse=True, return_counts=True)
        size = np.count_nonzero(corpus)
        asked = dict(zip(*query, strict=True))
        weights = np.log((size - points + 0.5) / (points + 0.5) + 1) * [asked[one] for one in distinct.tolist()]
        scores = np.zeros(len(self.ids), np.float32)
        np.add.at(scores, slots, weights[which] * found["weight"])
        hits = np.unique(slots[wanted[slots]])
        return hits, scores[hits]


class SqliteStore(Store):
    """Keeps all collections in a file of a directory that it owns. A write is on the disk when it returns."""

    backend: Backend = "sqlite"

    def __init__(self, directory: Path, lock_seconds: float) -> None:
        """Open the file on the caller's thread; `open` says how."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory, lock_seconds)
        except OSError as error:
            raise IndexRefused(f"{directory} cannot be opened: {error}") from error
        try:
            self._file = _connection(directory / FILE)
            [self._last] = self._file.execute("SELECT coalesce(max(number), 0) FROM points").fetchone()
        except sqlite3.Error as error:
            self._lock.close()
            raise IndexRefused(f"{directory / FILE} cannot be opened: {error}") from error
        self._thread = ThreadPoolExecutor(1, "memory-index")
        self._columns: dict[str, Columns] = {}
        self._closed = False

    @classmethod
    async def open(cls, directory: Path, *, lock_seconds: float = 10.0) -> Self:
        """Open the file, and create it if it does not exist; a former owner may take `lock_seconds` to end.

        Raise IndexRefused when another process has the directory, or the file cannot be read.
        """
        return await asyncio.to_thread(cls, directory, lock_seconds)

    async def collections(self) -> list[str]:
        return await self._do(
            lambda: [name for (name,) in self._file.execute("SELECT name FROM collections ORDER BY number")]
        )

    async def create(self, collection: str) -> None:
        created = "INSERT OR IGNORE INTO collections (name) VALUES (?)"
        await self._do(lambda: self._file.execute(created, [collection]))

    async def drop(self, collection: str) -> None:
        def drop() -> None:
            try:
                columns = self._of(collection)
            except CollectionGone:
                return
            self._remove(columns, np.flatnonzero(columns.field("there")))
            self._columns.pop(collection)
            self._file.execute("DELETE FROM collections WHERE name = ?", [collection])

        await self._do(drop)
        await self._wipe()

    async def aliases(self) -> dict[str, str]:
        return await self._do(lambda: dict(self._file.execute("SELECT name, collection FROM aliases")))

    async def set_aliases(self, aliases: dict[str, str | None]) -> None:
        def set_all() -> None:
            for name, collection in aliases.items():
                if collection is None:
                    self._file.execute("DELETE FROM aliases WHERE name = ?", [name])
                else:
                    self._of(collection)
                    self._file.execute("REPLACE INTO aliases VALUES (?, ?)", [name, collection])

        await self._do(set_all)

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        def upsert() -> None:
            columns = self._of(collection)
            rows: list[tuple[object, ...]] = []
            words: list[tuple[int, int, float]] = []
            for point in {one.id: one for one in points}.values():
                if columns.number_of(point.id) is not None:
                    if only_new:
                        continue
                    self._remove(columns, np.flatnonzero(columns.mask(Ids([point.id]))))
                self._last += 1
                vectors = _unit(point.dense).tobytes() if point.dense else b""
                payload = msgspec.json.encode(point.payload).decode()
                indices, weights = point.sparse
                encoded = msgspec.msgpack.encode(indices)
                rows.append((self._last, columns.number, point.id, encoded, vectors, payload))
                words += zip(indices, itertools.repeat(self._last), weights, strict=False)
                columns.add(self._last, point.id, point.payload, vectors)
            self._file.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._file.executemany("INSERT INTO words VALUES (?, ?, ?)", sorted(words))

        await self._do(upsert)

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        def set_dense() -> None:
            columns = self._of(collection)
            for id, windows in vectors.items():
                if (number := columns.number_of(id)) is not None:
                    made = _unit(windows).tobytes()
                    self._file.execute(
                        "UPDATE points SET vectors = ?, payload = json_set(payload, '$.embed_state', 'done')"
                        " WHERE number = ?",
                        [made, number],
                    )
                    columns.embed(id, made)

        await self._do(set_dense)

    async def search(self, collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        condition = condition_of(selector)
        seen = AllOf([]) if selector.within is None else visible(selector.within)

        def search() -> list[ScoredPoint]:
            columns = self._of(collection)
            wanted = columns.mask(condition)
            legs: list[tuple[Slots, Floats]] = []
            if query.dense is not None:
                legs.append(columns.by_meaning(query.dense, wanted))
            if query.sparse is not None:
                words = self._file.execute(
                    "SELECT word, point, weight FROM words WHERE word IN (SELECT value FROM json_each(?))",
                    [msgspec.json.encode(query.sparse.indices).decode()],
                ).fetchall()
                legs.append(columns.by_words(query.sparse, words, wanted, columns.mask(seen)))
            if len(legs) == 1:
                best = _best(*legs[0], query.limit)
            else:
                best = _fused([_best(*leg, max(PREFETCH, query.limit)) for leg in legs])[: query.limit]
            payloads = self._payloads(columns, [slot for slot, _ in best])
            return [ScoredPoint(columns.ids[slot], payloads[slot], score) for slot, score in best]

        return await self._do(search)

    async def scroll(
        self,
        collection: str,
        selector: PointSelector,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> RecordPage:
        condition = condition_of(selector)

        def scroll() -> RecordPage:
            columns = self._of(collection)
            found = np.flatnonzero(columns.mask(condition)).tolist()
            ids = sorted((columns.ids[slot], slot) for slot in found if columns.ids[slot] >= (after or ""))
            payloads = self._payloads(columns, [slot for _, slot in ids[:limit]])
            records = [
                PointRecord(
                    id,
                    {name: value for name, value in payloads[slot].items() if fields is None or name in fields},
                )
                for id, slot in ids[:limit]
            ]
            return RecordPage(records, ids[limit][0] if len(ids) > limit else None)

        return await self._do(scroll)

    async def count(self, collection: str, selector: PointSelector) -> int:
        condition = condition_of(selector)
        return await self._do(lambda: int(np.count_nonzero(self._of(collection).mask(condition))))

    async def delete(self, collection: str, selector: PointSelector) -> int:
        condition = condition_of(selector)

        def delete() -> int:
            columns = self._of(collection)
            gone = np.flatnonzero(columns.mask(condition))
            self._remove(columns, gone)
            return len(gone)

        gone = await self._do(delete)
        if gone:
            await self._wipe()
        return gone

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()
        self._lock.close()

    async def _wipe(self) -> None:
        """Empty the write-ahead log: what was removed is then in no file."""
        await self._in_thread(lambda: self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())

    async def _do(self, work: Callable[[], T]) -> T:
        """Return what one transaction gives. Raise IndexUnavailable when SQLite fails, or the store is closed."""

        def transact() -> T:
            try:
                with self._file:
                    self._file.execute("BEGIN")
                    return work()
            except CollectionGone:
                raise
            except BaseException:
                self._columns.clear()  # they may be ahead of the file
                raise

        return await self._in_thread(transact)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise IndexUnavailable("the index is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise IndexUnavailable(f"the index's file failed: {error}") from error

    def _of(self, collection: str) -> Columns:
        columns = self._columns.get(collection)
        if columns is None or columns.wasteful:
            columns = self._columns[collection] = Columns.load(self._file, collection)
        return columns

    def _payloads(self, columns: Columns, slots: list[int]) -> dict[int, dict[str, Any]]:
        payloads = {}
        for slot in slots:
            [payload] = self._file.execute(
                "SELECT payload FROM points WHERE number = ?", [int(columns.field("number")[slot])]
            ).fetchone()
            payloads[slot] = msgspec.json.decode(payload)
        return payloads

    def _remove(self, columns: Columns, slots: Slots) -> None:
        for number in columns.field("number")[slots].tolist():
            [words] = self._file.execute("DELETE FROM points WHERE number = ? RETURNING words", [number]).fetchone()
            self._file.executemany(
                "DELETE FROM words WHERE word = ? AND point = ?",
                ((word, number) for word in msgspec.msgpack.decode(words)),
            )
        columns.remove(slots.tolist())


def _best(slots: Slots, scores: Floats, limit: int) -> list[tuple[int, float]]:
    """Return the highest scores, best first."""
    if len(slots) > limit:
        chosen = np.sort(np.argpartition(-scores, limit - 1)[:limit])
        slots, scores = slots[chosen], scores[chosen]
    order = np.argsort(-scores, kind="stable")
    return list(zip(slots[order].tolist(), scores[order].tolist(), strict=True))


def _fused(legs: list[list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Return what the ranks of each slot add up to, best first."""
    fused: defaultdict[int, float] = defaultdict(float)
    for leg in legs:
        for rank, (slot, _) in enumerate(leg):
            fused[slot] += 1 / (RRF_K + rank)
    return sorted(fused.items(), key=lambda one: (-one[1], one[0]))


def _unit(vectors: list[list[float]]) -> Floats:
    made = np.array(vectors, np.float64)
    unit: Floats = (made / np.linalg.norm(made, axis=-1, keepdims=True)).astype(np.float32)
    return unit


def _connection(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        # What is removed is written over.
        "secure_delete = ON",
        f"cache_size = -{_CACHE_KB}",
        f"journal_size_limit = {_WAL_BYTES}",
    ):
        file.execute(f"PRAGMA {setting}")
    file.executescript(_TABLES)
    return file


def _locked(directory: Path, seconds: float) -> IO[bytes]:
    """Return the file whose lock keeps others from the directory while it is open.

    Raise IndexRefused when another process holds it for longer than `seconds`.
    """
    file = (directory / _OWNER).open("a+b")
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.seek(0)
                holder = file.read().decode(errors="replace").strip()
                file.close()
                raise IndexRefused(
                    f"{directory} is in use by process {holder}: only one memory service can own it; stop the"
                    " other, or give this one another directory"
                ) from None
            # The release of a lock is no event that can be awaited with a bound.
            time.sleep(0.05)
        else:
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            return file
