"""List the calls that wait for a person or were decided, and count runs and calls, over the whole index."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import PendingCall
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
    """A call of the list, with the shortened task of its run."""

    call: PendingCall | DecidedCall
    task: str
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
        "SELECT calls.body, own.summary, calls.at, calls.call FROM calls JOIN runs AS roots ON roots.id = calls.tree"
        f" LEFT JOIN runs AS own ON own.id = calls.run WHERE {' AND '.join(conditions)}"
        " ORDER BY calls.at DESC, calls.call DESC LIMIT ?"
    )
    rows = await index.read(SqlQuery(sql, (*values, limit)))
    kind: Any = DecidedCall if decided else PendingCall
    return [
        ListedCall(msgspec.json.decode(body, type=kind), _task(summary), Cursor(at, call))
        for body, summary, at, call in rows
    ]


class _TaskOfRun(msgspec.Struct):
    task: str = ""


def _task(summary: bytes | None) -> str:
    return msgspec.json.decode(summary, type=_TaskOfRun).task if summary is not None else ""
