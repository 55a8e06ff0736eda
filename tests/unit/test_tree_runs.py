"""The runs of a tree: what entries make of them."""

from cadre.api.runs import RunSummary
from cadre.engine.fold import fold
from cadre.journal import events as ev
from cadre.kinds.code.records import BlockYielded
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.topology import call_id
from cadre.protocol.usage import Usage
from cadre.views.run_summary import MAX_TASK_CHARS
from cadre.views.story import Story
from unit.journal_entries import accepted, called, entry, runs_of, story


def summary_of(tree: Story, run: str = "a1") -> RunSummary:
    return tree.summaries[run]


def test_what_code_uses_is_seen_while_it_runs() -> None:
    calls = [CodeRequest("look"), CodeRequest("look")]
    asked = BlockYielded(block="b", exchange=0, calls=calls, stored=7)
    runs = runs_of([entry("a1", 1, 10.0, accepted("a1")), entry("a1", 2, 11.0, asked)])
    assert summary_of(runs).usage == Usage(calls=2, stored_bytes=7)


def test_a_run_is_followed_to_its_end() -> None:
    runs = Story("a1")
    seen = []
    for seq, one in enumerate(story("a1"), start=1):
        runs.take(seq, one)
        summary = summary_of(runs)
        seen.append((summary.state, summary.step, summary.usage.input_tokens))
    states = ["running", "waiting", "running", "running", "running", "success"]
    assert seen == list(zip(states, [1, 1, 1, 2, 2, 2], [0, 0, 0, 7, 12, 12], strict=True))
    assert (summary.started_at, summary.ended_at, summary.session) == (10.0, 15.0, "s1")
    assert summary.usage == Usage(12, 2, 2)


def test_the_summary_agrees_with_the_fold_at_every_entry() -> None:
    entries = story("a1")
    runs = Story("a1")
    for seq, one in enumerate(entries, start=1):
        runs.take(seq, one)
        summary, run = summary_of(runs), fold(entries[:seq], "a1", "a1")
        assert summary.finished == (run.result is not None)
        assert (summary.usage, summary.step) == (run.usage, run.step)


def test_an_ignored_record_wakes_no_waiting_run_and_revives_no_ended_one() -> None:
    ignored = ev.RecordIgnored(kind="timer", code="not-awaited")
    runs = runs_of([*story("a1")[:2], entry("a1", 3, 12.0, ignored)])
    summary = summary_of(runs)
    assert summary.state == "waiting"
    error = ErrorInfo("no-answer", "no model")
    runs.take(4, entry("a1", 4, 13.0, ev.RunFinished(state="error", error=error, steps=1)))
    runs.take(5, entry("a1", 5, 14.0, called(9)))
    assert (summary.state, summary.error, summary.ended_at, summary.step) == ("error", error, 13.0, 1)


def test_children_hang_below_their_parent_in_the_order_of_their_start() -> None:
    child, other = call_id("a1", 1, 0), call_id("a1", 1, 1)
    parents = {"a1": None, other: "a1", child: "a1", call_id(child, 1, 0): child}
    runs = runs_of(entry(run, 1, float(at), accepted(run, parent)) for at, (run, parent) in enumerate(parents.items()))
    below = runs.by_parent()
    assert [one.id for one in below["a1"]] == [other, child]
    assert [one.id for one in below[child]] == [call_id(child, 1, 0)]


def test_a_long_task_is_shortened() -> None:
    runs = runs_of([entry("a1", 1, 1.0, accepted("a1", text="x" * 1000))])
    assert len(summary_of(runs).task) == MAX_TASK_CHARS
