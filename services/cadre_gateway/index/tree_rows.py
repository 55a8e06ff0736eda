"""A tree as rows of the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from cadre.api.approvals import PendingCall
from cadre.api.runs import RunSummary
from cadre_gateway.index.database.dialect import Dialect
from cadre_gateway.index.database.port import Row, SqlQuery, Statement, Value
from cadre_gateway.index.decided_approvals import DecidedCall
from cadre_gateway.index.tree_record import Tombstone, TreeRecord
from cadre_gateway.index.tree_runs import TreeRuns

_summary = msgspec.json.Decoder(RunSummary)
_pending = msgspec.json.Decoder(PendingCall)
_decided = msgspec.json.Decoder(DecidedCall)

_TREE = (
    "INSERT INTO trees (tree, first, last, newest, ended_at, unstarted_at, erased_seq, erased_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tree) DO UPDATE SET first = excluded.first, last = excluded.last,"
    " newest = excluded.newest, ended_at = excluded.ended_at, unstarted_at = excluded.unstarted_at,"
    " erased_seq = excluded.erased_seq, erased_at = excluded.erased_at"
)
_RUN = (
    "INSERT INTO runs (id, tree, parent, root, agent, state, waiting_for, approvals, asked_at, started_at, ended_at,"
    " session, person, error, cost, revision, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, state = excluded.state,"
    " waiting_for = excluded.waiting_for, approvals = excluded.approvals, asked_at = excluded.asked_at,"
    " started_at = excluded.started_at, ended_at = excluded.ended_at, session = excluded.session,"
    " person = excluded.person, error = excluded.error, cost = excluded.cost,"
    " revision = excluded.revision, summary = excluded.summary"
)
_OF_TREE = "(SELECT rowid FROM runs WHERE tree = ?)"
_OF_RUN = "(SELECT rowid FROM runs WHERE id = ?)"

# In the order in which they are carried out: what goes, what comes, what belongs to it.
_ORDER = (
    _NO_TEXTS := f"DELETE FROM run_texts WHERE rowid IN {_OF_TREE}",
    _NO_RUNS := "DELETE FROM runs WHERE tree = ?",
    _NO_BLOBS := "DELETE FROM blobs WHERE tree = ?",
    _NO_LABELS := "DELETE FROM labels WHERE tree = ?",
    _NO_CALLS := "DELETE FROM calls WHERE tree = ?",
    _NO_TREE := "DELETE FROM trees WHERE tree = ?",
    _TREE,
    _RUN,
    _BLOB := "INSERT INTO blobs (tree, blob) VALUES (?, ?) ON CONFLICT DO NOTHING",
    _LABEL := "INSERT INTO labels (tree, run, name, value) VALUES (?, ?, ?, ?)",
    _CALL := "INSERT INTO calls (call, decided, run, tree, agent, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
    _NO_TEXT := f"DELETE FROM run_texts WHERE rowid = {_OF_RUN}",
    _TEXT
    := "INSERT INTO run_texts (rowid, task, answer) SELECT rowid, {words}, {words} FROM runs WHERE id = ?",
    _ANSWER := f"UPDATE run_texts SET answer = {{words}} WHERE rowid = {_OF_RUN}",
)


class IndexedTree:
    """What the index knows of one tree."""

    def __init__(self, tree: str) -> None:
        self.record = TreeRecord(tree)
        self.runs = TreeRuns(tree)
        self.is_forgotten = False
        """What was saved of it does not count any more."""

    def forget(self) -> list[str]:
        """Forgets all but that the tree was erased; returns the blobs that it referenced."""
        self.runs, self.is_forgotten = TreeRuns(self.record.tree), True
        return self.record.forget()

    def lift_erasure(self) -> None:
        """Takes in that the tree was imported: what follows belongs to it, even if it was erased."""
        if self.record.erased is not None:
            self.record.erased, self.is_forgotten = None, True

    def saved(self) -> None:
        """Takes note that all of it was saved."""
        self.record.saved()
        self.runs.saved()
        self.is_forgotten = False


def queries_of(tree: str) -> list[SqlQuery]:
    """What to ask for to make a tree from the answers."""
    return [
        SqlQuery(
            "SELECT first, last, newest, ended_at, unstarted_at, erased_seq, erased_at FROM trees WHERE tree = ?",
            (tree,),
        ),
        SqlQuery("SELECT blob FROM blobs WHERE tree = ?", (tree,)),
        SqlQuery("SELECT summary FROM runs WHERE tree = ? ORDER BY started_at, id", (tree,)),
        SqlQuery("SELECT decided, body FROM calls WHERE tree = ? ORDER BY at, call", (tree,)),
    ]


def tree_of_rows(tree: str, answers: list[list[Row]]) -> IndexedTree:
    """The tree that was saved; an empty one for no rows."""
    found = IndexedTree(tree)
    heads, blobs, summaries, calls = answers
    record, runs = found.record, found.runs
    for runs.first, runs.last, record.last, record.ended_at, record.unstarted_at, seq, at in heads:
        record.erased = Tombstone(seq, at) if seq is not None else None
    record.blobs = [blob for (blob,) in blobs]
    for (body,) in summaries:
        summary = _summary.decode(body)
        runs.runs[summary.id] = summary
    for is_decided, body in calls:
        if is_decided:
            runs.decided.append(_decided.decode(body))
        else:
            call = _pending.decode(body)
            runs.pending.setdefault(call.run, {})[call.call] = call
    return found


def statements_for(dialect: Dialect, trees: Iterable[IndexedTree]) -> list[Statement]:
    """What saves the changes of the trees."""
    rows: defaultdict[str, list[tuple[Value, ...]]] = defaultdict(list)
    for tree in trees:
        _collect(tree, rows, dialect.words_of)
    return [Statement(sql.format(words=dialect.word_value), rows[sql]) for sql in _ORDER if sql in rows]


def _collect(
    tree: IndexedTree, rows: defaultdict[str, list[tuple[Value, ...]]], words_of: Callable[[str], str]
) -> None:
    record, runs, name = tree.record, tree.runs, tree.record.tree
    if tree.is_forgotten:
        for sql in (_NO_TEXTS, _NO_RUNS, _NO_BLOBS, _NO_LABELS, _NO_CALLS, _NO_TREE):
            rows[sql].append((name,))
    if not record.last and record.erased is None and not runs.runs:
        return
    erased = record.erased or (None, None)
    rows[_TREE].append(
        (name, runs.first, runs.last, record.last, record.ended_at, record.unstarted_at, *erased)
    )
    rows[_BLOB].extend((name, blob) for blob in record.new_blobs)
    for run in runs.changed_runs:
        if (summary := runs.runs.get(run)) is not None:
            rows[_RUN].append(_row_of(summary))
    if name in runs.changed_runs and (root := runs.runs.get(name)) is not None and root.labels:
        rows[_NO_LABELS].append((name,))
        rows[_LABEL].extend((name, name, label, value) for label, value in root.labels.items())
    if runs.changed_calls:
        rows[_NO_CALLS].append((name,))
        rows[_CALL].extend(_rows_of_calls(runs))
    for run, text in runs.changed_texts.items():
        if text.task is None:
            rows[_ANSWER].append((words_of(text.answer or ""), run))
        else:
            rows[_NO_TEXT].append((run,))
            rows[_TEXT].append((words_of(text.task), words_of(text.answer or ""), run))


def _row_of(run: RunSummary) -> tuple[Value, ...]:
    return (
        run.id,
        run.tree,
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
        run.error.type if run.error is not None else None,
        run.usage.cost,
        run.revision,
        msgspec.json.encode(run),
    )


def _rows_of_calls(runs: TreeRuns) -> Iterable[tuple[Value, ...]]:
    for calls in runs.pending.values():
        for call in calls.values():
            at = call.requested_at
            yield call.call, 0, call.run, call.tree, call.agent, at, msgspec.json.encode(call)
    for decided in runs.decided:
        at, asked = decided.place[0], decided.asked
        yield asked.call, 1, asked.run, asked.tree, asked.agent, at, msgspec.json.encode(decided)
