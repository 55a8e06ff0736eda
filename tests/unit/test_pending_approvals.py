"""Calls that wait for a person, as the gateway's list of runs knows them."""

from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.loop.fold import fold
from cadre.protocol.topology import call_id
from cadre_gateway.index.pending_approvals import MAX_ARGUMENTS_BYTES
from cadre_gateway.index.run_index import RunIndex, TreeSummary
from unit.journal_entries import accepted, called, entry, index_of

ROOT = "a1"
CHILD = call_id(ROOT, 1, 0)
HELD = call_id(CHILD, 1, 0)
OTHER = call_id(CHILD, 1, 1)


def requested(call: str, **arguments: Any) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(call=call, name="refund", kind="tool", arguments=arguments, reason="always")


def decided(call: str) -> ev.ApprovalDecided:
    return ev.ApprovalDecided(call=call, verdict="rejected", sender="ann")


ANSWERED = ev.ModelAnswered(purpose="act", step=1, attempt=1, content="")

STORY = [
    entry(ROOT, 1, 10.0, accepted(ROOT), called(1)),
    entry(ROOT, 2, 11.0, ev.DelegateStarted(call=CHILD, member="boss", task="Refund it.")),
    entry(CHILD, 1, 12.0, accepted(CHILD, ROOT), called(1)),
    entry(CHILD, 2, 13.0, ANSWERED, requested(HELD, amount=500), requested(OTHER, amount=7)),
]
"""A member waits for two words at once."""


def seen(index: RunIndex, run: str) -> tuple[str, str | None, int]:
    summary = index.get(ROOT, run)
    assert summary is not None
    return summary.state, summary.waiting_for, summary.approvals


def test_a_held_call_is_seen_at_its_run_and_counted_above_it() -> None:
    index = index_of(STORY)
    assert seen(index, CHILD) == ("waiting", "approval", 2)
    assert seen(index, ROOT) == ("running", None, 2)
    first, second = index.pending()
    assert (first.call, first.run, first.arguments, first.requested_at) == (OTHER, CHILD, {"amount": 7}, 13.0)
    assert second.call == HELD
    assert [call.call for call in index.pending((13.0, OTHER))] == [HELD]


def test_one_decision_leaves_the_other_call_waiting() -> None:
    index = index_of([*STORY, entry(CHILD, 3, 14.0, decided(HELD))])
    assert seen(index, CHILD) == ("waiting", "approval", 1)
    index.apply(6, entry(CHILD, 4, 15.0, decided(OTHER), ev.StepFinished(step=1), called(2)))
    assert seen(index, CHILD) == ("running", None, 0)
    assert seen(index, ROOT) == ("running", None, 0)
    assert list(index.pending()) == []


def test_what_was_decided_twice_is_gone_once() -> None:
    index = index_of([*STORY, entry(CHILD, 3, 14.0, decided(HELD)), entry(CHILD, 4, 15.0, decided(HELD))])
    assert seen(index, ROOT)[2] == 1


def test_a_run_that_ends_waits_for_nobody() -> None:
    """Its parent has ended before it."""
    ended = ev.RunFinished(state="cancelled")
    index = index_of([*STORY, entry(ROOT, 3, 14.0, ended), entry(CHILD, 3, 15.0, ended)])
    assert seen(index, CHILD) == ("cancelled", None, 0)
    assert seen(index, ROOT) == ("cancelled", None, 0)
    assert list(index.pending()) == []


def test_waiting_for_the_model_is_another_wait() -> None:
    deferred = ev.ModelDeferred(step=1, attempt=1, until=20.0, reason="slow down")
    index = index_of([STORY[0], entry(ROOT, 2, 11.0, deferred)])
    assert seen(index, ROOT) == ("waiting", "model", 0)


def test_a_late_record_changes_nothing() -> None:
    index = index_of([*STORY, entry(CHILD, 3, 14.0, ev.RecordIgnored(kind="Decision", reason="late"))])
    assert seen(index, CHILD) == ("waiting", "approval", 2)


def test_the_saved_index_knows_what_waits() -> None:
    trees = msgspec.json.decode(msgspec.json.encode(index_of(STORY).trees()), type=list[TreeSummary])
    index = RunIndex(trees)
    assert [call.call for call in index.pending()] == [OTHER, HELD]
    index.apply(5, entry(CHILD, 3, 14.0, decided(OTHER), decided(HELD)))
    assert seen(index, ROOT) == ("running", None, 0)
    assert list(index.pending()) == []


def test_a_journal_that_begins_with_a_snapshot_tells_what_waits() -> None:
    state = fold(STORY[2:], CHILD, ROOT)
    index = index_of([*STORY[:2], entry(CHILD, 3, 14.0, decided(HELD), snapshot=state)])
    assert seen(index, CHILD) == ("waiting", "approval", 1)
    assert [call.call for call in index.pending()] == [OTHER]
    assert next(index.pending()).requested_at == 13.0


def test_a_tree_that_is_too_old_for_the_list_takes_its_calls_along() -> None:
    index = index_of(STORY, capacity=2)
    for seq, run in enumerate(("b1", "b2"), start=9):
        index.apply(seq, entry(run, 1, 20.0 + seq, accepted(run)))
    assert index.get(ROOT, ROOT) is None
    assert list(index.pending()) == []


def test_long_arguments_are_cut_in_the_list() -> None:
    index = index_of([*STORY[:3], entry(CHILD, 2, 13.0, requested(HELD, note="x" * 100_000, amount=500))])
    (call,) = index.pending()
    assert call.cut
    assert call.arguments["amount"] == 500
    assert len(msgspec.json.encode(call.arguments)) < MAX_ARGUMENTS_BYTES
    many = {f"a{n}": n for n in range(10_000)}
    index.apply(9, entry(CHILD, 3, 14.0, requested(OTHER, **many)))
    (call, _) = index.pending()
    assert call.cut
    assert len(msgspec.json.encode(call.arguments)) < 2 * MAX_ARGUMENTS_BYTES
