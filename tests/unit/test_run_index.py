"""The list of runs: what entries make of it, in whatever order trees are interleaved."""

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.api.runs import RunSummary
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.kinds.code.records import BlockYielded
from cadre.loop.fold import fold
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import ErrorInfo, Origin
from cadre.protocol.topology import call_id
from cadre.protocol.usage import Usage
from cadre_gateway.index.run_index import RunIndex, TreeSummary
from cadre_gateway.index.run_summary import MAX_TASK_CHARS
from unit.journal_entries import accepted, called, entry, index_of


def answered(step: int, tokens: int) -> ev.ModelAnswered:
    usage = Usage(input_tokens=tokens, output_tokens=1)
    return ev.ModelAnswered(purpose="act", step=step, attempt=1, content="", usage=usage)


DEFERRED = ev.ModelDeferred(step=1, attempt=1, until=9.0, reason="slow down", status=429, rate_limited=True)


def summary_of(index: RunIndex, run: str = "a1") -> RunSummary:
    summary = index.get("a1", run)
    assert summary is not None
    return summary


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


def test_what_code_uses_is_seen_while_it_runs() -> None:
    calls = [CodeRequest("look"), CodeRequest("look")]
    asked = BlockYielded(block="b", exchange=0, calls=calls, stored=7, is_counted=True)
    index = index_of([entry("a1", 1, 10.0, accepted("a1")), entry("a1", 2, 11.0, asked)])
    assert summary_of(index).usage == Usage(calls=2, stored_bytes=7)


def test_a_run_is_followed_to_its_end() -> None:
    index = RunIndex()
    seen = []
    for seq, one in enumerate(story("a1"), start=1):
        index.apply(seq, one)
        summary = summary_of(index)
        seen.append((summary.state, summary.step, summary.usage.input_tokens))
    states = ["running", "waiting", "running", "running", "running", "success"]
    assert seen == list(zip(states, [1, 1, 1, 2, 2, 2], [0, 0, 0, 7, 12, 12], strict=True))
    assert (summary.started_at, summary.ended_at, summary.session) == (10.0, 15.0, "s1")
    assert summary.usage == Usage(12, 2, 2)


def test_the_summary_agrees_with_the_fold_at_every_entry() -> None:
    entries = story("a1")
    index = RunIndex()
    for seq, one in enumerate(entries, start=1):
        index.apply(seq, one)
        summary, run = summary_of(index), fold(entries[:seq], "a1", "a1")
        assert summary.finished == (run.result is not None)
        assert (summary.usage, summary.step) == (run.usage, run.step)


def test_an_ignored_record_wakes_no_waiting_run_and_revives_no_ended_one() -> None:
    ignored = ev.RecordIgnored(kind="timer", reason="late")
    index = index_of([*story("a1")[:2], entry("a1", 3, 12.0, ignored)])
    summary = summary_of(index)
    assert summary.state == "waiting"
    error = ErrorInfo(type="AgentGenerationError", message="no model")
    index.apply(4, entry("a1", 4, 13.0, ev.RunFinished(state="error", error=error, steps=1)))
    index.apply(5, entry("a1", 5, 14.0, called(9)))
    assert (summary.state, summary.error, summary.ended_at, summary.step) == ("error", error, 13.0, 1)


def test_children_hang_below_their_parent_in_the_order_of_their_start() -> None:
    child, other = call_id("a1", 1, 0), call_id("a1", 1, 1)
    parents = {"a1": None, other: "a1", child: "a1", call_id(child, 1, 0): child}
    index = index_of(
        entry(run, 1, float(at), accepted(run, parent), parent=parent)
        for at, (run, parent) in enumerate(parents.items())
    )
    below = index.runs_by_parent("a1")
    assert [one.id for one in below["a1"]] == [other, child]
    assert [one.id for one in below[child]] == [call_id(child, 1, 0)]
    assert [one.id for one in index.roots()[0]] == ["a1"]


def test_a_long_task_is_shortened() -> None:
    index = index_of([entry("a1", 1, 1.0, accepted("a1", text="x" * 1000))])
    assert len(summary_of(index).task) == MAX_TASK_CHARS


def test_a_journal_whose_beginning_expired_is_taken_up_at_its_snapshot() -> None:
    state: Run = fold(story("a1")[:4], "a1", "a1")
    index = RunIndex()
    index.apply(70, entry("a1", 5, 14.0, answered(2, 5), snapshot=state))
    summary = summary_of(index)
    assert (summary.task, summary.session, summary.step) == ("Do it.", "s1", 2)
    assert summary.usage == Usage(12, 2, 2)
    tree = index.tree("a1")
    assert tree is not None
    assert tree.first == 0, "what lies before is not known"


def test_the_oldest_trees_make_room() -> None:
    names = [f"r{number:02}" for number in range(30)]
    entries = [
        entry(run, 1, float(at), accepted(run, parent), parent=parent)
        for at, name in enumerate(names)
        for run, parent in ((name, None), (call_id(name, 1, 0), name))
    ]
    index = index_of(entries, capacity=10)
    assert len(index) == 10
    assert [one.id for one in index.roots()[0]] == ["r29", "r28", "r27", "r26", "r25"]
    assert index.get("r00", "r00") is None


def test_runs_that_have_not_ended_stay_longest() -> None:
    index = RunIndex(capacity=3)
    for seq, name in enumerate(["old", "ended", "new", "newest"], start=1):
        over = [ev.RunFinished(state="success")] if name == "ended" else []
        index.apply(seq, entry(name, 1, float(seq), accepted(name), *over))
    assert [one.id for one in index.roots()[0]] == ["newest", "new", "old"]
    index.apply(9, entry("last", 1, 9.0, accepted("last")))
    assert [one.id for one in index.roots()[0]] == ["last", "newest", "new"]


def test_only_some_runs_are_listed() -> None:
    index = RunIndex()
    for seq, (name, user) in enumerate([("a1", "ann"), ("b1", None), ("c1", "bob"), ("d1", "ann")], start=1):
        index.apply(seq, entry(name, 1, float(seq), accepted(name, origin=Origin(user=user))))
    assert [one.id for one in index.roots(only=lambda run: run.user == "ann")[0]] == ["d1", "a1"]


def test_a_tree_can_be_dropped() -> None:
    index = index_of(story("a1"))
    index.drop("a1")
    index.drop("a1")
    assert (len(index), index.roots(), index.tree("a1")) == (0, ([], None), None)


def test_what_came_late_for_nobody_is_not_shown() -> None:
    index = RunIndex()
    late = ev.RecordIgnored(kind="ToolResult", reason="the run has not begun")
    index.apply(1, entry("a1", 1, 1.0, late))
    assert (len(index), index.roots()[0]) == (0, [])
    index.apply(2, entry("a1", 2, 2.0, accepted("a1")))
    index.apply(3, entry("a1_1_0", 1, 3.0, late))
    assert [one.id for one in index.roots()[0]] == ["a1"]
    assert index.get("a1", "a1_1_0") is None


def test_a_page_behind_a_tree_that_was_dropped_is_where_it_was() -> None:
    index = index_of(entry(name, 1, float(at), accepted(name)) for at, name in enumerate("abcd"))
    _, before = index.roots(limit=2)
    assert before == "c"
    index.drop("c")
    assert [one.id for one in index.roots(before=before)[0]] == ["b", "a"]
    index.apply(9, entry("c", 1, 9.0, accepted("c")))
    assert [one.id for one in index.roots(before="c")[0]] == ["d", "b", "a"], "begun anew"


def test_an_unknown_page_is_refused() -> None:
    with pytest.raises(KeyError):
        RunIndex().roots(before="nobody")


# --- many runs, interleaved in any order


@st.composite
def interleavings(draw: st.DrawFn) -> list[Entry]:
    """Entries of up to six runs of distinct ages, each run's own in order."""
    names = [f"r{number}" for number in range(draw(st.integers(1, 6)))]
    journals = {}
    for name in names:
        length = draw(st.integers(1, 6))
        offset = draw(st.floats(0, 100, allow_nan=False))
        journals[name] = [msgspec.structs.replace(one, at=one.at + offset) for one in story(name)[:length]]
    turns = draw(st.permutations([name for name in names for _ in journals[name]]))
    iterators: dict[str, Iterator[Entry]] = {name: iter(journal) for name, journal in journals.items()}
    return [next(iterators[name]) for name in turns]


@given(interleavings(), st.data())
def test_taking_entries_in_twice_changes_nothing(entries: list[Entry], data: st.DataObject) -> None:
    index = index_of(entries)
    before = msgspec.json.encode(index.trees())
    start = data.draw(st.integers(0, len(entries) - 1))
    for seq, one in list(enumerate(entries, start=1))[start:]:
        index.apply(seq, one)
    assert msgspec.json.encode(index.trees()) == before


@given(interleavings(), st.data())
def test_going_on_from_a_saved_copy_gives_the_same_list(entries: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(entries)))
    copy = msgspec.json.encode(index_of(entries[:cut]).trees())
    index = RunIndex(msgspec.json.decode(copy, type=list[TreeSummary]))
    for seq, one in list(enumerate(entries, start=1))[cut:]:
        index.apply(seq, one)
    assert msgspec.json.encode(index.trees()) == msgspec.json.encode(index_of(entries).trees())


@given(interleavings(), st.integers(1, 4), st.sampled_from([None, "running", "waiting", "success"]))
def test_pages_together_are_the_whole_list(entries: list[Entry], limit: int, state: str | None) -> None:
    index = index_of(entries)
    whole, more = index.roots(state=state, limit=1000)
    assert more is None
    assert all(state in (None, one.state) for one in whole)
    ages = [(one.started_at, one.id) for one in whole]
    assert ages == sorted(ages, reverse=True)
    paged, before = [], None
    for _ in itertools.count():
        page, before = index.roots(state=state, limit=limit, before=before)
        paged += page
        if before is None:
            break
        assert len(page) == limit
    assert paged == whole
