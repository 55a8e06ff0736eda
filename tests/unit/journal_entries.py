"""Entries of journals by hand, and the runs of a tree that follow from them."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.protocol.usage import TokenUsage, Usage
from cadre.spec.agent import AgentSpec
from cadre.testing import task
from cadre.views.story import Story

SPEC = AgentSpec(name="boss", description="Leads.")
FINISHED = ev.RunFinished(state="success")


def accepted(
    run: str, parent: str | None = None, text: str = "Do it.", at: float = 1.0, **fields: Any
) -> ev.RunAccepted:
    begun = replace(task(text, run, parent, agent="boss", **fields), at=at)
    return ev.RunAccepted(task=begun, spec=SPEC, decided_by="tool_calling")


def called(step: int) -> ev.ModelCalled:
    return ev.ModelCalled(purpose="act", step=step, attempt=1, cause="c")


def entry(run: str, n: int, at: float, *events: ev.AnyEvent, **fields: Any) -> Entry:
    return Entry(
        run=run,
        agent="boss",
        n=n,
        cause=f"c{n}",
        at=at,
        arrived=ArrivalRecord("Task"),
        events=[*events],
        **fields,
    )


def answered(step: int, tokens: int) -> ev.ModelAnswered:
    usage = TokenUsage(input_tokens=tokens, output_tokens=1)
    return ev.ModelAnswered(purpose="act", step=step, attempt=1, content="", usage=usage)


DEFERRED = ev.ModelDeferred(step=1, attempt=1, until=9.0, reason="slow down", status=429, rate_limited=True)


def story(run: str) -> list[Entry]:
    """A run that waits once and ends well."""
    return [
        entry(run, 1, 10.0, accepted(run, session="s1"), called(1)),
        entry(run, 2, 11.0, DEFERRED),
        entry(run, 3, 12.0, called(1)),
        entry(run, 4, 13.0, answered(1, 7), called(2)),
        entry(run, 5, 14.0, answered(2, 5)),
        entry(run, 6, 15.0, ev.RunFinished(state="success", output="yes", steps=2, usage=Usage(12, 2, 2))),
    ]


def runs_of(entries: Iterable[Entry], tree: str = "a1") -> Story:
    runs = Story(tree)
    for seq, one in enumerate(entries, start=1):
        runs.take(seq, one)
    return runs
