"""The promises that hold in every world, each promise its own check with a clear word when it is broken."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from cadre.engine.commands import CallModel, Command, Revoke, Send, SetTimer
from cadre.engine.timers import waits
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, CallState, Phase, Run
from cadre.kinds.code.fold import state_of
from cadre.loop.owed import owed
from cadre.protocol.messages import CodeCall, EffectResult, Report, Task, ToolCall, ToolResult
from cadre.protocol.topology import cancel_id, code_call_id, parent_of, report_id, result_id
from simulation.blocks import blocks_do_what_their_code_says
from simulation.courses import workflows_go_as_their_files_say
from simulation.ends import every_end_has_its_reason, poison_takes_nobody_along
from simulation.history import Chronicle, Violation
from simulation.plan_courses import plans_go_as_they_say
from simulation.remembered import (
    another_model_is_asked_for_a_reason,
    answers_count_once_they_have_passed,
    no_request_outgrows_its_context,
    summaries_go_on,
    what_is_left_is_kept_once,
    what_is_recalled_is_one_answer,
)
from simulation.steering import (
    edits_are_made_once,
    messages_are_read,
    words_are_taken_in_order,
)
from simulation.tools import CARDS, CHECK, ONCE

if TYPE_CHECKING:
    from simulation.world import World

WAKES = "a run with work to do has a pending record or timer"

PAID = "what a run owes is paid before its last record is acked"

ALIVE = "nobody is taken for dead who answers"

FEW_READS = "the reads of a run do not rise with the time that answers take"

Check = Callable[["World"], None]


# --- at every moment


def somebody_will_wake_it(world: World) -> None:
    """A run that has something to do has a record un-acked or undelivered, or a timer, or waits for who has."""
    for chronicle in list(world.history.runs.values()):
        lack = _lack(world, chronicle)
        if lack is not None:
            raise Violation(WAKES, lack)


def nothing_is_let_go_too_early(world: World, run: str) -> None:
    """Once the last record of a run that could remind of it is acked, all that the run owes has been paid."""
    chronicle = world.history.runs.get(run)
    if chronicle is None or chronicle.unsettled:
        return
    for command in owed(chronicle.run):
        if not _is_paid(world, chronicle.run, command):
            raise Violation(PAID, f"{run} owes {_written(command)}, and no record reminds of it")
    lack = _lack(world, chronicle)
    if lack is not None:
        raise Violation(WAKES, lack)


def _is_paid(world: World, run: Run, command: Command) -> bool:
    match command:
        case Send(message=ToolCall(id=call)):
            return call in world.history.calls
        case Send(message=CodeCall(id=call)):
            return call in world.history.code_calls
        case Send(message=message):
            receiver = world.history.runs.get(message.run)
            return receiver is not None and message.id in receiver.records
        case Revoke(result=result):
            return bool(world.history.effects[result.call])
        case SetTimer(timer=timer):
            return _has_timer(world, run, timer.name)
        case CallModel():
            return False


def _written(command: Command) -> str:
    match command:
        case Send(message=message):
            return message.id
        case Revoke(result=result):
            return f"the end of {result.call}"
        case SetTimer(timer=timer):
            return f"the timer {timer.name}"
        case CallModel():
            return "a model call"


def _lack(world: World, chronicle: Chronicle) -> str | None:
    run = chronicle.run
    if run.phase in (Phase.DONE, Phase.NEW) or chronicle.unsettled:
        return None
    for wait in waits(run):
        if not _has_timer(world, run, wait.name):
            return f"{run.id} has a {wait.name} and no timer for it"
    if run.phase is Phase.WAITING and run.deferral and _has_timer(world, run, run.deferral.timer):
        return None
    if run.phase is not Phase.ACTING:
        return f"{run.id} is {run.phase.value}, and nothing will ever wake it"
    work = state_of(run).work
    if work is not None and work.since:
        due = code_call_id(work.block, len(work.exchanges))
        if due not in world.history.unsettled_code[run.id].values() and not _is_let_go(world, run):
            return f"{run.id} waits for its code {due}, and no sandbox will ever answer"
    for begun in run.waits.values():
        if begun.until is None and not world.person.will_decide(run.id):
            return f"{run.id} waits for the signal {begun.signal}, and nobody will send it"
    sent = [call for call in run.open_calls() if call.opened]
    for call in run.open_calls():
        if call.hold is not None:
            if call.hold.expires_at is None and not world.person.will_decide(call.id):
                return f"{run.id} waits for a word on {call.name} {call.id}, and nobody will say it"
        elif not (_comes(world, call) if call.opened else sent):
            return f"{run.id} waits for {call.name} {call.id}, and nobody will ever answer"
    return None


def _is_let_go(world: World, run: Run) -> bool:
    """Return whether a run above it is over, and the word that ends this one is on its way."""
    above, over, on_its_way = parent_of(run.id), False, False
    while above is not None and above in world.history.runs:
        chronicle = world.history.runs[above]
        over = over or chronicle.run.phase is Phase.DONE
        on_its_way = on_its_way or bool(chronicle.unsettled)
        above = parent_of(above)
    return over and on_its_way


def _comes(world: World, call: CallState) -> bool:
    if call.kind == "tool":
        return bool(world.history.unsettled_calls[call.id])
    child = world.history.runs.get(call.id)
    return child is not None and _is_alive(child)


def _is_alive(child: Chronicle) -> bool:
    # A child that has ended still owes its report, by the record that ended it.
    return bool(child.unsettled) or child.run.phase not in (Phase.DONE, Phase.NEW)


def _has_timer(world: World, run: Run, name: str) -> bool:
    stream = world.server.streams[world.topology.shard(run.tree)]
    return world.topology.timer(run.tree, run.id, name) in stream.schedules


# --- in the end


def every_run_ends(world: World) -> None:
    for order in world.scenario.orders:
        if order.run not in world.history.runs:
            raise Violation("every run reaches an end", f"{order.run} never began")
    for name, chronicle in world.history.runs.items():
        begun = any(isinstance(one, Task) for many in chronicle.records.values() for one in many)
        if begun and chronicle.run.phase is not Phase.DONE:
            raise Violation("every run reaches an end", f"{name} is {chronicle.run.phase.value} for ever")


def everything_owed_is_paid(world: World) -> None:
    for name in list(world.history.runs):
        nothing_is_let_go_too_early(world, name)


def every_record_is_accounted_for_once(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        causes = Counter(entry.cause for entry in chronicle.entries)
        twice = [cause for cause, times in causes.items() if times > 1]
        if twice:
            raise Violation("every record is accounted for exactly once", f"{name} has {twice} more than once")
        missing = [record for record in chronicle.records if record not in causes]
        if missing:
            raise Violation("every record is accounted for exactly once", f"{name} never took in {missing}")
        if chronicle.unsettled:
            raise Violation("every record is acked in the end", f"{name}: {list(chronicle.unsettled.values())}")


def each_effect_happens_at_most_once(world: World) -> None:
    for call, times in world.shelf.done.items():
        asked = world.history.calls[call]
        if times > 1 and asked.tool in ONCE:
            raise Violation("an effect happens at most once per call", f"{call} of {asked.tool}: {times} times")
        kept = world.history.effects[call]
        if kept and isinstance(kept[0], EffectResult) and not CARDS[asked.tool].read_only:
            raise Violation("a revoked call is never begun", f"{call} of {asked.tool} was begun all the same")


def the_first_result_wins(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        # One that the run gave up may be answered behind its end: later turns read that.
        late = _answered_behind_the_end(chronicle)
        answered = Counter(
            event.call
            for event in chronicle.events
            if isinstance(event, ev.ToolAnswered) or (isinstance(event, ev.CallTimedOut) and event.call not in late)
        )
        if twice := [call for call, times in answered.items() if times > 1]:
            raise Violation("the first result wins", f"{name} has several results of {twice}")
        for event in chronicle.events:
            if isinstance(event, ev.ToolAnswered):
                _is_what_was_sent(world, chronicle, event)


def _answered_behind_the_end(chronicle: Chronicle) -> set[str]:
    behind = itertools.dropwhile(lambda event: not isinstance(event, ev.RunFinished), chronicle.events)
    return {event.call for event in behind if isinstance(event, ev.ToolAnswered)}


def _is_what_was_sent(world: World, chronicle: Chronicle, event: ev.ToolAnswered) -> None:
    sent = [one for one in chronicle.records[result_id(event.call)] if isinstance(one, ToolResult)]
    if not any(one.output == event.output and one.error == event.error for one in sent):
        raise Violation("the first result wins", f"what {event.call} answered was never sent")
    if event.tool == CHECK or CARDS[event.tool].read_only or event.call in world.history.retried:
        return
    settled = [one for one in world.history.effects[event.call] if isinstance(one, EffectResult)]
    if len(settled) > 1 or (settled and any(one != settled[0].result for one in sent)):
        raise Violation("the first result wins", f"{event.call} has results that differ from the one kept")


def only_the_silent_are_taken_for_dead(world: World) -> None:
    """An executor that settles a call in the place of a claimer that goes on to settle it too, must have asked that one
    in vain."""
    for call, settlings in world.history.settlings.items():
        for one in settlings:
            by, claimer = one.result.executor, one.claim.executor
            if by == claimer or (by, call) in world.asked.unanswered or one.result.tool not in ONCE:
                continue  # others than ONCE may run again, no matter who began them
            if any(other.result.executor == claimer and _is_its_own(other.result) for other in settlings):
                raise Violation(ALIVE, f"{by} settled {call}, which {claimer} had in hand, unasked")


def _is_its_own(result: ToolResult) -> bool:
    """Return what the tool came to, not what is said of a call that was found half done."""
    return result.error is None or result.error.type not in ("Interrupted", "Poisoned")


def each_report_counts_once(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        finished = [event for event in chronicle.events if isinstance(event, ev.DelegateFinished)]
        times = Counter(event.call for event in finished)
        if twice := [call for call, count in times.items() if count > 1]:
            raise Violation("a child's report counts once", f"{name} counted {twice} more than once")
        for event in finished:
            child = world.history.runs[event.call].run.result
            told = None if child is None else child.found if child.output is None else child.output
            if child is not None and (child.state, told) != (event.state, event.output):
                raise Violation("a child's report counts once", f"{name} took {event.call} for something else")
        _every_child_reported(world, chronicle)
        _what_it_used_is_counted(world, name, chronicle)


def _what_it_used_is_counted(world: World, name: str, chronicle: Chronicle) -> None:
    """Of children, also of those that no one waited for any more, as far as they reported before the run's end."""
    for event in chronicle.events:
        if isinstance(event, ev.CallTimedOut) and event.call in world.history.runs:
            reported = chronicle.records.get(report_id(event.call), [])
            counted = any(isinstance(e, ev.DelegateFinished) and e.call == event.call for e in chronicle.events)
            if reported and not counted and event.call not in chronicle.run.late_members:
                raise Violation("a child's report counts once", f"{name} forgot what {event.call} has used")


def _every_child_reported(world: World, chronicle: Chronicle) -> None:
    for event in chronicle.events:
        if isinstance(event, ev.DelegateStarted):
            child = world.history.runs.get(event.call)
            ended = child is not None and child.run.phase is Phase.DONE
            reports = chronicle.records.get(report_id(event.call), [])
            if ended and not any(isinstance(one, Report) for one in reports):
                raise Violation("a child's report reaches its parent", f"that of {event.call} did not")


def a_cancel_reaches_every_open_descendant(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        if chronicle.run.phase is not Phase.DONE:
            continue
        for call in children_let_go(chronicle):
            child = world.history.runs.get(call)
            if child is None or cancel_id(call) not in child.records:
                raise Violation("a cancel reaches every open descendant", f"{call} of {name} was not told")


def children_let_go(chronicle: Chronicle) -> list[str]:
    """Return the children that must be asked to end: those whose answers the run does not await any more, and that have
    not reported an end of their own."""
    current = [chronicle.run.current] if chronicle.run.current else []
    steps = [step for step in chronicle.run.steps if isinstance(step, ActionStep)]
    never_sent = {call.id for step in (*steps, *current) for call in step.calls if not call.opened}
    started: dict[str, None] = {}
    given_up: set[str] = set()
    for event in chronicle.events:
        match event:
            case ev.DelegateStarted(call=call):
                started[call] = None
            case ev.CallTimedOut(call=call) | ev.CallDropped(call=call):
                given_up.add(call)
            case ev.CallRefused(call=call):
                started.pop(call, None)  # it had not been sent yet
            case ev.DelegateFinished(call=call, error=error) if (
                call not in given_up or error is None or error.code != "cancelled"
            ):
                started.pop(call, None)
    return [call for call in started if call not in never_sent]


def nobody_reads_more_the_slower_the_server_is(world: World) -> None:
    """A worker reads a journal for what has been delivered or written, and not for the time that an answer takes."""
    counts = world.trace.counts
    entries = sum(len(chronicle.entries) for chronicle in world.history.runs.values())
    if (reads := counts["journal-read"]) > 10 + 2 * (entries + counts["deliver"]):
        raise Violation(FEW_READS, f"{reads} reads of {entries} entries, {counts['deliver']} deliveries")


AT_THE_END: tuple[Check, ...] = (
    somebody_will_wake_it,
    every_run_ends,
    everything_owed_is_paid,
    every_record_is_accounted_for_once,
    each_effect_happens_at_most_once,
    the_first_result_wins,
    only_the_silent_are_taken_for_dead,
    each_report_counts_once,
    a_cancel_reaches_every_open_descendant,
    every_end_has_its_reason,
    workflows_go_as_their_files_say,
    plans_go_as_they_say,
    messages_are_read,
    words_are_taken_in_order,
    edits_are_made_once,
    blocks_do_what_their_code_says,
    what_is_left_is_kept_once,
    what_is_recalled_is_one_answer,
    summaries_go_on,
    no_request_outgrows_its_context,
    another_model_is_asked_for_a_reason,
    answers_count_once_they_have_passed,
    poison_takes_nobody_along,
    nobody_reads_more_the_slower_the_server_is,
)
