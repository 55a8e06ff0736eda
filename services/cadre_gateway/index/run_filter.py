"""A filter and an order for lists of runs."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import msgspec

from cadre.api.runs import RunOrder
from cadre.protocol.codes import codes_of
from cadre_gateway.index.database.port import Dialect, SqlQuery, Value

# When a run was asked for stays: one that begins between two pages would move, and be on neither.
_COLUMNS: dict[RunOrder, str] = {"started": "asked_at", "ended": "ended_at", "cost": "cost"}
_MARKS: dict[RunOrder, str] = {"started": "", "ended": "ended:", "cost": "cost:"}
"""The first characters of a place in a list: without them a cost would be taken for a time, and the list would silently
start over."""


class TreeReach(NamedTuple):
    """The trees that a caller reaches: those whose root has one of the agents, and is the person's; None: all."""

    agents: frozenset[str] | None = None
    user: str | None = None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of runs; None: all."""

    agent: str | None = None
    member: str | None = None
    """An agent that has a run in the tree: the root's, or one below it."""
    states: frozenset[str] | None = None
    waiting_for: str | None = None
    session: str | None = None
    user: str | None = None
    parent: str | None = None
    """Runs directly below this one, instead of root runs."""
    since: float | None = None
    """Those that were asked for at this time (Unix seconds) or later."""
    until: float | None = None
    """Those that were asked for before."""
    changed_since: float | None = None
    """Those that began or ended at this time (Unix seconds) or later."""
    min_cost: float | None = None
    error: str | None = None
    """The code, or the type, of the error that they ended with."""
    labels: tuple[tuple[str, str | None], ...] = ()
    """Names and values that it is labelled with, all of them; None: with any value."""
    text: str | None = None
    """Words that all stand in the task or in the answer; the last one may be the beginning of one."""
    conversation: str | None = None
    """The session, or the id of a run without one."""
    has_approvals: bool | None = None
    """True if calls wait for a person, in the run or below it."""
    reach: TreeReach = TreeReach()


class Cursor(NamedTuple):
    """A place in a list: behind the item of this name, which has this value in what the list is ordered by."""

    value: float
    name: str

    def __str__(self) -> str:
        return f"{self.value!r},{self.name}"


def cursor_of(text: str) -> Cursor:
    """Return the place that `text` names. Raises KeyError when it names none."""
    value, comma, name = text.partition(",")
    try:
        found = Cursor(float(value), name)
    except ValueError:
        raise KeyError(text) from None
    if not comma or not isfinite(found.value):
        raise KeyError(text)
    return found


def page_mark(order: RunOrder, place: Cursor) -> str:
    """Return the `before` of the page behind this place of a list in this order."""
    return f"{_MARKS[order]}{place}"


def page_place(order: RunOrder, before: str) -> Cursor:
    """Return the place that a `before` names. Raises KeyError if it is not a place of a list in this order."""
    mark = _MARKS[order]
    if not before.startswith(mark):
        raise KeyError(before)
    return cursor_of(before.removeprefix(mark))


def page_query(dialect: Dialect, wanted: RunFilter, order: RunOrder, limit: int, before: Cursor | None) -> SqlQuery:
    """Ask for the summaries of a page, each with the value that it is ordered by."""
    column = _COLUMNS[order]
    conditions, values = _conditions(dialect, wanted)
    if order == "ended":
        conditions.append("ended_at IS NOT NULL")
    if before is not None:
        conditions.append(f"({column}, id) < (?, ?)")
        values += before
    where = " AND ".join(conditions)
    sql = f"SELECT summary, {column} FROM runs WHERE {where} ORDER BY {column} DESC, id DESC LIMIT ?"
    return SqlQuery(sql, (*values, limit))


def count_query(dialect: Dialect, wanted: RunFilter) -> SqlQuery:
    """Ask how many there are."""
    conditions, values = _conditions(dialect, wanted)
    return SqlQuery(f"SELECT count(*) FROM runs WHERE {' AND '.join(conditions)}", tuple(values))


def reach_conditions(reach: TreeReach, runs: str = "runs") -> tuple[list[str], list[Value]]:
    """Return what root runs must be like so that they are reached."""
    conditions, values = [], list[Value]()
    if reach.agents is not None:
        conditions.append(_is_one_of(f"{runs}.agent", len(reach.agents)))
        values += sorted(reach.agents)
    if reach.user is not None:
        conditions.append(f"{runs}.person = ?")
        values.append(reach.user)
    return conditions, values


def _is_one_of(column: str, count: int) -> str:
    return f"{column} IN ({', '.join('?' * count)})" if count else "0 = 1"


def _conditions(dialect: Dialect, wanted: RunFilter) -> tuple[list[str], list[Value]]:
    conditions, values = reach_conditions(wanted.reach)
    if wanted.parent is None:
        conditions.append("root = 1")
    given: list[tuple[str, Value]] = [
        ("parent = ?", wanted.parent),
        ("agent = ?", wanted.agent),
        ("waiting_for = ?", wanted.waiting_for),
        ("session = ?", wanted.session),
        ("person = ?", wanted.user),
        ("asked_at >= ?", wanted.since),
        ("asked_at < ?", wanted.until),
        ("coalesce(ended_at, started_at, asked_at) >= ?", wanted.changed_since),
        ("cost >= ?", wanted.min_cost),
    ]
    for condition, value in given:
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if wanted.error is not None:
        codes = codes_of(wanted.error)
        conditions.append(_is_one_of("error", len(codes)))
        values += codes
    if wanted.member is not None:
        conditions.append("EXISTS (SELECT 1 FROM runs AS below WHERE below.tree = runs.id AND below.agent = ?)")
        values.append(wanted.member)
    for name, label in wanted.labels:
        conditions.append(f"id IN (SELECT run FROM labels WHERE name = ?{'' if label is None else ' AND value = ?'})")
        values += (name,) if label is None else (name, label)
    if wanted.states is not None:
        conditions.append(_is_one_of("state", len(wanted.states)))
        values += sorted(wanted.states)
    if wanted.has_approvals is not None:
        conditions.append("approvals > 0" if wanted.has_approvals else "approvals = 0")
    if wanted.conversation is not None:
        conditions.append("(session = ? OR (session IS NULL AND id = ?))")
        values += (wanted.conversation, wanted.conversation)
    if wanted.text is not None and wanted.text.split():
        match = dialect.match_of(wanted.text)
        found = f"rowid IN (SELECT rowid FROM run_texts WHERE {dialect.matches})"
        conditions.append(found if match is not None else "0 = 1")
        values += (match,) if match is not None else ()
    return conditions, values
