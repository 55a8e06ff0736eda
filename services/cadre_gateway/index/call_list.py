"""The calls that wait for a person, or were decided, of all runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import PendingCall
from cadre.views.held_calls import DecidedCall
from cadre_gateway.index.database.port import SqlQuery, Value
from cadre_gateway.index.run_filter import Cursor, TreeReach, reach_conditions
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_rows import CALL_DECIDED, CALL_WAITS


class CallFilter(NamedTuple):
    """Which calls to list; None: all. `run` stands for itself and all runs below it."""

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
