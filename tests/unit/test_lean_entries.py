"""Entries that are read without the snapshots that their readers need not."""

import pytest

from cadre.delivery import codec
from cadre.delivery.codec import decode_entry, encode
from cadre.loop.fold import fold
from unit.loop.build import ANSWER, Course, call, result


def test_only_a_large_snapshot_behind_the_entry_before_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    course = Course().begin()
    course.say(call("add", a=1, b=2))
    course.arrive(result(course.id(), 3), snapshot=True)
    course.say(ANSWER)
    journal = [(entry.run, encode(entry)) for entry in course.journal()]
    run, third = journal[2]
    assert decode_entry(third, {run: 2}).snapshot is not None, "it is small"

    monkeypatch.setattr(codec, "SPILL_BYTES", 100)
    assert decode_entry(third, {}).snapshot is not None
    assert decode_entry(third, {run: 1}).snapshot is not None, "the entry before it is missing"
    assert decode_entry(third, {run: 2}).snapshot is None

    lean = [decode_entry(data, {run: n}) for n, (run, data) in enumerate(journal)]
    tree = course.journal()[0].tree
    assert fold(lean, run, tree) == fold(course.journal(), run, tree)
