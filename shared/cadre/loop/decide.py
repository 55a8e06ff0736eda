"""Decide what becomes true when something arrives at a run: the whole of an agent's decisions, pure.

`decide` depends on phase and arrival; what it returns is appended to the journal as one entry.
An arrival that no case takes is late, unknown or a duplicate: it is accounted for and changes nothing.
"""

import copy
from typing import Any

import msgspec

from cadre.engine.answers.answer_checks import check_event, problem_of, verdict
from cadre.engine.answers.code_blocks import closed, said
from cadre.engine.answers.reasoning import for_people
from cadre.engine.budget import budget_of, deadline_of, out_of_time, too_little_for
from cadre.engine.calls.approval import decided, expired, held_call, may_decide
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.calls.fold_calls import no_answer, timed_out
from cadre.engine.calls.open_calls import made, shared_out
from cadre.engine.context.compaction import on_overflow, on_summary, without_model
from cadre.engine.context.text_size import clip
from cadre.engine.draft import Draft, Tap
from cadre.engine.kind import Absent, EditNotAllowed, Signalled, kind_of
from cadre.engine.model_request import asked_model, next_fallback, tries
from cadre.engine.parts import filled_texts, spec_of
from cadre.engine.policies.judge import Wanted, judge
from cadre.engine.policies.rules import asks_for_plan
from cadre.engine.recall import on_memories, on_no_memories
from cadre.engine.timers import away_of, call_of, deadline_timer, kind_wait_of, resume_timer
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned
from cadre.journal.run import SUMMARY, CallState, Phase, Run
from cadre.protocol.cards import ToolCard
from cadre.protocol.codes import EditRefusal, IgnoredCode
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    ErrorInfo,
    Message,
    Report,
    Signal,
    Task,
    TimerFired,
    ToolResult,
    Unfinished,
    UserMessage,
)
from cadre.protocol.policy import PLAN_TOOLS
from cadre.protocol.tagged import for_schema
from cadre.protocol.topology import call_id
from cadre.protocol.usage import TokenUsage, Usage
from cadre.spec.answer_schema import misfits
from cadre.spec.expressions import ExpressionError
from cadre.spec.kinds import decided_by, declaration_of, facts_of, version_of
from cadre.spec.templates.template_work import one_decision

_QUESTION_CHARS = 2_000
"""Characters of a task that the memory service is asked with."""

MAX_KEPT_SIGNALS = 64
"""Signals that a run keeps for later waits; the next one is refused."""

MAX_UNREAD_MESSAGES = 64
"""Messages that a run keeps for its next model call; the next one is refused."""

_PLAN_CARD = ToolCard(
    name=PLAN_TOOLS,
    description=(
        "Plans the tools and team members that the task needs for anything but looking things up: sending, paying,"
        " deleting, visiting pages and so on. Call it first, before you read anything: what is not planned then needs"
        " a person's word later."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The names of the tools and team members.",
            }
        },
        "required": ["tools"],
        "additionalProperties": False,
    },
    output_schema={"type": "string"},
    read_only=True,
)
"""The function by which a model plans tools."""


def decide(run: Run, arrival: Arrival, cause: str, tap: Tap | None = None) -> list[ev.AnyEvent]:
    """Return the events that the arrival makes true of the run, at least one, and take the run behind them.

    All templates that are evaluated share one allowance of work. What raises leaves the run as it was at that moment:
    the caller folds it again.

    Args:
        run: the run, which is changed.
        arrival: what arrived, and what a decision may know besides the run.
        cause: the id of the record that the entry accounts for, or of the model's answer.
        tap: called with each event before it is true of the run.
    """
    with one_decision():
        run.entries += 1
        run.seen.add(cause)
        draft = Draft(run, _as_tasked(run, arrival), tap)
        _decide(draft)
        while draft.settle_closed() or (run.signals and _end_signalled_wait(draft)):
            pass
        if run.task is not None and run.task.terms.ends_with_call:
            _end_with_call(draft)
        return draft.events


def _as_tasked(run: Run, arrival: Arrival) -> Arrival:
    """The arrival with the functions of the caller among what is offered, and for a task that begins a run with the
    spec that holds in the run."""
    what = arrival.what
    begins = run.phase is Phase.NEW and isinstance(what, Task)
    task = what if begins and isinstance(what, Task) else run.task
    if task is not None and task.terms.tools:
        tools = {**arrival.toolset.tools, **{tool.name: tool for tool in task.terms.tools}}
        arrival = msgspec.structs.replace(arrival, toolset=msgspec.structs.replace(arrival.toolset, tools=tools))
    arrival = _with_spec(task, arrival) if task is not None and begins else arrival
    return _with_plan(run, task, arrival, begins=begins)


def _with_plan(run: Run, task: Task | None, arrival: Arrival, *, begins: bool) -> Arrival:
    """Return the arrival with the function by which the model plans its tools, if policies ask for that."""
    spec = arrival.spec if begins else run.spec
    above = task.standing.policies if task is not None and task.standing is not None else []
    policies = [spec.policies, *above] if spec is not None else []
    if spec is None or not any(policies) or not asks_for_plan(policies):
        return arrival
    if facts_of(spec, decided_by(spec) if begins else run.decided_by).plans_tools:
        return arrival
    tools = {**arrival.toolset.tools, PLAN_TOOLS: _PLAN_CARD}
    return msgspec.structs.replace(arrival, toolset=msgspec.structs.replace(arrival.toolset, tools=tools))


def _with_spec(task: Task, arrival: Arrival) -> Arrival:
    try:
        return msgspec.structs.replace(arrival, spec=spec_of(task, arrival.spec))
    except (SpecError, msgspec.ValidationError) as error:
        return msgspec.structs.replace(arrival, problem=f"the part cannot be begun: {error}")


def _end_with_call(draft: Draft) -> None:
    """End a run whose caller wants only calls of its own functions, once nothing else is open."""
    run = draft.run
    if draft.is_over or run.phase is not Phase.ACTING:
        return
    calls = run.open_calls()
    if calls and all(call.hold is not None and run.is_callers(call.name) for call in calls):
        made = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
        draft.stop("success", {"calls": made})


def transition(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """Return the same events, and leave the run as it is. It is copied, which may cost more than the decision."""
    return decide(copied(run), arrival, "")


def copied(run: Run) -> Run:
    """Return a copy of the run that can be changed. The agent is the same: it is never changed."""
    return copy.deepcopy(run, {id(run.spec): run.spec})


def _decide(draft: Draft) -> None:
    run, what = draft.run, draft.arrival.what
    if run.phase is Phase.DONE:
        late = late_outcome(run, what)
        draft.emit(late if late is not None else _ignored(what, "run-ended"))
        return
    if isinstance(what, Signal):
        _on_signal(draft, what)
        return
    if isinstance(what, UserMessage):
        _on_message(draft, what)
        return
    if run.phase is Phase.NEW:
        _before_the_task(draft)
        return
    match what:
        case Edit():
            _on_edit(draft, what)
        case Cancel():
            _on_cancel(draft, what)
        case Poisoned():
            draft.stop("error", error=_poison(what))
        case TimerFired(name=name) if name == deadline_timer(run) and run.deadline is not None:
            draft.give_up(out_of_time())
        case _:
            taken = _of_the_model(draft) or _of_a_call(draft) or _of_the_kind(draft)
            if not (taken and draft.events):
                draft.emit(_ignored(what, "not-awaited"))


# --- before the task, and the end from outside


def _before_the_task(draft: Draft) -> None:
    match draft.arrival.what:
        case Task() as task:
            _accept(draft, task)
            _begin(draft, task)
        case Cancel() as cancel:
            # It overtook its task, which will find it here.
            draft.emit(_requested(cancel))
        case Poisoned(task=Task() as task) as poisoned:
            _accept(draft, task)
            draft.stop("error", error=_poison(poisoned))
        case what:
            draft.emit(_ignored(what, "not-begun"))


def _accept(draft: Draft, task: Task) -> None:
    """The task is this run's. Here alone it is found out which kind decides the run, in its version of today."""
    arrival = draft.arrival
    kind = arrival.decided_by or decided_by(arrival.spec)
    draft.emit(
        ev.RunAccepted(
            task=task,
            spec=arrival.spec,
            history=arrival.history,
            prefix=arrival.prefix,
            deadline=deadline_of(task, arrival.spec, arrival.at),
            budget=budget_of(task, arrival.spec),
            fixed_tokens=arrival.base,
            decided_by=kind,
            kind_version=arrival.kind_version or version_of(declaration_of(kind)),
            revision=arrival.revision,
            prompts=arrival.prompts,
        )
    )


def _begin(draft: Draft, task: Task) -> None:
    """Ask for memories, or has the agent's kind begin."""
    run, arrival = draft.run, draft.arrival
    if run.cancelled is not None:
        draft.stop("cancelled", error=ErrorInfo("cancelled", run.cancelled or "cancelled before it began"))
    elif arrival.problem:
        draft.stop("error", error=ErrorInfo("not-found", arrival.problem))
    elif (unfit := _unfit(draft, task) or _lacking(draft)) is not None:
        draft.stop("error", error=unfit)
    elif arrival.spec.memory.recall and task.forks is None:  # a fork has what the other run was given
        query = clip(task.task, _QUESTION_CHARS)
        draft.emit(ev.MemoryAsked(call=call_id(run.id, 0, 0), query=query, count=arrival.spec.memory.recall))
    else:
        draft.kind.begin(draft)


def _unfit(draft: Draft, task: Task) -> ErrorInfo | None:
    """Return why a manager's task has other inputs than the agent takes; None when they fit. A part of the run's own
    work has what the kind gives it."""
    schema = draft.spec.input_schema
    if schema is None or task.reply_to is None or task.spec:
        return None
    wrong = misfits(schema, for_schema(task.inputs), "inputs")
    return ErrorInfo("invalid-call", f"{draft.run.agent} does not take this: {'; '.join(wrong)}") if wrong else None


def _lacking(draft: Draft) -> ErrorInfo | None:
    """Return why the agent's texts cannot be written out with the inputs of the task; None when they can."""
    try:
        filled_texts(draft.run, draft.spec.instructions)
        filled_texts(draft.run, dict(facts_of(draft.spec).terms()))
    except ExpressionError as error:
        advice = "Give it in the `inputs` of the task, or write a `default(…)` for it in the agent's file."
        return ErrorInfo("no-value", f"{error}. {advice}")
    return None


def _on_cancel(draft: Draft, cancel: Cancel) -> None:
    """End the run, or has its kind see to the end. A second request is noted, unless it wants the end at once."""
    is_first = draft.run.cancelled is None
    draft.emit(_requested(cancel))
    error = ErrorInfo("cancelled", cancel.reason or "cancelled")
    if cancel.now:
        draft.stop("cancelled", error=error)
    elif is_first:
        draft.give_up(error)


def _requested(cancel: Cancel) -> ev.CancelRequested:
    return ev.CancelRequested(reason=cancel.reason, sender=cancel.sender, now=cancel.now)


# --- what people send


def _on_signal(draft: Draft, signal: Signal) -> None:
    """Keep the signal; the waits that it ends are ended last of all."""
    if len(draft.run.signals) >= MAX_KEPT_SIGNALS:
        draft.emit(ev.RecordIgnored(kind="Signal", code="signals-full"))
    else:
        draft.emit(ev.SignalReceived(name=signal.name, payload=signal.payload, sender=signal.sender))


def _end_signalled_wait(draft: Draft) -> bool:
    """End the oldest wait whose signal is there: it stood already, or begins now. Return False without such a wait."""
    run = draft.run
    over = _first_over(run) if run.phase is not Phase.DONE else None
    if over is None:
        return False
    draft.emit(ev.WaitFinished(name=over.wait, signal=over.signal))
    draft.kind.arrived(draft, over)
    return True


def _first_over(run: Run) -> Signalled | None:
    for name, wait in run.waits.items():
        for kept in run.signals:
            if kept.name == wait.signal:
                return Signalled(name, kept.name, kept.payload, kept.sender)
    return None


def _on_message(draft: Draft, message: UserMessage) -> None:
    """Keep the message for the next model call, which it may bring about."""
    run, model = draft.run, draft.asked
    if run.spec is not None and not facts_of(run.spec, run.decided_by).reads_steps:
        draft.emit(ev.RecordIgnored(kind="UserMessage", code="reads-no-messages"))
        return
    if len(run.unread) >= MAX_UNREAD_MESSAGES:
        draft.emit(ev.RecordIgnored(kind="UserMessage", code="messages-full"))
        return
    draft.emit(ev.MessageReceived(text=message.text, mode=message.mode, sender=message.sender))
    if message.mode == "interrupt" and model is not None and model.purpose != SUMMARY:
        draft.call_model(model.purpose, model.step, model.attempt + 1, model.postponed)
    elif message.mode != "append" and run.phase is Phase.ACTING:
        _put_aside(draft)


def _put_aside(draft: Draft) -> None:
    """The calls that have not begun are given up: they wait for a person, or for their turn. What the model does not
    read itself goes on: a block of code, checks of its answer, questions of its kind."""
    run = draft.run
    if run.proposal is not None or not draft.kind.reads_calls(run):
        return
    waiting = [call for call in run.open_calls() if not call.opened and call.kind in ("tool", "member")]
    error = ErrorInfo("skipped", "This call was not made: a message came that is to be read first.")
    for call in waiting:
        draft.emit(ev.CallRefused(call=call.id, name=call.name, arguments=call.arguments, error=error))
    if waiting and not run.open_calls() and run.current is not None:
        ids = {call.id for call in waiting}
        draft.kind.settled(draft, [call for call in run.current.calls if call.id in ids])


def _on_edit(draft: Draft, edit: Edit) -> None:
    """Make an edit that is based on the present version, or says why it is not made."""
    run, kind = draft.run, draft.kind
    present = kind.editable(run)
    if present is None:
        _refuse_edit(
            draft,
            edit,
            None,
            "not-editable",
            f"there is nothing to edit in this run of kind {run.decided_by}",
        )
        return
    if edit.base != present.version:
        reason = f"the {present.name} is at version {present.version} by now, and the edit is based on {edit.base}"
        _refuse_edit(draft, edit, present.version, "stale-version", reason)
        return
    try:
        kind.edit(draft, edit)
    except EditNotAllowed as error:
        _refuse_edit(draft, edit, present.version, error.code, str(error))


def _refuse_edit(draft: Draft, edit: Edit, version: int | None, code: EditRefusal, reason: str) -> None:
    draft.emit(ev.EditRefused(base=edit.base, version=version, code=code, reason=reason, sender=edit.sender))


# --- what the run waits for; each returns False for anything else


def _of_the_model(draft: Draft) -> bool:
    """The outcome of the model call in flight, or the end of the pause before it."""
    run, asked = draft.run, draft.asked
    match draft.arrival.what:
        case ModelReplied(attempt=attempt) as reply if asked is not None and asked.attempt == attempt:
            _on_reply(draft, reply)
        case ModelFailed(attempt=attempt) as failure if asked is not None and asked.attempt == attempt:
            on_model_failure(draft, failure)
        case ModelLost(attempt=attempt) if asked is not None and asked.attempt == attempt:
            draft.call_model(asked.purpose, asked.step, attempt + 1, asked.postponed)
        case TimerFired(name=name) if run.deferral is not None and run.deferral.timer == name:
            put_off = run.deferral
            draft.call_model(put_off.purpose, put_off.step, put_off.attempt + 1, put_off.postponed)
        case _:
            return False
    return True


def _on_reply(draft: Draft, reply: ModelReplied) -> None:
    model = draft.asked
    assert model is not None
    draft.emit(
        ev.ModelAnswered(
            purpose=model.purpose,
            step=model.step,
            attempt=model.attempt,
            # Its thoughts stay in what has arrived: no later step, summary or person reads them.
            content=_said(draft, model.purpose, reply.content) if reply.content else "",
            calls=reply.calls,
            usage=TokenUsage.of(reply.usage),
            model=reply.model,
            finish_reason=reply.finish_reason,
            seconds=reply.seconds,
            unpriced=reply.unpriced,
            items=reply.items,
            cached_tokens=reply.cached_tokens,
            reasoning_tokens=reply.reasoning_tokens,
            response=reply.response,
            first_seconds=reply.first_seconds,
            # They are the same for most of a run.
            server=reply.server if reply.server != draft.run.server else "",
            worker=reply.worker if reply.worker != draft.run.worker else "",
            context=reply.context,
            endpoint=reply.endpoint,
            learned=reply.learned,
            raw=reply.raw,
        )
    )
    if model.purpose == SUMMARY:
        on_summary(draft, reply)
    else:
        draft.kind.answered(draft, reply)


def _said(draft: Draft, purpose: str, content: str) -> str:
    run = draft.run
    block = facts_of(run.spec, run.decided_by).block if purpose == "act" and run.spec is not None else None
    return for_people(content) if block is None else closed(said(content, block), block)


def _of_a_call(draft: Draft) -> bool:
    """The outcome of an open call, or of asking for memories."""
    run = draft.run
    if run.phase is not Phase.ACTING:
        return False
    match draft.arrival.what:
        case ToolResult() as result if run.recalling and run.recalling.call == result.call:
            on_memories(draft, result)
        case ToolResult() as result if _is_open(run, result.call):
            on_result(draft, result)
        case Report() as report if _is_open(run, report.child):
            on_report(draft, report)
        case Decision() as decision if held := held_call(run, decision.call):
            on_decision(draft, held, decision)
        case TimerFired() as timer:
            return _on_timer_of_call(draft, timer)
        case _:
            return False
    return True


def _on_timer_of_call(draft: Draft, timer: TimerFired) -> bool:
    run = draft.run
    call = call_of(timer.name, "call")
    if call and run.recalling and run.recalling.call == call:
        on_no_memories(draft, run.recalling)
    elif call and _is_open(run, call):
        on_time_out(draft, call, timer)
    elif (absence := away_of(timer.name)) is not None:
        return _on_absence(draft, absence[0], timer)
    elif (due := _due(run, timer)) is not None:
        draft.emit(made(run, due.id, due.name, due.arguments))
    elif (asked := call_of(timer.name, "approval")) and (held := held_call(run, asked)):
        on_expiry(draft, held)
    else:
        return False
    return True


def _on_absence(draft: Draft, message: str, timer: TimerFired) -> bool:
    """The callee of a call has been away for too long; False if the call is closed."""
    run = draft.run
    call = next((one for one in run.open_calls() if one.message == message), None)
    if call is not None and call.opened and _is_open(run, call.id):
        on_time_out(draft, call.id, timer)
        return True
    return draft.kind.arrived(draft, Absent(message))


def _due(run: Run, timer: TimerFired) -> CallState | None:
    """The call whose pause is over."""
    paused = (one for one in run.open_calls() if one.pause is not None and one.pause.until is not None)
    return next((one for one in paused if resume_timer(one) == timer.name), None)


def _of_the_kind(draft: Draft) -> bool:
    """Return what the common cases do not take: a member no longer awaited, a wait or a record of the kind's."""
    run, what = draft.run, draft.arrival.what
    if isinstance(what, Report) and what.child in run.late_members:
        draft.emit(delegate_finished(what))
        return True
    if isinstance(what, TimerFired):
        name = kind_wait_of(run, what.name)
        if name is None:
            return False
        draft.emit(ev.WaitFinished(name=name))
        return draft.kind.arrived(draft, _named(what, name)) or True
    return isinstance(what, Message) and draft.kind.arrived(draft, what)


def _named(timer: TimerFired, name: str) -> TimerFired:
    return TimerFired(id=timer.id, tree=timer.tree, run=timer.run, name=name, at=timer.at)


def _is_open(run: Run, call: str) -> bool:
    """Return whether an answer to the call is awaited: it was sent, and has none."""
    state = run.call(call)
    return state is not None and state.is_open and state.hold is None and state.pause is None


def _poison(poisoned: Poisoned) -> ErrorInfo:
    text = f"record {poisoned.id} was delivered {poisoned.deliveries} times and never handled to the end"
    if poisoned.why:
        text += f": {poisoned.why}"
    return ErrorInfo("poisoned", text)


def _ignored(what: object, code: IgnoredCode) -> ev.RecordIgnored:
    if isinstance(what, ModelReplied):
        usage = what.usage + Usage(model_calls=1)
        return ev.RecordIgnored(kind="ModelReplied", code=code, usage=usage, model=what.model, unpriced=what.unpriced)
    return ev.RecordIgnored(kind=type(what).__name__, code=code)


def on_decision(draft: Draft, held: CallState, decision: Decision) -> None:
    """Decide what becomes of a held call: made, made otherwise, turned down, or refused where a member's share of the
    budget would not pay its first request; of a function of the caller, its result. A correction that cannot be made
    changes nothing: the call goes on waiting."""
    run = draft.run
    if not may_decide(held, [decision.sender, *decision.roles]):
        by = ", ".join(held.hold.by) if held.hold is not None else ""
        draft.emit(ev.RecordIgnored(kind="Decision", code="not-entitled", detail=f"{by} decide on this call"))
        return
    try:
        event = decided(run, held, decision, draft.arrival)
    except CallNotAllowed as error:
        draft.emit(ev.RecordIgnored(kind="Decision", code="invalid-correction", detail=str(error), facts=error.facts))
        return
    name = event.name or held.name
    arguments = held.arguments if event.arguments is None else event.arguments
    draft.emit(event)
    if held.pause is not None:
        draft.emit(made(run, held.id, held.name, held.arguments))
    elif decision.verdict == "rejected" or held.kind == "question":
        settled(draft, held.id)
    elif name == PLAN_TOOLS:
        draft.plan_by_call(ev.ToolCalled(call=held.id, tool=name, arguments=arguments))
        settled(draft, held.id)
    elif run.is_callers(held.name):
        draft.emit(ev.ToolAnswered(call=held.id, tool=held.name, output=decision.feedback, executor=decision.sender))
        settled(draft, held.id)
    else:
        if event.arguments is not None or event.name is not None:
            again = judge(run, Wanted(held.id, name, arguments), (), draft.arrival, approved=True)
            if again.event is not None:
                draft.emit(msgspec.structs.replace(again.event, verdict="allow"))
        (begun,) = shared_out(run, [made(run, held.id, name, arguments)])
        unpaid = _unpaid(run, name, begun)
        if unpaid is None:
            draft.emit(begun)
            return
        draft.emit(ev.CallRefused(call=held.id, name=name, arguments=arguments, error=unpaid))
        settled(draft, held.id)


def _unpaid(run: Run, name: str, begun: ev.AnyEvent) -> ErrorInfo | None:
    """Return why the member is not begun, for a model to read; where no model reads it, it is begun with what there
    is.
    """
    if not isinstance(begun, ev.DelegateStarted) or not kind_of(run).reads_calls(run):
        return None
    return too_little_for(run.members[name], begun)


def on_expiry(draft: Draft, held: CallState) -> None:
    """Decide what follows when a held call expires."""
    draft.emit(expired(held))
    settled(draft, held.id)


_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0


def on_model_failure(draft: Draft, failure: ModelFailed) -> None:
    """Decide what follows from a model call that failed: another try, a wait, another model, a summary, or the end."""
    run, model = draft.run, draft.asked
    assert model is not None
    asked = asked_model(run)
    if failure.too_long and on_overflow(draft, failure):
        return
    wait = wait_before(failure, tries=tries(run))
    since = run.failing_since if run.failing_since is not None else draft.at
    patient = draft.at + wait - since <= asked.patience
    tries_left = failure.rate_limited or run.failures < asked.retries
    if not failure.final and patient and tries_left:
        draft.emit(
            ev.ModelDeferred(
                step=model.step,
                attempt=model.attempt,
                until=draft.at + wait,
                reason=failure.message,
                status=failure.status,
                rate_limited=failure.rate_limited,
            )
        )
    elif not failure.too_long and (fallback := next_fallback(run)) is not None:
        attempt = model.attempt + 1
        draft.call_model(model.purpose, model.step, attempt, model.postponed, fallback=fallback, reason=failure.message)
    elif model.purpose == SUMMARY:
        without_model(draft)
    else:
        draft.give_up(ErrorInfo("no-answer", failure.message))


def wait_before(failure: ModelFailed, *, tries: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else twice as long each time."""
    if failure.retry_after is not None:
        return failure.retry_after
    doubled: float = _FIRST_WAIT * 2 ** min(tries - 1, 10)
    return min(doubled, _LONGEST_WAIT)


# --- the outcomes of calls


def on_result(draft: Draft, result: ToolResult) -> None:
    """Decide what follows from the result of a tool."""
    if result.unfinished is not None:
        _paused(draft, result, result.unfinished)
        return
    draft.emit(_answered(result))
    if _is_check(draft.run, result.call):
        _checked(draft, result.call, problem_of(result))
    else:
        settled(draft, result.call)


def late_outcome(run: Run, what: Any) -> ev.AnyEvent | None:
    """Return what comes of a call that the end of the run has cut short, which a later turn reads; None for anything
    else."""
    match what:
        case ToolResult(call=call, unfinished=None) | Report(child=call) if any(
            one.call == call for one in run.revoked
        ):
            return delegate_finished(what) if isinstance(what, Report) else _answered(what)
        case _:
            return None


def _answered(result: ToolResult) -> ev.ToolAnswered:
    return ev.ToolAnswered(
        call=result.call,
        tool=result.tool,
        output=result.output,
        error=result.error,
        blob=result.blob,
        files=result.files,
        blob_form=result.blob_form,
        executor=result.executor,
        seconds=result.seconds,
        started_at=result.started_at or None,
        note=result.note,
    )


def _paused(draft: Draft, result: ToolResult, unfinished: Unfinished) -> None:
    """The call waits: for the clock, or for a person."""
    until = None if unfinished.question else draft.at + unfinished.seconds
    draft.emit(
        ev.ToolPaused(call=result.call, tool=result.tool, unfinished=unfinished, until=until, executor=result.executor)
    )
    if not unfinished.question:
        return
    seconds = draft.spec.approval_seconds
    draft.emit(
        ev.ApprovalRequested(
            call=result.call,
            name=result.tool,
            kind="tool",
            arguments={},
            reason=unfinished.question,
            expires_at=draft.at + seconds if seconds is not None else None,
        )
    )


def on_report(draft: Draft, report: Report) -> None:
    """Decide what follows from the report of a team member."""
    draft.emit(delegate_finished(report))
    settled(draft, report.child)


def delegate_finished(report: Report) -> ev.DelegateFinished:
    """A report of a member as its manager's journal keeps it."""
    return ev.DelegateFinished(
        call=report.child,
        member=report.agent,
        state=report.state,
        output=report.output,
        text=report.text,
        error=report.error,
        usage=report.usage,
        steps=report.steps,
    )


def on_time_out(draft: Draft, call: str, timer: TimerFired) -> None:
    """Decide what follows when a call has taken too long, or its callee has been away for too long."""
    late = draft.run.call(call)
    assert late is not None
    event = timed_out(late, timer, draft.at)
    draft.emit(event)
    if _is_check(draft.run, call):
        _checked(draft, call, no_answer(event))
    else:
        settled(draft, call)


def settled(draft: Draft, call: str) -> None:
    """Have the agent's kind decide what follows from a call that has its outcome now."""
    assert draft.run.current is not None
    draft.kind.settled(draft, [one for one in draft.run.current.calls if one.id == call])


def _is_check(run: Run, call: str) -> bool:
    """Return whether the call is one of those that check the answer in hand."""
    return run.proposal is not None and call in run.proposal.checks


def _checked(draft: Draft, call: str, problem: str) -> None:
    """One check of a proposed answer is over; the last of them decides."""
    run = draft.run
    draft.emit(check_event(run, call, problem))
    text = verdict(run)
    if text is None:
        return
    assert run.proposal is not None
    text = text or draft.unread_problem()
    if text:
        draft.turn_down(text, run.proposal.arguments)
    else:
        draft.give(run.proposal.answer)
