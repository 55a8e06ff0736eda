"""The story of a tree, over every recorded journal: it agrees with the fold, and takes each entry once."""

from collections.abc import Iterator

import msgspec
import pytest

from cadre.engine.fold import fold
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import Memory
from cadre.kinds.code.records import BlockFinished, BlockStarted, BlockYielded
from cadre.kinds.plan.records import PlanMade, PlanStepStarted
from cadre.kinds.plan.section import PlanStep
from cadre.loop.redecide import Journaled
from cadre.protocol.messages import ErrorInfo, Fork
from cadre.views.rows import MAX_CHARS, Row, call_key, run_key
from cadre.views.story import NOTHING, Story
from journals import kept
from unit.journal_entries import accepted, called, entry

VERSION = kept.VERSIONS[-1]


def trees(name: str) -> Iterator[list[Journaled]]:
    """Yield the entries of each recorded tree in stream order."""
    found: dict[str, list[Journaled]] = {}
    for run in kept.journals(VERSION, name):
        found.setdefault(run[0].entry.tree, []).extend(run)
    for entries in found.values():
        yield sorted(entries, key=lambda one: one.seq)


def own(entries: list[Journaled], run: str) -> list[Entry]:
    return [one.entry for one in entries if one.entry.run == run]


def check_rows(story: Story) -> None:
    """The rows hang together, and agree with the summaries and with the calls that wait."""
    assert story.rows is not None
    rows = story.rows.rows
    for row in rows.values():
        assert row.parent in rows or row.kind == "run"
        assert len(row.brief) <= MAX_CHARS
        assert bool(row.ended_at) == (row.state in ("ok", "failed", "dropped"))
        if row.kind != "run":
            assert not rows[run_key(row.run)].ended_at or row.ended_at
        if row.kind == "note":
            # What is not folded is a sentence, not the event's fields.
            assert row.is_minor or not row.brief.startswith("{"), row.name
    steps = {(row.run, row.key.rpartition(":")[2]): row for row in rows.values() if row.kind == "step"}
    assert all(row.ended_at or (run, "1") not in steps for (run, number), row in steps.items() if number == "0")
    held = {row.key for row in rows.values() if row.state == "held"}
    waiting = {call_key(call) for calls in story.pending.values() for call in calls}
    assert held <= waiting
    for run, summary in story.summaries.items():
        facts = rows[run_key(run)].facts
        assert facts is not None
        assert facts.ended == (summary.state if summary.finished else None)
        if not summary.finished and not rows[run_key(run)].ended_at:
            assert (summary.state == "waiting") == (rows[run_key(run)].state == "waiting")


@pytest.mark.parametrize("name", kept.names(VERSION))
def test_a_recorded_tree(name: str) -> None:
    for entries in trees(name):
        tree = entries[0].entry.tree
        story = Story(tree, rows=True)
        assert story.rows is not None
        ended: list[str] = []
        for seq, one in entries:
            update = story.take(seq, one)
            ended += update.ended
            assert story.rows.since(seq - 1) == list(update.rows)
            known = msgspec.json.encode(story.summaries), msgspec.json.encode(story.pending)
            assert story.take(seq, one) is NOTHING
            assert (msgspec.json.encode(story.summaries), msgspec.json.encode(story.pending)) == known
        check_rows(story)
        for run, summary in story.summaries.items():
            state = fold(own(entries, run), run, tree)
            assert summary.finished == (state.result is not None) == (run in ended)
            assert run not in story.pending or not summary.finished
            assert summary.finished or summary.usage == state.usage
        assert len(ended) == len(set(ended))


def test_what_an_entry_changes_is_said() -> None:
    story = Story("a1")
    begun = story.take(1, entry("a1", 1, 1.0, accepted("a1"), called(1)))
    assert (begun.runs, begun.held, begun.ended) == (["a1"], (), [])
    asked = ev.ApprovalRequested(call="a1_1_0_1_0", name="pay", kind="tool", arguments={}, reason="always")
    held = story.take(2, entry("a1_1_0", 1, 2.0, accepted("a1_1_0", "a1"), asked))
    assert held.runs == ["a1_1_0", "a1"]
    assert [one.call for one in held.held] == [asked.call]
    decided = ev.ApprovalDecided(call=asked.call, verdict="approved", sender="ann")
    gone = story.take(3, entry("a1_1_0", 2, 3.0, decided))
    assert [one.call for one in gone.gone] == [one.asked.call for one in gone.decided] == [asked.call]
    end = story.take(4, entry("a1_1_0", 3, 4.0, ev.RunFinished(state="success")))
    assert (end.runs, end.ended) == (["a1_1_0"], ["a1_1_0"])
    late = story.take(5, entry("a1_1_0", 4, 5.0, ev.RunFinished(state="error")))
    assert (late.ended, story.summaries["a1_1_0"].state) == ([], "success")


def rows_of(*entries: Entry) -> dict[str, Row]:
    story = Story("a1", rows=True)
    for seq, one in enumerate(entries, start=1):
        story.take(seq, one)
    assert story.rows is not None
    return story.rows.rows


def test_the_rows_of_a_call() -> None:
    long = "x" * 1000
    rows = rows_of(
        entry("a1", 1, 10.0, accepted("a1"), called(1)),
        entry("a1", 2, 11.0, ev.ToolCalled(call="a1_1_0", tool="add", arguments={"text": long})),
        entry("a1", 3, 15.0, ev.ToolAnswered(call="a1_1_0", tool="add", output=long, seconds=1.5)),
    )
    row = rows["call:a1_1_0"]
    assert (row.kind, row.name, row.state, row.parent, row.run) == ("call", "add", "ok", "step:a1:1", "a1")
    assert (row.asked_at, row.began_at, row.ended_at) == (11.0, 13.5, 15.0)
    assert (row.events, row.seq) == ([(2, 1), (3, 1)], 3)
    assert len(row.brief) == len(row.result) == MAX_CHARS


def test_what_an_event_of_a_kind_says_of_itself() -> None:
    step = PlanStep(step=1, action="execute", task="Look.")
    story = Story("a1", rows=True)
    assert story.rows is not None
    story.take(1, entry("a1", 1, 10.0, accepted("a1"), called(1)))
    made = story.take(2, entry("a1", 2, 11.0, PlanMade(step=1, origin="model", steps=[step])))
    assert [(row.name, row.state, row.brief) for row in made.rows if row.kind == "work"] == [
        ("1 execute", "queued", "Look.")
    ]
    assert [line.event for line in made.lines] == ["plan.made"]
    story.take(3, entry("a1", 3, 12.0, PlanStepStarted(step=1)))
    again = story.take(4, entry("a1", 4, 13.0, PlanMade(step=1, origin="edit", steps=[step])))
    assert [row.state for row in again.rows if row.kind == "work"] == ["queued"]
    block = BlockStarted(block="a1_2_0", code="1 + 1")
    story.take(5, entry("a1", 5, 14.0, block))
    assert story.rows.rows["run:a1"].words == "running code"
    error = ErrorInfo("code-failed", "no such name")
    story.take(6, entry("a1", 6, 15.0, BlockFinished(block="a1_2_0", exchange=0, error=error)))
    work = story.rows.rows["work:a1:a1_2_0"]
    assert (work.state, work.error, work.brief) == ("failed", f"{error.type}: no such name", "1 + 1")


def test_a_row_names_the_events_that_made_it_in_its_own_journal() -> None:
    call = "a1_1_0_1_0"
    asked = ev.ApprovalRequested(call=call, name="pay", kind="tool", arguments={}, reason="always")
    rows = rows_of(
        entry("a1", 1, 10.0, accepted("a1"), called(1)),
        entry("a1", 2, 11.0, ev.DelegateStarted(call="a1_1_0", member="b", task="Go.")),
        entry("a1_1_0", 1, 12.0, accepted("a1_1_0", "a1"), asked),
        entry("a1_1_0", 2, 13.0, ev.ApprovalDecided(call=call, verdict="approved", sender="ann")),
        entry("a1", 3, 14.0, ev.CancelRequested(), ev.RunFinished(state="cancelled")),
    )
    assert rows[call_key(call)].events == [(1, 2), (2, 1)], "what ended it stands in the other journal"
    assert (rows["run:a1"].events, rows["run:a1_1_0"].events) == ([(1, 1), (3, 2)], [(1, 1)])
    asked_for = rows["model:a1:1.2"].asked_for
    assert asked_for is not None
    assert (asked_for.step, asked_for.purpose, asked_for.attempt) == (1, "act", 1)


def test_a_row_that_much_happens_to_names_its_first_events_and_its_last() -> None:
    block = "a1_1_0"
    yields = [BlockYielded(block=block, exchange=n, calls=[]) for n in range(40)]
    events = [
        accepted("a1"),
        BlockStarted(block=block, code="1"),
        *yields,
        BlockFinished(block=block, exchange=40),
    ]
    rows = rows_of(*(entry("a1", n, float(n), one) for n, one in enumerate(events, start=1)))
    cited = rows[f"work:a1:{block}"].events
    assert (cited[0], cited[-1], len(cited)) == ((2, 1), (43, 1), 16)
    assert not [row for row in rows.values() if row.kind == "note"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.ToolAnswered(call="a1_1_0", tool="pay", output=7), "()"),
        (ev.ToolAnswered(call="a1_1_0", tool="pay", error=ErrorInfo("tool-failed", "no")), "no"),
        (ev.CallDropped(call="a1_1_0", reason="over"), "over"),
        (ev.ApprovalRequested(call="a1_1_0", name="pay", kind="tool", arguments={}, reason="money"), "money"),
    ],
)
def test_what_a_call_says_on_a_line(event: ev.AnyEvent, text: str) -> None:
    rows = rows_of(
        entry("a1", 1, 10.0, accepted("a1"), called(1)),
        entry("a1", 2, 11.0, ev.ToolCalled(call="a1_1_0", tool="pay", arguments={}), event),
    )
    assert rows["call:a1_1_0"].text.endswith(text)


def test_what_is_below_a_run_ends_with_it() -> None:
    rows = rows_of(
        entry("a1", 1, 10.0, accepted("a1"), called(1)),
        entry("a1", 2, 11.0, ev.DelegateStarted(call="a1_1_0", member="b", task="Go.")),
        entry("a1_1_0", 1, 12.0, accepted("a1_1_0", "a1"), called(1)),
        entry("a1", 3, 13.0, ev.RunFinished(state="cancelled")),
    )
    assert {row.state for row in rows.values()} == {"dropped"}
    assert all(row.ended_at == 13.0 for row in rows.values())
    assert rows["run:a1_1_0"].parent == "call:a1_1_0"


def test_a_step_that_was_cancelled_is_not_one_that_succeeded() -> None:
    events = [accepted("a1"), called(1), ev.CancelRequested(reason="enough"), ev.StepFinished(step=1)]
    assert rows_of(entry("a1", 1, 1.0, *events))["step:a1:1"].state == "dropped"


def test_a_run_says_which_one_it_was_forked_from() -> None:
    facts = rows_of(entry("a1", 1, 1.0, accepted("a1", forks=Fork(run="f", at=3))))[run_key("a1")].facts
    assert facts is not None
    assert facts.forks == Fork(run="f", at=3)


def test_what_is_recalled_is_counted_and_the_question_is_minor() -> None:
    memory = Memory(text="likes tea", agent="a", at=0.0, scope="user", run="r")
    events = [
        accepted("a1"),
        ev.MemoryAsked(call="a1_0_0", query="tea?", count=3),
        ev.MemoryRecalled(call="a1_0_0", memories=[memory]),
        called(1),
    ]
    rows = rows_of(entry("a1", 1, 1.0, *events))
    asked, recalled = (row for row in rows.values() if row.kind == "note")
    assert (asked.is_minor, recalled.is_minor) == (True, False)
    assert recalled.brief.split()[1] == "1"
    assert rows["step:a1:0"].state == "ok"
