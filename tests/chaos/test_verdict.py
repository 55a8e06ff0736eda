"""The verdict can fail: sound evidence passes, and each way in which it is doctored is found."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from cadre.journal.entry import Entry
from cadre.journal.events import DelegateFinished, RunFinished, ToolAnswered
from cadre.kinds.code.records import BlockFinished, BlockYielded
from cadre.ports import Stored
from cadre.protocol.code import CodeReply
from cadre.protocol.messages import ErrorInfo
from chaos.evidence import Delivered, EffectMessage, Evidence
from chaos.expected import coded_of, part_of, runs_of
from chaos.sound import sound_evidence
from chaos.verdict import violations

ROOT = "root0"
PART = part_of(ROOT, 0, 0)
CODED = coded_of(ROOT, 0)
UNKNOWN = part_of("root1", 1, 0).grind


def test_sound_evidence_passes() -> None:
    assert violations(sound_evidence()) == []


def test_sound_evidence_has_something_to_look_at() -> None:
    evidence = sound_evidence()
    assert set(evidence.journals) == runs_of(ROOT, 0) | runs_of("root1", 1)
    assert {line.tool for line in evidence.executions} == {"spend", "post", "look", "grind"}
    assert len(evidence.executions) == 32
    assert len(evidence.code) == 12


def change_entry(evidence: Evidence, run: str, index: int, /, **fields: object) -> None:
    journal = evidence.journals[run]
    journal[index] = journal[index]._replace(entry=msgspec.structs.replace(journal[index].entry, **fields))


def drop_events(evidence: Evidence, run: str, kind: type) -> None:
    for index, stored in enumerate(evidence.journals[run]):
        kept = [event for event in stored.entry.events if not isinstance(event, kind)]
        change_entry(evidence, run, index, events=kept)


def again(evidence: Evidence, run: str, index: int, cause: str) -> None:
    """The entry once more, at the end of the journal and rightly linked."""
    journal = evidence.journals[run]
    entry: Entry = msgspec.structs.replace(
        journal[index].entry, n=len(journal) + 1, cause=cause, prev=[stored.seq for stored in journal]
    )
    journal.append(Stored(10_000, entry, 0))


def index_of(evidence: Evidence, run: str, kind: type) -> int:
    journal = evidence.journals[run]
    return next(
        index
        for index, stored in enumerate(journal)
        if any(isinstance(event, kind) for event in stored.entry.events)
    )


def gap(evidence: Evidence) -> None:
    del evidence.journals[PART.worker][2]


def branch(evidence: Evidence) -> None:
    change_entry(evidence, PART.worker, 3, n=3)


def cause_twice(evidence: Evidence) -> None:
    first = evidence.journals[PART.worker][0].entry.cause
    change_entry(evidence, PART.worker, 4, cause=first)


def wrong_pointers(evidence: Evidence) -> None:
    change_entry(evidence, PART.worker, 3, prev=[1])


def stranger(evidence: Evidence) -> None:
    change_entry(evidence, PART.worker, 3, run=PART.lead)


def lost_run(evidence: Evidence) -> None:
    for run in runs_of(ROOT, 0):
        del evidence.journals[run]


def lost_member(evidence: Evidence) -> None:
    del evidence.journals[PART.worker]


def unasked_run(evidence: Evidence) -> None:
    evidence.journals["ghost"] = evidence.journals[ROOT]


def two_orders_one_run(evidence: Evidence) -> None:
    evidence.orders[1].run = ROOT


def no_end(evidence: Evidence) -> None:
    drop_events(evidence, PART.worker, RunFinished)


def answered_twice(evidence: Evidence) -> None:
    again(evidence, PART.worker, index_of(evidence, PART.worker, ToolAnswered), "another")


def never_answered(evidence: Evidence) -> None:
    drop_events(evidence, PART.lead, DelegateFinished)


def failed_run(evidence: Evidence) -> None:
    index = index_of(evidence, PART.worker, RunFinished)
    events = evidence.journals[PART.worker][index].entry.events
    failed = RunFinished(state="error", error=ErrorInfo("Poisoned", "five deliveries"))
    change_entry(evidence, PART.worker, index, events=[*events[:-1], failed])


def effect_twice(evidence: Evidence) -> None:
    line = next(line for line in evidence.executions if line.call == PART.spend)
    evidence.executions.append(line)


def effect_of_nobody(evidence: Evidence) -> None:
    evidence.executions.append(evidence.executions[0]._replace(call="root0_9_9"))


def effect_never_happened(evidence: Evidence) -> None:
    evidence.executions = [line for line in evidence.executions if line.call != PART.grind]


def two_claims(evidence: Evidence) -> None:
    evidence.effects[PART.spend].insert(0, evidence.effects[PART.spend][0])


def claim_without_result(evidence: Evidence) -> None:
    evidence.effects[PART.spend].pop()


def interrupted_for_nothing(evidence: Evidence) -> None:
    evidence.strikes.clear()


def idempotent_interrupted(evidence: Evidence) -> None:
    error = ErrorInfo("Interrupted", "outcome unknown")
    index = index_of(evidence, PART.lead, ToolAnswered)
    answered = ToolAnswered(call=PART.lead_post, tool="post", error=error)
    change_entry(evidence, PART.lead, index, events=[answered])


def wrong_answer(evidence: Evidence) -> None:
    evidence.orders[0].output = "something else"


def unknown_not_told(evidence: Evidence) -> None:
    """The run answers as if the interrupted call had worked."""
    claim, result = evidence.effects[PART.spend]
    evidence.effects[PART.spend] = [claim, result._replace(error=ErrorInfo("Interrupted", "unknown"))]


def event_left_out(evidence: Evidence) -> None:
    evidence.orders[0].told.pop(3)


def event_repeated(evidence: Evidence) -> None:
    evidence.orders[0].told.insert(3, evidence.orders[0].told[2])


def record_unaccounted(evidence: Evidence) -> None:
    evidence.inbox.append(Delivered(PART.lead, "late:report", 9_999))


def work_left(evidence: Evidence) -> None:
    evidence.consumers[0] = evidence.consumers[0]._replace(pending=1)


def ack_left(evidence: Evidence) -> None:
    evidence.consumers[0] = evidence.consumers[0]._replace(unacked=1)


def dead_letter(evidence: Evidence) -> None:
    evidence.dead.append('{"reason": "unreadable"}')


def timer_left(evidence: Evidence) -> None:
    evidence.timers.append("cadre.timer.0.root0.root0.wait")


def effect_of_code_twice(evidence: Evidence) -> None:
    """A replay that made its calls anew."""
    line = next(line for line in evidence.executions if line.call == CODED.loop[0][1])
    evidence.executions.append(line)


def two_outcomes(evidence: Evidence) -> None:
    again(evidence, CODED.run, index_of(evidence, CODED.run, BlockFinished), "another")


def no_outcome(evidence: Evidence) -> None:
    drop_events(evidence, CODED.run, BlockFinished)


def failed_block(evidence: Evidence) -> None:
    index = index_of(evidence, CODED.run, BlockFinished)
    first, *rest = evidence.journals[CODED.run][index].entry.events
    assert isinstance(first, BlockFinished)
    error = ErrorInfo("AgentExecutionError", "its interpreter was lost 3 times")
    change_entry(evidence, CODED.run, index, events=[msgspec.structs.replace(first, error=error), *rest])


def exchange_left_out(evidence: Evidence) -> None:
    index = index_of(evidence, CODED.run, BlockYielded)
    events = evidence.journals[CODED.run][index].entry.events
    change_entry(evidence, CODED.run, index, events=events[1:])


def change_question(evidence: Evidence, exchanges: int, /, **fields: object) -> None:
    """The first question about a block of ROOT's coder that has so many exchanges behind it."""
    place = next(
        place
        for place, call in enumerate(evidence.code)
        if call.run == CODED.run and len(call.exchanges) == exchanges
    )
    evidence.code[place] = msgspec.structs.replace(evidence.code[place], **fields)


def other_variables(evidence: Evidence) -> None:
    change_question(evidence, 0, snapshot="blob:of-somebody-else")


def other_replies(evidence: Evidence) -> None:
    call = next(one for one in evidence.code if one.run == CODED.run and len(one.exchanges) == 2)
    first, second = call.exchanges
    forged = msgspec.structs.replace(second, replies=[CodeReply(value="ok:nothing")])
    change_question(evidence, 2, exchanges=[first, forged])


def other_order(evidence: Evidence) -> None:
    call = next(one for one in evidence.code if one.run == CODED.run and len(one.exchanges) == 2)
    change_question(evidence, 2, exchanges=call.exchanges[::-1])


def trouble(evidence: Evidence) -> None:
    evidence.troubles.append("boss-1 ended by itself, with status 1")


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        (gap, "its entries are numbered [1, 2, 4"),
        (branch, "its entries are numbered [1, 2, 3, 3"),
        (cause_twice, "is the cause of 2 entries"),
        (wrong_pointers, "points back to [1]"),
        (stranger, "it holds entries of"),
        (lost_run, "run root0 was lost"),
        (lost_member, f"run {PART.worker} was lost"),
        (unasked_run, "run ghost was begun, and nobody asked for it"),
        (two_orders_one_run, "run root0 is the answer to 2 different orders"),
        (no_end, "run.finished is there 0 times"),
        (answered_twice, f"call {PART.spend} was made 1 times and answered 2 times"),
        (never_answered, f"call {PART.worker} was made 1 times and answered 0 times"),
        (failed_run, "it ended as error: five deliveries"),
        (effect_twice, f"spend took effect 2 times for call {PART.spend}"),
        (effect_of_nobody, "which nobody can have made"),
        (effect_never_happened, "is said to have worked and never ran"),
        (two_claims, "is effect_claim, effect_claim, effect_result"),
        (claim_without_result, "it must be one claim and its result"),
        (interrupted_for_nothing, f"call {UNKNOWN} is said to be interrupted, and nothing had happened"),
        (idempotent_interrupted, f"call {PART.lead_post} of post failed: Interrupted"),
        (wrong_answer, "ended as success with 'something else'"),
        (unknown_not_told, "outcome unknown"),
        (event_left_out, "the event stream of root0 left out"),
        (event_repeated, "the event stream of root0 left out [] and repeated"),
        (record_unaccounted, "record late:report (message 9999)"),
        (work_left, "is left with 1 messages to deliver"),
        (ack_left, "and 1 without an ack"),
        (dead_letter, "dead letter"),
        (timer_left, "timer left over"),
        (effect_of_code_twice, f"spend took effect 2 times for call {CODED.loop[0][1]}"),
        (two_outcomes, "has an answer to its exchange 3 out of order"),
        (no_outcome, "has 0 outcomes"),
        (failed_block, "failed: its interpreter was lost 3 times"),
        (exchange_left_out, "has an answer to its exchange 1 out of order"),
        (other_variables, "is about other code or other variables"),
        (other_replies, "has other replies in exchange 1 than the journal"),
        (other_order, "has other calls in exchange 0 than the journal"),
        (trouble, "ended by itself"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_wrong_is_found(doctor: Callable[[Evidence], None], found: str) -> None:
    evidence = sound_evidence()
    doctor(evidence)
    assert any(found in line for line in violations(evidence)), violations(evidence)


def test_an_interrupted_call_is_grounded_by_its_executor_alone() -> None:
    evidence = sound_evidence()
    evidence.strikes[0] = evidence.strikes[0]._replace(pid=8)
    assert any(UNKNOWN in line for line in violations(evidence))
    evidence.strikes[0] = evidence.strikes[0]._replace(victim="nats")
    assert violations(evidence) == []


def test_a_claim_of_two_executors_is_found() -> None:
    evidence = sound_evidence()
    claim = evidence.effects[PART.spend][0]
    evidence.effects[PART.spend].insert(1, EffectMessage("effect_claim", "there-9", claim.at, claim.at, None))
    assert len(violations(evidence)) == 1
