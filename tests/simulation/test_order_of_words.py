"""Records of people are taken up in their order; the end of a run by a poisoned record waits for none of them."""

from types import SimpleNamespace
from typing import cast

import pytest

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.messages import Cancel, ErrorInfo, Record, Signal, Task, UserMessage
from simulation.history import Chronicle, Violation
from simulation.steering import IN_ORDER, words_are_taken_in_order
from simulation.world import World

TAKEN = ev.MessageReceived(text="Go on.")
END = ev.RunFinished(state="error", error=ErrorInfo("poisoned", "record r1:c ended its workers"))
CANCELLED = ev.RunFinished(state="cancelled", error=ErrorInfo("cancelled", "record r1:c ended its workers"))
IGNORED = ev.RecordIgnored(kind="UserMessage", code="run-ended")


def world(*entries: tuple[str, ev.AnyEvent], poison: str = "") -> World:
    """Return a world with one run, which was sent a, b, c and d, and has these entries: cause and event."""
    chronicle = Chronicle("r1")
    records: list[Record] = [
        Task(id="r1:task", tree="r1", run="r1", at=0.0, agent="lead", task="Go."),
        *(UserMessage(id=f"r1:{name}", tree="r1", run="r1", at=1.0, text="Go on.") for name in "ab"),
        Signal(id="r1:c", tree="r1", run="r1", at=1.0, name="go"),
        UserMessage(id="r1:d", tree="r1", run="r1", at=1.0, text="Go on."),
    ]
    if poison:
        records.append(Cancel(id=f"{poison}:condemned", tree="r1", run="r1", at=2.0, sender="lead"))
    for record in records:
        chronicle.records[record.id].append(record)
    chronicle.entries = [
        Entry(run="r1", agent="lead", n=n, cause=cause, at=2.0, events=[event])
        for n, (cause, event) in enumerate(entries, 1)
    ]
    return cast(World, SimpleNamespace(history=SimpleNamespace(runs={"r1": chronicle})))


@pytest.mark.parametrize(
    "by",
    [
        [("r1:c", END), ("r1:c:condemned", IGNORED)],
        [("r1:c:condemned", CANCELLED), ("r1:c", IGNORED)],
        [("r1:task:end", END), ("r1:c", IGNORED), ("r1:c:condemned", IGNORED)],
    ],
)
def test_behind_a_poisoned_record_the_order_is_of_no_consequence(by: list[tuple[str, ev.AnyEvent]]) -> None:
    """The run has ended, by the record or before it: `b` was pending then, and `d` knows that `c` is accounted for."""
    words_are_taken_in_order(world(("r1:a", TAKEN), *by, ("r1:d", IGNORED), ("r1:b", IGNORED), poison="r1:c"))


@pytest.mark.parametrize(
    ("entries", "poison"),
    [
        ([("r1:a", TAKEN), ("r1:c", END), ("r1:d", IGNORED), ("r1:b", IGNORED)], ""),
        ([("r1:b", TAKEN), ("r1:a", TAKEN), ("r1:c", END), ("r1:d", IGNORED)], "r1:c"),
        ([("r1:b", TAKEN), ("r1:c", END), ("r1:a", IGNORED), ("r1:d", IGNORED)], "r1:c"),
        ([("r1:a", TAKEN), ("r1:c", TAKEN), ("r1:b", TAKEN), ("r1:c:poisoned", END), ("r1:d", IGNORED)], "r1:c"),
    ],
)
def test_all_else_is_taken_up_in_the_order_in_which_it_was_stored(
    entries: list[tuple[str, ev.AnyEvent]], poison: str
) -> None:
    with pytest.raises(Violation) as broken:
        words_are_taken_in_order(world(*entries, poison=poison))
    assert broken.value.promise == IN_ORDER
