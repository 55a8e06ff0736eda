"""Fold events into a block of code: at work in a sandbox, waiting for its calls, ended."""

from typing import Any

from cadre.engine.calls.fold_calls import Opening, error_of, failure_of
from cadre.engine.context.text_size import clip
from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import ActionStep, Run
from cadre.kinds.code.records import (
    BlockFinished,
    BlockStarted,
    BlockYielded,
    CodeInWork,
    CodeState,
    CodeStep,
)
from cadre.kinds.code.section import code_of
from cadre.protocol.code import CodeExchange, CodeReply
from cadre.protocol.files import holds_binary
from cadre.protocol.topology import call_id

_OUTCOMES = ev.ToolAnswered | ev.CallRefused | ev.CallTimedOut | ev.CallDropped

_KEPT = 200
"""Characters of a finished call's observation: its model has read what the code made of it."""


def state_of(run: Run) -> CodeState:
    """The kind's state of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, CodeState) else CodeState()


def fold_code(run: Run, event: JournalEvent, n: int, at: float) -> None:
    """Make the event true of the kind's part of the run."""
    match event:
        case ev.RunAccepted():
            left = _variables_left(run)
            run.own = CodeState(snapshot=left, inherited_snapshot=left)
        case BlockStarted():
            begun = at if run.spec is not None and code_of(run.spec).limits.wall_seconds is not None else None
            _state(run).work = CodeInWork(block=event.block, code=event.code, since=n, at=at, started_at=begun)
            if run.current is not None:
                run.current.own = CodeStep(code=event.code)
        case BlockYielded():
            if (work := _state(run).work) is not None:
                work.since = 0
                work.asked, work.clock = event.calls, event.clock
                work.calls, work.replies = [], {}
        case BlockFinished():
            _end(run, event)
        case ev.RunFinished():
            _state(run).work = None
        case _:
            work = _state(run).work
            if work is not None:
                _take_call(run, work, event, n, at)
            else:
                _observe(run, event)


def _state(run: Run) -> CodeState:
    assert isinstance(run.own, CodeState)
    return run.own


def _take_call(run: Run, work: CodeInWork, event: JournalEvent, n: int, at: float) -> None:
    """The calls of the block: each is noted when it is opened, and again with its outcome."""
    if isinstance(event, Opening) and event.call not in work.calls and len(work.calls) < len(work.asked):
        work.calls.append(event.call)
    if (reply := reply_in(run, event)) is not None:
        _reply(work, *reply, n, at)


def reply_in(run: Run, event: JournalEvent) -> tuple[str, CodeReply] | None:
    """Return the id of the call that the event closes, and what the code gets for it; None for any other event."""
    match event:
        case ev.CallRefused():
            call = run.call(event.call)
            if call is not None and call.error is not None:
                return event.call, CodeReply(error=call.error.message)
        case ev.ToolAnswered():
            reply = CodeReply(
                value=event.output,
                error=event.error.message if event.error is not None else None,
                raised=event.error.raised if event.error is not None else "",
                blob=event.blob,
                blob_form=event.blob_form,
            )
            return event.call, reply
        case ev.DelegateFinished():
            failure = failure_of(event)
            value = _value_of(run, event)
            return event.call, CodeReply(value=value) if failure is None else CodeReply(error=failure.message)
        case ev.CallTimedOut() | ev.ApprovalDecided():
            call = run.call(event.call)
            if call is not None and (wrong := error_of(event, call)) is not None:
                return event.call, CodeReply(error=wrong.message)
        case _:
            pass
    return None


def _value_of(run: Run, report: ev.DelegateFinished) -> Any:
    """Return the answer itself where the member says what its answers hold, or no text could hold it; else the
    report."""
    card = run.members.get(report.member)
    is_typed = card is not None and card.output_schema is not None and report.state == "success"
    return report.output if is_typed or holds_binary(report.output) else report.text


def _observe(run: Run, event: JournalEvent) -> None:
    """Add the outcome of the call behind a block to the block's observation."""
    own = run.current.own if run.current is not None else None
    if not isinstance(own, CodeStep) or own.observer is None or not isinstance(event, _OUTCOMES):
        return
    call = run.call(own.observer)
    if event.call != own.observer or call is None:
        return
    seen = call.error.message if call.error is not None else call.observation or ""
    own.observation = "\n".join([*([own.observation] if own.observation else []), f"{call.name}: {seen}"])


def _reply(work: CodeInWork, call: str, reply: CodeReply, n: int, at: float) -> None:
    """With its last reply the exchange is complete, and the sandbox owes what comes next."""
    if call not in work.calls or call in work.replies:
        return
    work.replies[call] = reply
    if len(work.replies) < len(work.asked):
        return
    replies = [work.replies[one] for one in work.calls]
    work.exchanges.append(CodeExchange(calls=work.asked, replies=replies, clock=work.clock))
    work.asked, work.clock, work.calls, work.replies = [], [], [], {}
    work.since, work.at = n, at


def _end(run: Run, event: BlockFinished) -> None:
    state = _state(run)
    state.work = None
    # None: they cannot be restored, and the next block would fail in the same way.
    state.snapshot = event.snapshot
    if run.current is None or not isinstance(run.current.own, CodeStep):
        return
    run.current.own.snapshot = event.snapshot
    logs = event.logs.rstrip("\n")
    seen = [f"Execution logs:\n{logs}"] if logs else []
    seen += event.notes
    if event.error is None:
        seen.append(f"Last output from code snippet:\n{event.text or None}")
    limit = run.spec.limits.observation_chars if run.spec else None
    run.current.own.observation = clip("\n".join(seen), limit)
    if run.spec is not None and code_of(run.spec).observe and (event.error or not event.is_final_answer):
        run.current.own.observer = call_id(run.id, run.current.number, len(run.current.calls))
        run.current.own.error = event.error
    for call in run.current.calls:
        if call.observation is not None:
            call.observation = clip(call.observation, _KEPT)


def _variables_left(run: Run) -> str | None:
    """By the code of the run that this one goes on from."""
    steps = (step.own for step in reversed(run.steps) if isinstance(step, ActionStep) and not step.interrupted)
    return next((own.snapshot for own in steps if isinstance(own, CodeStep)), None)
