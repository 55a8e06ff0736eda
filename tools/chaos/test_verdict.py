"""The verdict can fail: sound evidence passes, and each way in which it is doctored is found."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cadre.journal.entry import BackPointers, Entry
from cadre.journal.events import ApprovalDecided, DelegateFinished, RunFinished, ToolAnswered
from cadre.kinds.code.records import BlockFinished, BlockYielded
from cadre.ports import Stored
from cadre.protocol.code import CodeReply
from cadre.protocol.messages import ErrorInfo
from chaos.evidence import Delivered, Evidence
from chaos.executions import Line
from chaos.expected import coded_of, part_of, runs_of
from chaos.expected_kinds import CORRECTED, mixed_of
from chaos.sound import sound_evidence
from chaos.verdict import violations

ROOT = "root0"
PART = part_of(ROOT, 0, 0)
CODED = coded_of(ROOT, 0)
MIXED = mixed_of("root1", 1)
UNKNOWN = part_of("root2", 2, 0).grind


def test_sound_evidence_passes() -> None:
    assert violations(sound_evidence()) == []


def test_sound_evidence_has_something_to_look_at() -> None:
    evidence = sound_evidence()
    assert set(evidence.journals) == runs_of(ROOT, 0) | runs_of("root1", 1) | runs_of("root2", 2)
    assert {line.tool for line in evidence.executions} == {"spend", "post", "look", "grind"}
    assert len(evidence.executions) == 54
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
    pointers = BackPointers()
    for stored in journal:
        pointers.note(stored.seq)
    entry: Entry = msgspec.structs.replace(
        journal[index].entry, n=len(journal) + 1, cause=cause, prev=pointers.packed()
    )
    journal.append(Stored(10_000, entry))


def index_of(evidence: Evidence, run: str, kind: type) -> int:
    journal = evidence.journals[run]
    return next(
        index for index, stored in enumerate(journal) if any(isinstance(event, kind) for event in stored.entry.events)
    )


def change_order(evidence: Evidence, number: int, /, **fields: object) -> None:
    evidence.orders[number] = msgspec.structs.replace(evidence.orders[number], **fields)


def change_consumer(evidence: Evidence, **fields: Any) -> None:
    evidence.consumers[0] = evidence.consumers[0]._replace(**fields)


def execution_of(evidence: Evidence, call: str) -> Line:
    return next(line for line in evidence.executions if line.call == call)


def execute_again(evidence: Evidence, call: str) -> None:
    evidence.executions.append(execution_of(evidence, call))


def lost_run(evidence: Evidence) -> None:
    for run in runs_of(ROOT, 0):
        del evidence.journals[run]


def failed_run(evidence: Evidence) -> None:
    index = index_of(evidence, PART.worker, RunFinished)
    events = evidence.journals[PART.worker][index].entry.events
    failed = RunFinished(state="error", error=ErrorInfo("poisoned", "five deliveries"))
    change_entry(evidence, PART.worker, index, events=[*events[:-1], failed])


def idempotent_interrupted(evidence: Evidence) -> None:
    error = ErrorInfo("interrupted", "outcome unknown")
    index = index_of(evidence, PART.lead, ToolAnswered)
    answered = ToolAnswered(call=PART.lead_post, tool="post", error=error)
    change_entry(evidence, PART.lead, index, events=[answered])


def unknown_not_told(evidence: Evidence) -> None:
    """The run answers as if the interrupted call had worked."""
    claim, result = evidence.effects[PART.spend]
    evidence.effects[PART.spend] = [claim, result._replace(error=ErrorInfo("interrupted", "unknown"))]


def failed_block(evidence: Evidence) -> None:
    index = index_of(evidence, CODED.run, BlockFinished)
    first, *rest = evidence.journals[CODED.run][index].entry.events
    assert isinstance(first, BlockFinished)
    error = ErrorInfo("code-failed", "lost three times")
    change_entry(evidence, CODED.run, index, events=[msgspec.structs.replace(first, error=error), *rest])


def exchange_left_out(evidence: Evidence) -> None:
    index = index_of(evidence, CODED.run, BlockYielded)
    events = evidence.journals[CODED.run][index].entry.events
    change_entry(evidence, CODED.run, index, events=events[1:])


def change_question(evidence: Evidence, exchanges: int, /, **fields: object) -> None:
    """The first question about a block of ROOT's coder that has so many exchanges behind it."""
    place = next(
        place for place, call in enumerate(evidence.code) if call.run == CODED.run and len(call.exchanges) == exchanges
    )
    evidence.code[place] = msgspec.structs.replace(evidence.code[place], **fields)


def other_replies(evidence: Evidence) -> None:
    call = next(one for one in evidence.code if one.run == CODED.run and len(one.exchanges) == 2)
    first, second = call.exchanges
    forged = msgspec.structs.replace(second, replies=[CodeReply(value="ok:nothing")])
    change_question(evidence, 2, exchanges=[first, forged])


def other_order(evidence: Evidence) -> None:
    call = next(one for one in evidence.code if one.run == CODED.run and len(one.exchanges) == 2)
    change_question(evidence, 2, exchanges=call.exchanges[::-1])


@pytest.mark.parametrize(
    ("doctor", "problem"),
    [
        (lambda e: e.journals[PART.worker].pop(2), "its entries are numbered [1, 2, 4"),
        (lambda e: change_entry(e, PART.worker, 3, n=3), "its entries are numbered [1, 2, 3, 3"),
        (
            lambda e: change_entry(e, PART.worker, 4, cause=e.journals[PART.worker][0].entry.cause),
            "is the cause of 2 entries",
        ),
        (lambda e: change_entry(e, PART.worker, 3, prev="AQ"), "points back to [1]"),
        (lambda e: change_entry(e, PART.worker, 3, run=PART.lead), "it holds entries of"),
        (lost_run, "run root0 was lost"),
        (lambda e: e.journals.pop(PART.worker), f"run {PART.worker} was lost"),
        (lambda e: e.journals.update(ghost=e.journals[ROOT]), "run ghost was begun, and nobody asked for it"),
        (lambda e: change_order(e, 1, run=ROOT), "run root0 is the answer to 2 different orders"),
        (lambda e: drop_events(e, PART.worker, RunFinished), "run.finished is there 0 times"),
        (
            lambda e: again(e, PART.worker, index_of(e, PART.worker, ToolAnswered), "another"),
            f"call {PART.spend} was made 1 times and answered 2 times",
        ),
        (
            lambda e: drop_events(e, PART.lead, DelegateFinished),
            f"call {PART.worker} was made 1 times and answered 0 times",
        ),
        (failed_run, "it ended as error: five deliveries"),
        (lambda e: execute_again(e, PART.spend), f"spend took effect 2 times for call {PART.spend}"),
        (
            lambda e: e.executions.append(e.executions[0]._replace(call="root0_9_9")),
            "which nobody can have made",
        ),
        (lambda e: e.executions.remove(execution_of(e, PART.grind)), f"call {PART.grind} of grind"),
        (
            lambda e: e.effects[PART.spend].insert(0, e.effects[PART.spend][0]),
            "is effect_claim, effect_claim, effect_result",
        ),
        (lambda e: e.effects[PART.spend].pop(), "is effect_claim;"),
        (lambda e: e.strikes.clear(), str(UNKNOWN)),
        (idempotent_interrupted, f"call {PART.lead_post} of post failed: Interrupted"),
        (lambda e: change_order(e, 0, output="something else"), "ended as success with 'something else'"),
        (unknown_not_told, "outcome unknown"),
        (lambda e: e.orders[0].seen.pop(3), "the event stream of root0 left out"),
        (
            lambda e: e.orders[0].seen.insert(3, e.orders[0].seen[2]),
            "the event stream of root0 left out [] and repeated",
        ),
        (
            lambda e: e.inbox.append(Delivered(PART.lead, "late:report", 9_999)),
            "record late:report (message 9999)",
        ),
        (lambda e: change_consumer(e, pending=1), "is left with 1 messages to deliver"),
        (lambda e: change_consumer(e, unacked=1), "and 1 without an ack"),
        (lambda e: e.dead.append('{"reason": "unreadable"}'), "dead letter"),
        (lambda e: e.timers.append("cadre.timer.0.root0.root0.wait"), "timer left over"),
        (
            lambda e: execute_again(e, CODED.loop[0][1]),
            f"spend took effect 2 times for call {CODED.loop[0][1]}",
        ),
        (
            lambda e: again(e, CODED.run, index_of(e, CODED.run, BlockFinished), "another"),
            "has an answer to its exchange 3 out of order",
        ),
        (lambda e: drop_events(e, CODED.run, BlockFinished), "has 0 outcomes"),
        (failed_block, "failed: lost three times"),
        (exchange_left_out, "has an answer to its exchange 1 out of order"),
        (
            lambda e: change_question(e, 0, snapshot="blob:of-somebody-else"),
            "is about other code or other variables",
        ),
        (other_replies, "has other replies in exchange 1 than the journal"),
        (other_order, "has other calls in exchange 0 than the journal"),
        (
            lambda e: drop_events(e, MIXED.runs["proposer"], ApprovalDecided),
            "was held 1 times and decided on 0 times",
        ),
        (
            lambda e: execute_again(e, MIXED.spends["queuer"]),
            f"spend took effect 2 times for call {MIXED.spends['queuer']}",
        ),
        (lambda e: e.journals.pop(MIXED.parts[2]), f"run {MIXED.parts[2]} was lost"),
        (
            lambda e: change_order(e, 1, output=e.orders[1].output.replace(CORRECTED, "")),
            "ended as success with",
        ),
        (lambda e: e.troubles.append("boss-1 ended by itself, with status 1"), "ended by itself"),
    ],
)
def test_what_is_wrong_is_found(doctor: Callable[[Evidence], object], problem: str) -> None:
    evidence = sound_evidence()
    doctor(evidence)
    assert any(problem in line for line in violations(evidence)), violations(evidence)


def test_an_interrupted_call_is_grounded_by_its_executor_alone() -> None:
    evidence = sound_evidence()
    evidence.strikes[0] = evidence.strikes[0]._replace(pid=8)
    assert any(UNKNOWN in line for line in violations(evidence))
    evidence.strikes[0] = evidence.strikes[0]._replace(victim="nats")
    assert violations(evidence) == []
