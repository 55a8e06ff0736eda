"""List the calls that wait for a person or were decided, and count runs and calls, over the whole index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import PendingCall, RunSummary
from cadre.errors import RunIndexUnavailable
from cadre.views.held_calls import DecidedCall
from cadre_gateway.index.database.port import SqlQuery, Value
from cadre_gateway.index.run_filter import Cursor, TreeReach, reach_conditions
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_rows import CALL_DECIDED, CALL_WAITS

_OPEN = (
    "SELECT runs.agent, runs.state, runs.waiting_for, count(*) FROM runs LEFT JOIN runs AS roots"
    " ON roots.id = runs.tree WHERE runs.ended_at IS NULL AND roots.ended_at IS NULL"
    " GROUP BY runs.agent, runs.state, runs.waiting_for"
)
_REVISIONS = (
    "SELECT runs.revision, count(*) FROM runs LEFT JOIN runs AS roots ON roots.id = runs.tree"
    " WHERE runs.agent = ? AND runs.ended_at IS NULL AND roots.ended_at IS NULL GROUP BY runs.revision"
)
_AGENTS = (
    "WITH RECURSIVE names (agent) AS (SELECT min(agent) FROM runs WHERE state = 'success' UNION ALL"
    " SELECT (SELECT min(agent) FROM runs WHERE state = 'success' AND agent > names.agent) FROM names"
    " WHERE agent IS NOT NULL) SELECT agent FROM names WHERE agent IS NOT NULL"
)
_TOOK = "SELECT ended_at - started_at FROM runs WHERE state = 'success' AND agent = ? ORDER BY ended_at DESC LIMIT ?"


class OpenRuns(NamedTuple):
    """The number of runs of an agent in a state; those of a tree whose root has ended are not counted."""

    agent: str
    state: str
    waiting_for: str | None
    runs: int


class WaitingCalls(NamedTuple):
    """The number of calls that wait for a person."""

    calls: int
    oldest: float | None
    """The time when the first of them was asked for, in Unix seconds."""


async def open_runs(index: RunIndex) -> list[OpenRuns]:
    """Return the runs that have not ended. Raises RunIndexUnavailable."""
    return [OpenRuns(*row) for row in await index.read(SqlQuery(_OPEN))]


async def open_runs_of(index: RunIndex, agent: str) -> dict[str, int]:
    """Return the runs of an agent that have begun and not ended, by its revisions. Raises RunIndexUnavailable."""
    rows = await index.read(SqlQuery(_REVISIONS, (agent,)))
    return {revision: runs for revision, runs in rows if revision}


async def known_open_runs_of(index: RunIndex, agent: str) -> dict[str, int] | None:
    """Return the open runs of an agent by its revisions; None while the index does not know them."""
    try:
        return await open_runs_of(index, agent)
    except RunIndexUnavailable:
        return None


async def waiting_calls(index: RunIndex) -> WaitingCalls:
    """Return the calls that wait for a person. Raises RunIndexUnavailable."""
    query = SqlQuery("SELECT count(*), min(at) FROM calls WHERE state = ?", (CALL_WAITS,))
    return WaitingCalls(*(await index.read(query))[0])


async def seconds_taken(index: RunIndex, most: int) -> dict[str, list[float]]:
    """Return how long the last runs of each agent took that succeeded, at most so many of each. Raises
    RunIndexUnavailable.
    """
    agents = [agent for (agent,) in await index.read(SqlQuery(_AGENTS))]
    return {agent: [seconds for (seconds,) in await index.read(SqlQuery(_TOOK, (agent, most)))] for agent in agents}


class CallFilter(NamedTuple):
    """A filter of calls; None: all. `run` stands for itself and all runs below it."""

    agent: str | None = None
    run: str | None = None
    tree: str | None = None
    reach: TreeReach = TreeReach()


class ListedCall(NamedTuple):
    """A call of the list."""

    call: PendingCall | DecidedCall
    place: Cursor


async def listed_calls(
    index: RunIndex, wanted: CallFilter, *, decided: bool, limit: int, before: Cursor | None
) -> list[ListedCall]:
    """Calls that wait, or those that were decided last, the newest first. Raises RunIndexUnavailable."""
    conditions, values = reach_conditions(wanted.reach, "roots")
    conditions.append("calls.state = ?")
    values.append(CALL_DECIDED if decided else CALL_WAITS)
    given: list[tuple[str, Value]] = [("calls.agent = ?", wanted.agent), ("calls.tree = ?", wanted.tree)]
    for condition, value in given:
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if wanted.run is not None:
        conditions.append("(calls.run = ? OR substr(calls.run, 1, ?) = ?)")
        values += (wanted.run, len(wanted.run) + 1, f"{wanted.run}_")
    if before is not None:
        conditions.append("(calls.at, calls.call) < (?, ?)")
        values += before
    sql = (
        "SELECT calls.body, calls.at, calls.call FROM calls JOIN runs AS roots ON roots.id = calls.tree"
        f" WHERE {' AND '.join(conditions)} ORDER BY calls.at DESC, calls.call DESC LIMIT ?"
    )
    rows = await index.read(SqlQuery(sql, (*values, limit)))
    kind: Any = DecidedCall if decided else PendingCall
    return [ListedCall(msgspec.json.decode(body, type=kind), Cursor(at, call)) for body, at, call in rows]


_MOST_NAMED = 500
"""Values in one question to the database."""


async def summaries_of(index: RunIndex, runs: Iterable[str]) -> dict[str, RunSummary]:
    """Return what the index has of these runs, by id. Raises RunIndexUnavailable."""
    wanted, found = sorted(set(runs)), dict[str, RunSummary]()
    for at in range(0, len(wanted), _MOST_NAMED):
        named = wanted[at : at + _MOST_NAMED]
        sql = f"SELECT id, summary FROM runs WHERE id IN ({', '.join('?' * len(named))})"
        rows = await index.read(SqlQuery(sql, tuple(named)))
        found |= {run: msgspec.json.decode(summary, type=RunSummary) for run, summary in rows}
    return found


class AlikeCalls(NamedTuple):
    """Calls of the same tool, member or question by the same agent."""

    agent: str
    name: str


async def verdicts_on(
    index: RunIndex, calls: Iterable[AlikeCalls], reach: TreeReach
) -> dict[AlikeCalls, dict[str, int]]:
    """Return how calls like these were decided that the list has, in numbers by verdict. Raises RunIndexUnavailable."""
    wanted, found = sorted(set(calls)), dict[AlikeCalls, dict[str, int]]()
    conditions, values = reach_conditions(reach, "roots")
    for at in range(0, len(wanted), _MOST_NAMED):
        named = wanted[at : at + _MOST_NAMED]
        pairs = f"(calls.agent, calls.name) IN (VALUES {', '.join(['(?, ?)'] * len(named))})"
        where = " AND ".join(["calls.state = ?", pairs, *conditions])
        sql = (
            "SELECT calls.agent, calls.name, calls.verdict, count(*) FROM calls JOIN runs AS roots"
            f" ON roots.id = calls.tree WHERE {where} GROUP BY calls.agent, calls.name, calls.verdict"
        )
        given = (CALL_DECIDED, *(part for one in named for part in one), *values)
        for agent, name, verdict, count in await index.read(SqlQuery(sql, given)):
            found.setdefault(AlikeCalls(agent, name), {})[verdict] = count
    return found
