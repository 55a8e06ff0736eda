"""Calls that wait for a person, as the gateway's list of runs knows them."""

from typing import Any

import msgspec

from cadre.api.runs import PendingCall
from cadre.journal import events as ev
from cadre.protocol.messages import Unfinished
from cadre.protocol.topology import call_id
from cadre.views.held_calls import MAX_ARGUMENTS_BYTES
from cadre_gateway.index.lists import AlikeCalls, CallFilter, listed_calls, verdicts_on
from cadre_gateway.index.run_filter import Cursor, TreeReach
from cadre_gateway.index.run_index import RunIndex
from unit.inline_index import InlineDatabase, index_of, new_index, take
from unit.journal_entries import accepted, called, entry

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


async def waiting(index: RunIndex, before: Cursor | None = None, **wanted: Any) -> list[PendingCall]:
    found = await listed_calls(index, CallFilter(**wanted), decided=False, limit=50, before=before)
    return [one.call for one in found if isinstance(one.call, PendingCall)]


async def seen(index: RunIndex, run: str) -> tuple[str, str | None, int]:
    summary = await index.get(ROOT, run)
    assert summary is not None
    return summary.state, summary.waiting_for, summary.approvals


async def test_a_held_call_is_seen_at_its_run_and_counted_above_it() -> None:
    index = await index_of(STORY)
    assert await seen(index, CHILD) == ("waiting", "approval", 2)
    assert await seen(index, ROOT) == ("running", None, 2)
    first, second = await waiting(index)
    assert (first.call, first.run, first.arguments, first.requested_at) == (OTHER, CHILD, {"amount": 7}, 13.0)
    assert second.call == HELD
    assert [call.call for call in await waiting(index, Cursor(13.0, OTHER))] == [HELD]


async def test_one_decision_leaves_the_other_call_waiting() -> None:
    index = await index_of([*STORY, entry(CHILD, 3, 14.0, decided(HELD))])
    assert await seen(index, CHILD) == ("waiting", "approval", 1)
    await take(index, 6, entry(CHILD, 4, 15.0, decided(OTHER), ev.StepFinished(step=1), called(2)))
    assert await seen(index, CHILD) == ("running", None, 0)
    assert await seen(index, ROOT) == ("running", None, 0)
    assert await waiting(index) == []


async def test_what_was_decided_twice_is_gone_once() -> None:
    index = await index_of([*STORY, entry(CHILD, 3, 14.0, decided(HELD)), entry(CHILD, 4, 15.0, decided(HELD))])
    assert (await seen(index, ROOT))[2] == 1


async def test_a_run_that_ends_waits_for_nobody() -> None:
    """Its parent has ended before it."""
    ended = ev.RunFinished(state="cancelled")
    index = await index_of([*STORY, entry(ROOT, 3, 14.0, ended), entry(CHILD, 3, 15.0, ended)])
    assert await seen(index, CHILD) == ("cancelled", None, 0)
    assert await seen(index, ROOT) == ("cancelled", None, 0)
    assert await waiting(index) == []


async def test_waiting_for_the_model_is_another_wait() -> None:
    deferred = ev.ModelDeferred(step=1, attempt=1, until=20.0, reason="slow down")
    index = await index_of([STORY[0], entry(ROOT, 2, 11.0, deferred)])
    assert await seen(index, ROOT) == ("waiting", "model", 0)


async def test_a_late_record_changes_nothing() -> None:
    index = await index_of([*STORY, entry(CHILD, 3, 14.0, ev.RecordIgnored(kind="Decision", code="not-awaited"))])
    assert await seen(index, CHILD) == ("waiting", "approval", 2)


async def test_the_saved_index_knows_what_waits() -> None:
    database = InlineDatabase()
    first = await new_index(database)
    for seq, one in enumerate(STORY, start=1):
        await take(first, seq, one)
    await first.flush()
    index = await new_index(database)
    assert [call.call for call in await waiting(index)] == [OTHER, HELD]
    await take(index, 5, entry(CHILD, 3, 14.0, decided(OTHER), decided(HELD)))
    assert await seen(index, ROOT) == ("running", None, 0)
    assert await waiting(index) == []
    ruled = await listed_calls(index, CallFilter(), decided=True, limit=50, before=None)
    assert [one.place.name for one in ruled] == [OTHER, HELD]
    alike = AlikeCalls("boss", "refund")
    assert await verdicts_on(index, [alike, AlikeCalls("boss", "pay")], TreeReach()) == {alike: {"rejected": 2}}
    assert await verdicts_on(index, [alike], TreeReach(user="ann")) == {}


async def test_a_call_is_listed_with_what_it_asks_for() -> None:
    own = ev.ApprovalRequested(
        call=OTHER, name="refund", kind="tool", arguments={"amount": 7}, reason="always", text="Refund 7\n€"
    )
    paused = ev.ToolPaused(call="b1_1_0", tool="ask", unfinished=Unfinished(state={}, question="always"), executor="e1")
    index = await index_of(
        [
            *STORY[:3],
            entry(CHILD, 2, 13.0, ANSWERED, requested(HELD, amount=500), own),
            entry("b1", 1, 20.0, accepted("b1"), paused, requested("b1_1_0")),
        ]
    )
    assert [call.headline for call in await waiting(index)] == ["always", "Refund 7 €", "refund(amount=500)"]


async def test_calls_are_listed_by_agent_run_tree_and_who_asks() -> None:
    index = await index_of([*STORY, entry("b1", 1, 20.0, accepted("b1"), requested("b1_1_0"))])
    assert [call.call for call in await waiting(index)] == ["b1_1_0", OTHER, HELD]
    assert [call.call for call in await waiting(index, tree="b1")] == ["b1_1_0"]
    assert [call.call for call in await waiting(index, run=ROOT)] == [OTHER, HELD]
    assert [call.call for call in await waiting(index, run=CHILD)] == [OTHER, HELD]
    assert await waiting(index, run="a") == []
    assert await waiting(index, agent="clerk") == []
    assert await waiting(index, reach=TreeReach(frozenset({"clerk"}))) == []
    assert await waiting(index, reach=TreeReach(user="ann")) == []


async def test_long_arguments_are_cut_in_the_list() -> None:
    index = await index_of([*STORY[:3], entry(CHILD, 2, 13.0, requested(HELD, note="x" * 100_000, amount=500))])
    (call,) = await waiting(index)
    assert call.cut
    assert call.arguments["amount"] == 500
    assert len(msgspec.json.encode(call.arguments)) < MAX_ARGUMENTS_BYTES
    many = {f"a{n}": n for n in range(10_000)}
    await take(index, 9, entry(CHILD, 3, 14.0, requested(OTHER, **many)))
    (call, _) = await waiting(index)
    assert call.cut
    assert len(msgspec.json.encode(call.arguments)) < 2 * MAX_ARGUMENTS_BYTES
