"""The display of a followed run: a live tree on a terminal, lines elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from cadre.cli.terminal.output import print_text, printable
from cadre.protocol.topology import is_within
from cadre.protocol.usage import Usage
from cadre.views.rows import Line, Row, RowsChanged, run_key

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class Screen:
    """Prints the lines that the gateway sends of a followed run. Use as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        return None

    def show(self, tree: RunTree, lines: Sequence[Line]) -> None:
        """Show the tree as it is now; `lines` say what has happened since."""
        for line in lines:
            clock = time.strftime("%H:%M:%S", time.localtime(line.at))
            print_text(f"{clock} {line.text}", err=True)

    def note(self, text: str) -> None:
        """Show a remark that is not an event of the run."""
        print_text(f"cadre: {text}", err=True)

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Inside this context the terminal belongs to a question."""
        return contextlib.nullcontext()


class LiveScreen(Screen):
    """Redraws the tree four times a second; the final one stays."""

    def __init__(self) -> None:
        from rich.console import Console

        self._tree = RunTree()
        self._console = Console(stderr=True)
        self._live = self._begin()

    def _begin(self) -> Live:
        from rich.live import Live

        return Live(get_renderable=self._render, console=self._console, refresh_per_second=4, redirect_stdout=False)

    def _render(self) -> RenderableType:
        from cadre.cli.run_view.tree_view import draw

        return draw(self._tree, time.time(), width=max(self._console.width - 12, 40))

    @property
    def can_draw(self) -> bool:
        """Return whether stderr is a terminal on which the cursor can be moved."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        # While it runs the tree is cut at the screen's height; at the end all of it is worth keeping.
        self._live.vertical_overflow = "visible"
        self._live.__exit__(*failure)

    def show(self, tree: RunTree, lines: Sequence[Line]) -> None:
        self._tree = tree

    def note(self, text: str) -> None:
        self._console.print(printable(f"cadre: {text}"), markup=False, highlight=False)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self._live.transient = True  # the tree is redrawn afterwards, below the questions and answers
        self._live.stop()
        try:
            yield
        finally:
            # A new one: the former would begin by going back over as many lines as it had drawn.
            self._live = self._begin()
            self._live.start(refresh=True)


def screen() -> Screen:
    """Return a live tree when stderr is a terminal that can draw one, else lines."""
    if not sys.stderr.isatty():
        return Screen()
    live = LiveScreen()
    return live if live.can_draw else Screen()


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
        """Return whether the scripted model answered any call: it answers every request under this name."""
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
