"""Where a followed run is shown: a live tree on a terminal, lines elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from cadre.cli.run_view.run_tree import RunTree
from cadre.cli.terminal.answer import print_text, printable
from cadre.views.rows import Line

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
        """Shows a remark that is not an event of the run."""
        print_text(f"cadre: {text}", err=True)

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Inside this context the terminal belongs to a question."""
        return contextlib.nullcontext()


class LiveScreen(Screen):
    """Draws the tree anew four times a second; the final one stays."""

    def __init__(self) -> None:
        from rich.console import Console

        self._tree = RunTree()
        self._console = Console(stderr=True)
        self._live = self._begin()

    def _begin(self) -> Live:
        from rich.live import Live

        return Live(
            get_renderable=self._render, console=self._console, refresh_per_second=4, redirect_stdout=False
        )

    def _render(self) -> RenderableType:
        from cadre.cli.run_view.tree_view import draw

        return draw(self._tree, time.time(), width=max(self._console.width - 12, 40))

    @property
    def can_draw(self) -> bool:
        """Whether stderr is a terminal on which the cursor can be moved."""
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
        self._live.transient = True  # the tree is drawn anew afterwards, below what was asked and answered
        self._live.stop()
        try:
            yield
        finally:
            # A new one: the former would begin by going back over as many lines as it had drawn.
            self._live = self._begin()
            self._live.start(refresh=True)


def screen() -> Screen:
    """A live tree when stderr is a terminal that can draw one, else lines."""
    if not sys.stderr.isatty():
        return Screen()
    live = LiveScreen()
    return live if live.can_draw else Screen()
