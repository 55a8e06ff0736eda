"""Tests of which revision a run begins with, which queue its records go to, and what changes make of a rollout."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from cadre.api.directory import RolloutChange
from cadre.journal.run import Phase, Run
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.messages import Record, Task, UserMessage
from cadre.protocol.rollout import SLOTS, Rollout, Share, slot_of, slot_receiver
from cadre.protocol.topology import Topology
from cadre.runtime.revision_queue import Elsewhere, RevisionQueue
from cadre.service.revision import live_revisions, objects_of
from cadre_gateway.rollouts.changes import RefusedChange, changed, warnings_of
from cadre_gateway.rollouts.editor import lag_beside
from cadre_gateway.rollouts.keeper import QUIET_SECONDS, settled

A, B, C = "aaaa00000000", "bbbb00000000", "cccc00000000"
LATE = QUIET_SECONDS + 1


def rollout(*weights: int, **first: Any) -> Rollout:
    shares = [
        Share(revision=revision, slot=slot, weight=weight)
        for slot, (revision, weight) in enumerate(zip((A, B, C), weights, strict=False), 1)
    ]
    return Rollout(agent="clerk", version=3, shares=[replace(shares[0], **first), *shares[1:]])


# --- the choice


@pytest.mark.parametrize("weight", [0, 1, 10, 50, 99, 100])
def test_the_share_of_new_runs_is_the_weight(weight: int) -> None:
    shared = rollout(100 - weight, weight)
    chosen = Counter(share.revision for n in range(5000) if (share := shared.choose(f"run{n}", {A, B})))
    assert chosen.total() == 5000
    assert chosen[B] / 50 == pytest.approx(weight, abs=2)
    assert (chosen[B] == 0) == (weight == 0)


def test_a_greater_weight_takes_no_run_away() -> None:
    def of(weight: int) -> set[int]:
        shared = rollout(100 - weight, weight)
        return {n for n in range(2000) if (share := shared.choose(f"run{n}", {A, B})) and share.revision == B}

    assert of(5) < of(10) < of(60)


def test_a_revision_without_replicas_gets_no_new_runs_unless_nobody_has_any() -> None:
    shared = rollout(10, 90)
    assert {share.revision for n in range(50) if (share := shared.choose(f"run{n}", {A}))} == {A}
    assert {share.revision for n in range(50) if (share := shared.choose(f"run{n}", {C}))} == {A, B}
    opening = replace(shared, shares=[shared.shares[0], replace(shared.shares[1], state="opening")])
    assert {share.revision for n in range(50) if (share := opening.choose(f"run{n}", {A, B}))} == {A}


def test_runs_stay_with_their_revision_its_adopter_or_the_heaviest() -> None:
    owner = rollout(0, 90, 10).owner
    assert [share.revision for of in (A, B, C, "unknown") if (share := owner(of))] == [A, B, C, B]
    adopted = rollout(0, 90, 10, adopted_by=C)
    assert (share := adopted.owner(A)) is not None
    assert share.revision == C
    assert [adopted.slots_of(of) for of in (A, B, C)] == [set(), {2}, {1, 3}]
    assert rollout(100, state="closing").owner(A) is None


def test_slots_have_names_that_no_agent_can_have() -> None:
    assert [slot_of(slot_receiver("clerk", slot)) for slot in (0, 1, SLOTS)] == [
        ("clerk", 0),
        ("clerk", 1),
        ("clerk", SLOTS),
    ]
    topology = Topology(1)
    address = topology.address(topology.inbox(slot_receiver("clerk", 2), "gateway", "t", "t"))
    assert (address.receiver, address.slot, address.sender) == ("clerk", 2, "gateway")


# --- where a record goes


TASK = Task(id="r:task", tree="r", run="r", at=0.0, agent="clerk", task="x")
SAID = UserMessage(id="m", tree="r", run="r", at=0.0, text="x", sender="ann")


def place(
    shared: Rollout | None, run: Run, record: Record = TASK, slot: int = 0, deliveries: int = 1, me: str = A
) -> int | None:
    """The slot that a replica of revision `me` passes the record on to; None when it takes it itself."""
    queue = RevisionQueue(me, lambda: shared, lambda: {A, B})
    try:
        queue.check(run, record, slot, deliveries)
    except Elsewhere as other:
        return other.slot
    return None


NEW = Run(id="r", tree="r")


def begun(revision: str, phase: Phase = Phase.ACTING) -> Run:
    return Run(id="r", tree="r", phase=phase, revision=revision)


def test_without_a_rollout_everything_is_in_its_place() -> None:
    assert place(None, begun(B), SAID, deliveries=7) is None


def test_a_new_task_goes_to_the_chosen_one_and_stays_there() -> None:
    assert place(rollout(0, 100), NEW) == 2
    assert place(rollout(100, 0), NEW) is None
    # Its weight has changed since: who was given it begins it.
    assert place(rollout(0, 100), NEW, slot=1) is None


def test_what_comes_before_the_task_is_anybodys() -> None:
    assert place(rollout(0, 100), NEW, SAID) is None


def test_records_of_a_run_follow_its_revision() -> None:
    assert place(rollout(90, 10), begun(B), SAID) == 2
    assert place(rollout(90, 10), begun(B), SAID, me=B) is None
    assert place(rollout(90, 10), begun(B), TASK, slot=1) == 2, "the fence was another one's"
    assert place(rollout(0, 100, adopted_by=B), begun(A), SAID) == 2
    assert place(rollout(90, 10), begun(""), SAID) is None
    assert place(rollout(90, 10), begun(B, Phase.DONE), SAID) is None


def test_what_comes_again_may_have_been_passed_on_already() -> None:
    assert place(rollout(90, 10), begun(A), SAID, deliveries=2) == 1
    assert place(rollout(90, 10), begun(A), SAID, slot=1, deliveries=2) is None


# --- changes


def test_a_rollout_begins_with_all_that_are_live() -> None:
    begun = changed(Rollout(agent="clerk"), RolloutChange(to=B[:5], weight=10), [A, B])
    assert [(s.revision, s.slot, s.weight, s.state) for s in begun.shares] == [
        (A, 1, 90, "opening"),
        (B, 2, 10, "opening"),
    ]
    held = changed(Rollout(agent="clerk"), RolloutChange(to=A, weight=100), {A})
    assert [(s.revision, s.weight) for s in held.shares] == [(A, 100)]


def weights(found: Rollout) -> list[int]:
    return [share.weight for share in found.shares]


def test_the_others_share_the_rest_as_before() -> None:
    assert weights(changed(rollout(60, 30, 10), RolloutChange(to=C, weight=40), {A, B, C})) == [40, 20, 40]
    assert weights(changed(rollout(60, 30, 10), RolloutChange(to=C, weight=39), {A, B, C})) == [41, 20, 39]
    assert weights(changed(rollout(60, 40), RolloutChange(to=B, weight=100), {A, B})) == [0, 100]
    assert weights(changed(rollout(0, 100), RolloutChange(to=B, weight=70), {A, B})) == [30, 70]
    assert weights(changed(rollout(60, 40, 0), RolloutChange(to=C, weight=10, rest=B), {A, B, C})) == [
        0,
        90,
        10,
    ]


def test_rolled_back_the_youngest_gets_nothing() -> None:
    assert weights(changed(rollout(90, 10), RolloutChange(rollback=True), {A, B})) == [100, 0]
    assert weights(changed(rollout(0, 100), RolloutChange(rollback=True), {A, B})) == [100, 0]


def test_rolled_back_to_the_revision_that_was_there_first_whatever_the_digests_say() -> None:
    begun = changed(Rollout(agent="clerk"), RolloutChange(to=A, weight=10), [B, A])
    assert [(s.revision, s.weight) for s in begun.shares] == [(B, 90), (A, 10)]
    opened = replace(begun, shares=[replace(share, state="open") for share in begun.shares])
    assert weights(changed(opened, RolloutChange(rollback=True), [B, A])) == [100, 0]


def test_live_revisions_are_told_by_the_age_of_their_oldest_replica() -> None:
    def presence(revision: str, started_at: float) -> Presence:
        card = AgentCard(name="clerk", description="Sorts.")
        return Presence(
            instance=f"{revision}{started_at}",
            host="h",
            pid=1,
            started_at=started_at,
            agent=card,
            revision=revision,
        )

    found = live_revisions([presence(B, 3.0), presence(A, 2.0), presence(B, 1.0), presence("", 0.0)], "clerk")
    assert [*found.items()] == [(B, 2), (A, 1)]


def test_rolled_back_is_the_youngest_of_those_that_get_new_runs() -> None:
    assert weights(changed(rollout(60, 40, 0), RolloutChange(rollback=True), {A, B, C})) == [100, 0, 0]
    assert weights(changed(rollout(60, 30, 10), RolloutChange(rollback=True), {A, B, C})) == [67, 33, 0]


def test_runs_are_adopted_and_given_back() -> None:
    adopted = changed(rollout(0, 100), RolloutChange(adopt=A, by=B), {B})
    assert adopted.shares[0].adopted_by == B
    assert changed(adopted, RolloutChange(adopt=A, by=A), {A, B}).shares[0].adopted_by == ""
    assert changed(adopted, RolloutChange(to=A, weight=10), {A, B}).shares[0].adopted_by == ""


@pytest.mark.parametrize(
    ("before", "change", "live", "why"),
    [
        (rollout(100), RolloutChange(), {A}, "say one thing"),
        (rollout(100), RolloutChange(to=A, rollback=True), {A}, "say one thing"),
        (rollout(100), RolloutChange(to="dd", weight=1), {A, B}, "'dd' is no revision of clerk: there are"),
        (rollout(100, 0), RolloutChange(to="", weight=1), {A, B}, "is no revision"),
        (rollout(100), RolloutChange(to=B, weight=101), {A, B}, "from 0 to 100"),
        (rollout(100), RolloutChange(to=B), {A, B}, f"say the `weight` of '{B}' too"),
        (rollout(100, 0), RolloutChange(to=B, weight=10), {A}, f"revision {B} has no"),
        (rollout(100), RolloutChange(to=A, weight=50), {A}, "the other 50 with `rest`"),
        (Rollout(agent="clerk"), RolloutChange(to=C, weight=50), [A, B, C], f"there is {A}, {B}"),
        (Rollout(agent="clerk"), RolloutChange(rollback=True), {A}, "has no rollout"),
        (rollout(100), RolloutChange(rollback=True), {A}, f"cadre rollout clerk --to REV --weight {100}"),
        (
            rollout(100, 0),
            RolloutChange(rollback=True),
            {A, B},
            f"cadre rollout clerk --to REV --weight {100}",
        ),
        (
            rollout(100, state="closing"),
            RolloutChange(to=A, weight=10),
            {A, B},
            f"queue of revision {A} is being",
        ),
        (
            rollout(100, state="closing"),
            RolloutChange(rollback=True),
            {A, B},
            f"cadre rollout clerk --to REV --weight {100}",
        ),
        (rollout(0, 100), RolloutChange(rollback=True), {B}, f"revision {A} has no"),
        (rollout(100, 0), RolloutChange(adopt=A, by=B), {A, B}, "gets new runs"),
        (rollout(0, 100), RolloutChange(adopt=A), {A, B}, "by which revision"),
        (rollout(0, 100), RolloutChange(end=True), {A, B}, f"{A}, {B}"),
        (rollout(100), RolloutChange(end=True), {A, B}, f"revision {B} of clerk"),
    ],
)
def test_what_cannot_be_is_refused(before: Rollout, change: RolloutChange, live: set[str], why: str) -> None:
    with pytest.raises(RefusedChange, match=why.replace("(", r"\(")):
        changed(before, change, live)


def test_there_is_room_for_so_many_revisions() -> None:
    full = Rollout(
        agent="clerk",
        shares=[Share(revision=f"{n}{A[1:]}", slot=n, weight=100 // SLOTS) for n in range(1, SLOTS + 1)],
    )
    with pytest.raises(RefusedChange, match=f"clerk has {SLOTS} revisions"):
        changed(full, RolloutChange(to=B, weight=1), {B})


# --- what becomes of it on its own


def test_a_drained_revision_goes() -> None:
    shared = rollout(0, 100)
    closing = settled(shared, {}, {}, LATE)
    assert [share.state for share in closing.shares] == ["closing", "open"]
    assert [share.revision for share in settled(closing, {}, {}, LATE).shares] == [B]


@pytest.mark.parametrize(
    ("shared", "open_runs", "waiting", "now"),
    [
        (rollout(0, 100), {A: 1}, {}, LATE),
        (rollout(0, 100), None, {}, LATE),
        (rollout(0, 100), {}, {1: 1}, LATE),
        (rollout(0, 100), {}, {}, 1.0),
        (rollout(100), {}, {}, LATE),
        (rollout(0), {}, {}, LATE),
        (rollout(0, 0, 100, adopted_by=B), {A: 1}, {}, LATE),
        (rollout(100, state="closing"), {}, {1: 1}, LATE),
    ],
)
def test_what_is_needed_stays(
    shared: Rollout, open_runs: dict[str, int] | None, waiting: dict[int, int], now: float
) -> None:
    assert settled(shared, open_runs, waiting, now) is shared


def test_a_queue_is_open_once_it_is_there() -> None:
    found = settled(rollout(100, state="opening"), {}, {}, 0.0)
    assert [share.state for share in found.shares] == ["open"]


# --- what each revision's Deployment is scaled by


def beside(lags: dict[int, int], shared: Rollout | None, live: set[str]) -> tuple[int, int]:
    """For the first's Deployment, and for the one that is called `next`."""
    return lag_beside(shared, lags, live, ""), lag_beside(shared, lags, live, "next")


def test_a_deployment_is_scaled_by_its_revisions_queue_and_its_share_of_the_agents() -> None:
    shared = rollout(75, 25)
    shared = replace(shared, shares=[shared.shares[0], replace(shared.shares[1], beside="next")])
    assert beside({0: 40}, shared, {A, B}) == (30, 10)
    assert beside({0: 40, 1: 3, 2: 5}, shared, {A, B}) == (33, 15)
    assert beside({0: 1}, shared, {A, B}) == (1, 1), "a record is somebody's"
    # Those that do not live get no new runs, but have their own queue.
    assert beside({0: 40, 2: 5}, shared, {A}) == (40, 5)
    assert beside({0: 40}, shared, set()) == (30, 10)
    drained = replace(shared, shares=[replace(one, weight=0) for one in shared.shares])
    assert beside({0: 4, 1: 3, 2: 5}, drained, {A, B}) == (7, 5)
    assert beside({0: 4}, None, {A}) == beside({0: 4}, Rollout(agent="clerk"), {A}) == (4, 4)
    assert beside({}, None, set()) == (0, 0)


def test_adopted_runs_are_work_of_the_deployment_that_goes_on_with_them() -> None:
    shared = rollout(0, 100, adopted_by=B)
    shared = replace(shared, shares=[shared.shares[0], replace(shared.shares[1], beside="next")])
    assert beside({1: 3, 2: 5}, shared, {B}) == (0, 8)


def test_a_revision_is_where_it_was_last_seen() -> None:
    def told(*objects: tuple[str, str]) -> dict[str, str]:
        card = AgentCard(name="clerk", description="")
        there = [
            Presence(instance=b, host="h", pid=1, started_at=1.0, agent=card, revision=r, beside=b) for r, b in objects
        ]
        return objects_of(there, "clerk")

    begun = settled(rollout(90, 10), {}, {}, 0.0, told((A, ""), (B, "next")))
    assert [share.beside for share in begun.shares] == ["", "next"]
    # Away for a moment, it is not the first's; in the first's Deployment as well, it is.
    assert settled(begun, {}, {}, 0.0, told((A, ""))) is begun
    moved = settled(begun, {}, {}, 0.0, told((B, "next"), (B, "")))
    assert [share.beside for share in moved.shares] == ["", ""]


def test_warnings_say_what_to_do() -> None:
    assert warnings_of(Rollout(agent="clerk"), {A, B}, {A: 3}) == []
    assert warnings_of(rollout(90, 10), {A, B}, {A: 3}) == []
    away, waiting = warnings_of(rollout(90, 10), {A}, {B: 3})
    assert f"revision {B} of clerk" in away
    assert f"3 runs wait for revision {B} of clerk" in waiting
    assert f"`cadre rollout clerk --adopt {B} --by REV`" in waiting
    assert warnings_of(rollout(0, 100, adopted_by=B), {B}, {A: 3}) == []
    # Runs that it was given and no one has begun are open runs of no revision.
    for begun, told in ((0, "2 messages wait"), (1, "1 run and 2 messages wait")):
        (queued,) = warnings_of(rollout(0, 100), {B}, {A: begun}, {1: 2, 2: 7})
        assert f"{told} for revision {A}" in queued
    assert warnings_of(rollout(0, 100), {B}, {A: 1})[0].startswith("1 run waits for revision")
    assert str(A) in warnings_of(rollout(100), {B}, {})[0]
    (resting,) = warnings_of(rollout(90, 10), set(), {})
    assert f"{A} or {B}" in resting
    for open_runs, may_stop in (({}, True), ({C: 1}, False), (None, False)):
        *unknown, aside = warnings_of(rollout(90, 10), {A, B, C}, open_runs)
        assert len(unknown) == (open_runs is None)
        assert (str(C) in aside, "or stop it" in aside) == (
            True,
            may_stop,
        )
