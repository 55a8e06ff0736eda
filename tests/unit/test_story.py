"""The story of a tree, over every recorded journal: it agrees with the fold, and takes each entry once."""

from collections.abc import Iterator

import msgspec
import pytest

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.loop.fold import fold
from cadre.loop.redecide import Journaled
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


@pytest.mark.parametrize("name", kept.names(VERSION))
def test_a_recorded_tree(name: str) -> None:
    for entries in trees(name):
        tree = entries[0].entry.tree
        story = Story(tree)
        ended: list[str] = []
        for seq, one in entries:
            ended += story.take(seq, one).ended
            known = msgspec.json.encode(story.summaries), msgspec.json.encode(story.pending)
            assert story.take(seq, one) is NOTHING
            assert (msgspec.json.encode(story.summaries), msgspec.json.encode(story.pending)) == known
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
