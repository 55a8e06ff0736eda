"""Figures of all runs: how many go on, how long the last ones took, how many calls wait."""

from __future__ import annotations

from typing import NamedTuple

from cadre.errors import RunIndexUnavailable
from cadre_gateway.index.database.port import SqlQuery
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_rows import CALL_WAITS

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
    """How many runs of an agent are in a state; those of a tree whose root has ended are not counted."""

    agent: str
    state: str
    waiting_for: str | None
    runs: int


class WaitingCalls(NamedTuple):
    """How many calls wait for a person."""

    calls: int
    oldest: float | None
    """When the first of them was asked for, in Unix seconds."""


async def open_runs(index: RunIndex) -> list[OpenRuns]:
    """The runs that have not ended. Raises RunIndexUnavailable."""
    return [OpenRuns(*row) for row in await index.read(SqlQuery(_OPEN))]


async def open_runs_of(index: RunIndex, agent: str) -> dict[str, int]:
    """The runs of an agent that have begun and not ended, by its revisions. Raises RunIndexUnavailable."""
    rows = await index.read(SqlQuery(_REVISIONS, (agent,)))
    return {revision: runs for revision, runs in rows if revision}


async def known_open_runs_of(index: RunIndex, agent: str) -> dict[str, int] | None:
    """The open runs of an agent by its revisions; None while the index does not know them."""
    try:
        return await open_runs_of(index, agent)
    except RunIndexUnavailable:
        return None


async def waiting_calls(index: RunIndex) -> WaitingCalls:
    """The calls that wait for a person. Raises RunIndexUnavailable."""
    query = SqlQuery("SELECT count(*), min(at) FROM calls WHERE state = ?", (CALL_WAITS,))
    return WaitingCalls(*(await index.read(query))[0])


async def seconds_taken(index: RunIndex, most: int) -> dict[str, list[float]]:
    """How long the last runs of each agent took that succeeded, at most so many of each. Raises RunIndexUnavailable."""
    agents = [agent for (agent,) in await index.read(SqlQuery(_AGENTS))]
    return {
        agent: [seconds for (seconds,) in await index.read(SqlQuery(_TOOK, (agent, most)))]
        for agent in agents
    }
