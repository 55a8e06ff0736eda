"""A tree as rows of the tables: each is a function of the tree's entries up to its `seq`, whichever gateway writes it.

Several gateways may write the same tree at once. Its row in `trees` comes first and is locked by that until the
transaction ends. A row gives way to none that is older, and none comes that is not above the tree's floor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from cadre.api.runs import PendingCall, RunSummary
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.protocol.messages import Task
from cadre.protocol.tagged import for_people
from cadre.views.held_calls import DecidedCall
from cadre.views.story import Story, Update
from cadre_gateway.index.database.port import Dialect, Row, SqlQuery, Statement, Value
from cadre_gateway.index.tree_record import Tombstone, TreeRecord

CALL_WAITS, CALL_DECIDED, CALL_GONE, CALL_OF_CALLER = 0, 1, 2, 3
"""The states of a call's row. A call that is gone keeps its row: one that is deleted could come back."""

BY_THIS_ALONE = ""
"""In place of a reader: what has changed a tree in this gateway, and not alike in all others."""

_summary = msgspec.json.Decoder(RunSummary)
_pending = msgspec.json.Decoder(PendingCall)
_decided = msgspec.json.Decoder(DecidedCall)

_RUN_COLUMNS = (
    *(
        "id",
        "tree",
        "seq",
        "parent",
        "root",
        "agent",
        "state",
        "waiting_for",
        "approvals",
        "asked_at",
        "started_at",
    ),
    *("ended_at", "session", "person", "error", "cost", "revision", "summary"),
)


def _insert(table: str, columns: Sequence[str], key: str) -> str:
    """Return what inserts a row above the floor of its tree, which is the value behind those of the columns (twice)."""
    changed = ", ".join(f"{one} = excluded.{one}" for one in columns if one not in key.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join('?' * len(columns))} WHERE NOT EXISTS"
        f" (SELECT 1 FROM trees WHERE tree = ? AND floor >= ?) ON CONFLICT ({key}) DO UPDATE SET {changed}"
        f" WHERE {table}.seq < excluded.seq"
    )


_OF_RUN = "(SELECT rowid FROM runs WHERE id = ? AND seq = ?)"
"""The run whose row this transaction has written, or found as it would have."""

# In the order in which they are carried out: the tree, which is locked, what goes, what comes, what belongs to it.
_ORDER = (
    _TREE := (
        "INSERT INTO trees (tree, seq, floor, ended_at, unstarted_at, erased_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (tree) DO UPDATE SET seq = excluded.seq,"
        " floor = CASE WHEN trees.floor > excluded.floor THEN trees.floor ELSE excluded.floor END,"
        " ended_at = excluded.ended_at, unstarted_at = excluded.unstarted_at, erased_at = excluded.erased_at"
        " WHERE trees.seq < excluded.seq"
    ),
    _RESET := (
        "UPDATE trees SET floor = CASE WHEN floor > ? THEN floor ELSE ? END, unstarted_at = ?"
        " WHERE tree = ? AND seq <= ?"
    ),
    _NO_TEXTS := ("DELETE FROM run_texts WHERE rowid IN (SELECT rowid FROM runs WHERE tree = ? AND seq <= ?)"),
    *(_NOTHING := [f"DELETE FROM {one} WHERE tree = ? AND seq <= ?" for one in ("runs", "blobs", "labels", "calls")]),
    _RUN := _insert("runs", _RUN_COLUMNS, "id") + " OR runs.state = 'queued'",
    _QUEUED := _RUN.partition(" DO UPDATE")[0] + " DO NOTHING",
    _BLOB := _insert("blobs", ["tree", "blob", "seq"], "tree, blob"),
    _LABEL := _insert("labels", ["tree", "run", "seq", "name", "value"], "run, name"),
    _CALL := _insert(
        "calls",
        ["call", "asked_at", "tree", "seq", "state", "run", "agent", "name", "verdict", "at", "body"],
        "call, asked_at",
    ),
    _NO_TEXT := f"DELETE FROM run_texts WHERE rowid = {_OF_RUN}",
    _TEXT := (
        "INSERT INTO run_texts (rowid, task, answer) SELECT rowid, {words}, {words} FROM runs WHERE id = ? AND seq = ?"
    ),
    _ANSWER := f"UPDATE run_texts SET answer = {{words}} WHERE rowid = {_OF_RUN}",
)


class IndexedTree:
    """The index's knowledge of one tree."""

    def __init__(self, tree: str) -> None:
        self.record = TreeRecord(tree)
        self.runs = TreeRuns(tree)
        self.unsaved: dict[str, float] = {}
        """By reader: the sequence of the last message that changed it since it was saved."""
        self._saved_head = self.record.head
        self._is_reset = False
        """Rows that were saved do not count any more, or its run has begun without an entry."""

    def forget(self) -> list[str]:
        """Forget all but that the tree was erased; returns the blobs that it referenced."""
        self.runs, self._is_reset = TreeRuns(self.record.tree), True
        return self.record.forget()

    def note_started(self) -> None:
        """Take note that its files are not to be removed, or are being removed."""
        self.record.unstarted_at, self._is_reset = None, True

    def note_message(self, reader: str, seq: float) -> None:
        """Take note of the message that was taken in, if it has changed anything."""
        runs, record = self.runs, self.record
        if (
            self._is_reset
            or record.head != self._saved_head
            or record.new_blobs
            or runs.changed_runs
            or runs.changed_calls
        ):
            self.unsaved[reader] = max(seq, self.unsaved.get(reader, 0))

    def is_saved(self, place: Mapping[str, int]) -> bool:
        """Return whether another gateway has saved all of it that saves up to that place."""
        return all(seq <= place.get(reader, 0) for reader, seq in self.unsaved.items())

    def saved(self) -> None:
        """Take note that all of it was saved."""
        self.unsaved.clear()
        self.record.new_blobs.clear()
        self.runs.saved()
        self._saved_head, self._is_reset = self.record.head, False

    @classmethod
    def of_rows(cls, tree: str, answers: list[list[Row]]) -> IndexedTree:
        """Return the tree that was saved, from the answers to `queries_of`; an empty one for no rows."""
        found = cls(tree)
        heads, blobs, summaries, calls = answers
        record, runs = found.record, found.runs
        for record.seq, record.floor, record.ended_at, record.unstarted_at, erased_at in heads:
            record.erased = Tombstone(record.floor, erased_at) if erased_at is not None else None
        runs.story.last = record.last
        record.blobs = [blob for (blob,) in blobs]
        runs.story.summaries = {one.id: one for one in (_summary.decode(body) for (body,) in summaries)}
        for state, body in calls:
            if state == CALL_DECIDED:
                runs.decided.append(_decided.decode(body))
            else:
                call = _pending.decode(body)
                runs.story.pending.setdefault(call.run, {})[call.call] = call
        found._saved_head = record.head
        return found

    def rows(self, words_of: Callable[[str], str]) -> Iterator[tuple[str, tuple[Value, ...]]]:
        """Return what saves its changes: statements of `_ORDER`, each with the values of a row."""
        record, runs, name = self.record, self.runs, self.record.tree
        yield _TREE, (name, *record.head)
        if self._is_reset:
            yield _RESET, (record.floor, record.floor, record.unstarted_at, name, record.seq)
            for sql in (_NO_TEXTS, *_NOTHING):
                yield sql, (name, record.floor)
        for run, seq in runs.changed_runs.items():
            summary = runs.story.summaries[run]
            yield _QUEUED if summary.state == "queued" else _RUN, (*_row_of(summary, seq), name, seq)
        for blob, seq in record.new_blobs.items():
            yield _BLOB, (name, blob, seq, name, seq)
        for call in self._rows_of_calls():
            yield _CALL, (*call, name, call[3])
        for run, text in runs.changed_texts.items():
            seq = runs.changed_runs[run]
            if text.task is None:
                yield _ANSWER, (words_of(text.answer or ""), run, seq)
                continue
            yield _NO_TEXT, (run, seq)
            yield _TEXT, (words_of(text.task), words_of(text.answer or ""), run, seq)
            for label, value in runs.story.summaries[run].labels.items() if run == name else ():
                yield _LABEL, (name, run, seq, label, value, name, seq)

    def _rows_of_calls(self) -> Iterator[tuple[Value, ...]]:
        if not self.runs.changed_calls:
            return
        name = self.record.tree
        decided = {key_of(one.asked): one for one in self.runs.decided}
        pending = {key_of(one): one for of_run in self.runs.story.pending.values() for one in of_run.values()}
        for key, seq in self.runs.changed_calls.items():
            if (call := pending.get(key)) is not None:
                body = msgspec.json.encode(call)
                state = CALL_OF_CALLER if call.kind == "function" else CALL_WAITS
                yield *key, name, seq, state, call.run, call.agent, call.name, "", call.requested_at, body
            elif (ruled := decided.get(key)) is not None:
                at, asked, body = ruled.place[0], ruled.asked, msgspec.json.encode(ruled)
                verdict = ruled.decision.verdict
                yield *key, name, seq, CALL_DECIDED, asked.run, asked.agent, asked.name, verdict, at, body
            else:
                yield *key, name, seq, CALL_GONE, "", "", "", "", 0.0, b""


def queries_of(tree: str) -> list[SqlQuery]:
    """Return what to ask for to make a tree from the answers."""
    return [
        SqlQuery("SELECT seq, floor, ended_at, unstarted_at, erased_at FROM trees WHERE tree = ?", (tree,)),
        SqlQuery("SELECT blob FROM blobs WHERE tree = ?", (tree,)),
        SqlQuery("SELECT summary FROM runs WHERE tree = ? ORDER BY started_at, id", (tree,)),
        SqlQuery("SELECT state, body FROM calls WHERE tree = ? AND state <> ? ORDER BY at, call", (tree, CALL_GONE)),
    ]


def statements_for(dialect: Dialect, trees: Iterable[IndexedTree]) -> list[Statement]:
    """Return what saves the changes of the trees, in the order of their names: two gateways that lock the same trees
    never wait for each other."""
    rows: defaultdict[str, list[tuple[Value, ...]]] = defaultdict(list)
    for tree in sorted(trees, key=lambda one: one.record.tree):
        for sql, values in tree.rows(dialect.words_of):
            rows[sql].append(values)
    return [Statement(sql.format(words=dialect.word_value), rows[sql]) for sql in _ORDER if sql in rows]


def _row_of(run: RunSummary, seq: int) -> tuple[Value, ...]:
    return (
        run.id,
        run.tree,
        seq,
        run.parent,
        int(run.id == run.tree),
        run.agent,
        run.state,
        run.waiting_for,
        run.approvals,
        run.asked_at,
        run.started_at,
        run.ended_at,
        run.session,
        run.user,
        run.error.code if run.error is not None else None,
        run.usage.cost,
        run.revision,
        msgspec.json.encode(run),
    )


MAX_TEXT_CHARS = 20_000
"""So much of a run's task, and of its answer, can be searched."""

MAX_DECIDED = 200
"""Decided calls that the list keeps of one tree; the journals have them all."""


class RunTexts(NamedTuple):
    """The texts by which a run can be found; None: they are not known (any more)."""

    task: str | None = None
    answer: str | None = None


class CallKey(NamedTuple):
    """Names one question to a person: the same call may be asked about again."""

    call: str
    asked_at: float


def key_of(call: PendingCall) -> CallKey:
    """Return the key of what waits for a person."""
    return CallKey(call.call, call.requested_at)


class TreeRuns:
    """All known runs of a delegation tree, with the sequence of the last message that changed each row."""

    def __init__(self, tree: str) -> None:
        self.story = Story(tree)
        self.decided: list[DecidedCall] = []
        """The calls that were decided last, the oldest first."""
        self.changed_runs: dict[str, int] = {}
        self.changed_texts: dict[str, RunTexts] = {}
        self.changed_calls: dict[CallKey, int] = {}

    def add_task(self, seq: int, task: Task) -> None:
        """Take in the task of the root at `seq`."""
        if self.story.add_task(task).runs:
            self.changed_runs[task.run] = seq
            self.changed_texts[task.run] = _texts_of(task)

    def apply(self, seq: int, entry: Entry) -> None:
        """Take in the entry at `seq`; one that was taken in before changes nothing."""
        known = self.story.summaries.get(entry.run)
        was_queued = known is not None and known.state == "queued"
        update = self.story.take(seq, entry)
        if not update.runs:
            return
        self.changed_runs |= dict.fromkeys(update.runs, seq)
        for event in entry.events:
            if not (was_queued and type(event) is RunAccepted):  # its text was noted with its task
                self._note_text(entry.run, event)
        self._note_calls(seq, update)

    def saved(self) -> None:
        """Take note that all of it was saved."""
        self.changed_runs.clear()
        self.changed_texts.clear()
        self.changed_calls.clear()

    def _note_text(self, run: str, event: msgspec.Struct) -> None:
        if type(event) is RunAccepted:
            self.changed_texts[run] = _texts_of(event.task)
        elif type(event) is RunFinished and event.output is not None:
            shown = for_people(event.output)
            text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
            before = self.changed_texts.get(run, RunTexts())
            self.changed_texts[run] = before._replace(answer=text[:MAX_TEXT_CHARS])

    def _note_calls(self, seq: int, update: Update) -> None:
        changed = [*update.held, *update.gone]
        # What a program has answered is no decision of a person.
        if ruled := [one for one in update.decided if one.asked.kind != "function"]:
            known = [*self.decided, *ruled]
            self.decided = known[-MAX_DECIDED:]
            changed += [one.asked for one in known[:-MAX_DECIDED]]
        self.changed_calls |= {key_of(call): seq for call in changed}


def _texts_of(task: Task) -> RunTexts:
    return RunTexts(task.task[:MAX_TEXT_CHARS])
