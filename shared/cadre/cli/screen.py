"""Where a followed run is shown: a live tree on a terminal, lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol

from cadre.cli import tree_lines
from cadre.cli.tree import Tree


class Screen(Protocol):
    def __enter__(self) -> Screen: ...

    def __exit__(self, *failure: Any) -> None: ...

    def show(self, tree: Tree, name: str, data: dict[str, Any]) -> None:
        """Shows the tree as it is after this event."""
        ...

    def note(self, text: str) -> None:
        """Tells something that is not an event of the run."""
        ...


class LineScreen:
    """A line for each event worth one."""

    def __enter__(self) -> LineScreen:
        return self

    def __exit__(self, *failure: Any) -> None:
        return None

    def show(self, tree: Tree, name: str, data: dict[str, Any]) -> None:
        line = tree_lines.line(tree, name, data)
        if line is not None:
            print(line, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"cadre: {text}", file=sys.stderr, flush=True)


class LiveScreen:
    """The tree, drawn again four times a second; the final one stays."""

    def __init__(self) -> None:
        from rich.console import Console, RenderableType
        from rich.live import Live

        from cadre.cli.tree_view import draw

        self._tree = Tree()
        self._console = Console(stderr=True)

        def render() -> RenderableType:
            return draw(self._tree, time.time(), width=max(self._console.width - 12, 40))

        self._live = Live(
            get_renderable=render, console=self._console, refresh_per_second=4, redirect_stdout=False
        )

    @property
    def can_draw(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # While it runs the tree is cut at the screen's height; at the end all of it is worth keeping.
        self._live.vertical_overflow = "visible"
        self._live.__exit__(kind, error, trace)

    def show(self, tree: Tree, name: str, data: dict[str, Any]) -> None:
        self._tree = tree

    def note(self, text: str) -> None:
        self._console.print(f"cadre: {text}", markup=False, highlight=False)


def screen() -> Screen:
    """The live tree when stderr is a terminal that can draw one, else lines."""
    if not sys.stderr.isatty():
        return LineScreen()
    live = LiveScreen()
    return live if live.can_draw else LineScreen()
