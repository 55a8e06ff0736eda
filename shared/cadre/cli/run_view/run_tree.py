"""The rows of a followed run, as the gateway sends them, in the order in which they are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.protocol.topology import is_within
from cadre.protocol.usage import Usage
from cadre.views.rows import Row, RowsChanged, run_key

_MAX_WRITING = 400
"""Characters kept of an answer that is being written."""


class RunTree:
    """All rows that were sent. Each has replaced the one of its key that came before."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.writing: dict[str, str] = {}
        """By run: the end of the answer that its model is writing."""

    def take(self, name: str, data: dict[str, Any]) -> RowsChanged:
        """Take in an event of the stream of rows; returns what has changed. Raises msgspec.ValidationError for an event
        of another version."""
        if name == "delta":
            self._write(str(data.get("run")), str(data.get("text", "")))
        if name != "rows":
            return RowsChanged(0)
        changed = msgspec.convert(data, RowsChanged)
        for row in changed.rows:
            self.rows[row.key] = row
            if row.kind == "model" or row.ended_at:
                self.writing.pop(row.run, None)
        return changed

    @property
    def root(self) -> Row | None:
        """Return the row of the run that is followed; None before the first event."""
        return next((row for row in self.runs() if self._parent_of(row) not in self.rows), None)

    @property
    def scripted(self) -> bool:
        """Return whether the scripted model answered any call: it answers under this name, whatever was asked for."""
        return any(row.facts is not None and row.facts.model == "scripted" for row in self.runs())

    def runs(self) -> Iterator[Row]:
        """Yield the rows of runs."""
        return (row for row in self.rows.values() if row.kind == "run")

    def tokens(self, run: str) -> int:
        """Return the tokens of a run and of all runs below it."""
        return sum((row.usage or Usage()).total_tokens for row in self.runs() if is_within(row.run, run))

    def of_run(self, run: str) -> list[Row]:
        """Return the calls and the work of a run, in the order in which they came."""
        own = [row for row in self.rows.values() if row.run == run and row.kind in ("call", "work")]
        return sorted(own, key=lambda row: row.events[:1])

    def _parent_of(self, row: Row) -> str:
        parent = row.facts.parent if row.facts is not None else None
        return run_key(parent) if parent is not None else ""

    def _write(self, run: str, text: str) -> None:
        row = self.rows.get(run_key(run))
        if row is not None and not row.ended_at:
            self.writing[run] = (self.writing.get(run, "") + text)[-_MAX_WRITING:]
