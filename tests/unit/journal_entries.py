"""Entries of journals by hand, and the gateway's list of runs that follows from them."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.topology import tree_of
from cadre.spec.agent import AgentSpec
from cadre.testing import task
from cadre_gateway.index.run_index import RunIndex

SPEC = AgentSpec(name="boss", description="Leads.")
FINISHED = ev.RunFinished(state="success")


def accepted(
    run: str, parent: str | None = None, text: str = "Do it.", at: float = 1.0, **fields: Any
) -> ev.RunAccepted:
    begun = replace(task(text, run, parent, agent="boss", **fields), at=at)
    return ev.RunAccepted(task=begun, spec=SPEC)


def called(step: int) -> ev.ModelCalled:
    return ev.ModelCalled(purpose="act", step=step, attempt=1, cause="c")


def entry(run: str, n: int, at: float, *events: ev.AnyEvent, **fields: Any) -> Entry:
    return Entry(
        tree=tree_of(run), run=run, agent="boss", n=n, cause=f"c{n}", at=at, events=[*events], **fields
    )


def index_of(entries: Iterable[Entry], **options: Any) -> RunIndex:
    index = RunIndex(**options)
    for seq, one in enumerate(entries, start=1):
        index.apply(seq, one)
    return index
