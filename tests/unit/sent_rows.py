"""A run as a command line holds it once the gateway has sent the rows of these events."""

import json
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console

from cadre.cli.run_view.screen import RunTree
from cadre.cli.run_view.tree_view import draw
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.topology import parent_of
from cadre.spec.agent import AgentSpec, Limits
from cadre.testing import task
from cadre.views.rows import Line, Row, RowsChanged
from cadre.views.story import Story

Told = tuple[str, float, ev.AnyEvent]
"""The run, the time and the event of an entry."""

NOW = 1_000.0


def accepted(run: str, at: float, text: str, agent: str = "manager", **fields: Any) -> Told:
    begun = replace(task(text, run, parent_of(run), agent=agent), at=at)
    spec = AgentSpec(name=agent, description="D.", limits=Limits(max_steps=5), **fields)
    return run, at, ev.RunAccepted(task=begun, spec=spec, decided_by="tool_calling")


class Sent:
    """The gateway's story of a tree, and the tree of a command line that follows it."""

    def __init__(self, *told: Told) -> None:
        self.tree = RunTree()
        self.lines: list[Line] = []
        self._story: Story | None = None
        self._entries: dict[str, int] = {}
        for one in told:
            self.add(*one)

    def add(self, run: str, at: float, event: ev.AnyEvent) -> None:
        """Send what one more entry has changed."""
        self._story = self._story or Story(run, rows=True)
        n = self._entries[run] = self._entries.get(run, 0) + 1
        seq = sum(self._entries.values())
        update = self._story.take(seq, Entry(run=run, agent="manager", n=n, at=at, events=[event]))
        data = msgspec.json.encode(RowsChanged(seq, update.rows, update.lines))
        self.lines += self.tree.take("rows", json.loads(data)).lines

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    def run(self, run: str) -> Row:
        return self.tree.rows[f"run:{run}"]

    def call(self, call: str) -> Row:
        return self.tree.rows[f"call:{call}"]

    def drawn(self, now: float = NOW) -> str:
        console = Console(width=160, color_system=None)
        with console.capture() as capture:
            console.print(draw(self.tree, now))
        return capture.get()
