"""From events to state: `apply` takes a run one event further, `fold` takes it through a journal.

`apply` changes the run in place: the code that folded it owns it. That keeps the cost of a step independent
of how many came before.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cadre.engine.calls.fold_calls import (
    close_call,
    cut_short,
    decide_call,
    drop_call,
    failure_of,
    note_late,
    open_call,
    pause_call,
    revoke,
    time_out_call,
)
from cadre.engine.context.context_budget import (
    COMMON,
    READ,
    kinds_part,
    note_count,
    note_refusal,
    weigh,
    weight_of_memory,
    weight_of_unread,
)
from cadre.engine.context.images import WITHOUT_IMAGES, note_images, shown_by
from cadre.engine.context.text_size import clip, observation_of
from cadre.engine.kind import Kind, account_of, find_kind
from cadre.engine.model_request import choose, native_calls
from cadre.engine.policies.fold_facts import begin_facts, fold_facts
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import (
    SUMMARY,
    ActionStep,
    AnswerStep,
    CallState,
    Deferral,
    KeptSignal,
    KindWait,
    MessageStep,
    ModelInFlight,
    Phase,
    PlanningStep,
    Proposal,
    RecalledStep,
    Recalling,
    Result,
    Run,
    Step,
    Summary,
    TaskStep,
    is_fresh,
)
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.usage import Usage


def fold(entries: Iterable[Entry], run: str, tree: str) -> Run:
    """Return the state of the run behind all entries of its journal."""
    state = Run(id=run, tree=tree)
    for entry in entries:
        apply_entry(state, entry)
    return state


def apply_entry(run: Run, entry: Entry) -> None:
    """Make an entry of the journal true of the run."""
    run.entries = entry.n
    run.seen.add(entry.cause)
    for event in entry.events:
        apply(run, event, entry.n, entry.at)


def apply(run: Run, event: ev.AnyEvent, n: int, at: float) -> None:
    """Make `event`, of the journal's entry `n`, true of the run."""
    kind = type(event)
    weight = _take_in(run, event) if kind in READ or kind not in COMMON else 0
    if run.facts is not None:
        fold_facts(run, event, at)
    if (take := _EFFECTS.get(type(event))) is not None:
        take(run, event, n, at)
        if type(event) is ev.ToolsetChanged and run.facts is None:
            begin_facts(run)
    elif isinstance(event, ev.ModelAnswered):
        _answer(run, event, weight)
    if run.spec is not None:
        decides = find_kind(run.decided_by, run.kind_version)
        if type(decides).fold is not Kind.fold:  # the kind keeps state
            _let_kind_fold(run, decides, event, n, at)


def _let_kind_fold(run: Run, kind: Kind, event: ev.AnyEvent, n: int, at: float) -> None:
    """Have the kind take the event in, and weigh what that changes of what its model reads."""
    if not kind.guided:
        kind.fold(run, event, n, at)  # its model reads no history
        return
    before = kinds_part(run, kind)
    kind.fold(run, event, n, at)
    behind = kinds_part(run, kind)
    if behind is not before and behind != before:
        run.tokens += behind.weight() - before.weight()


def _take_in(run: Run, event: ev.AnyEvent) -> int:
    """Notes what the event adds to what the model reads, and returns how much that weighs."""
    if run.phase is Phase.DONE or run.spec is None:
        return 0  # behind its end; or of a journal that is being erased, whose beginning is gone
    if run.late_members and isinstance(event, ev.DelegateFinished) and event.call in run.late_members:
        return 0
    images = shown_by(event) if run.spec.model.vision and type(event) not in WITHOUT_IMAGES else []
    weight = weigh(run, event, len(images))
    run.tokens += weight
    if images:
        note_images(run, event, images)
    return weight


def _take_result(run: Run, event: ev.ToolAnswered, n: int, at: float) -> None:
    failed = event.error is not None and event.output is None
    text = None if failed else observation_of(event.read)
    if run.phase is Phase.DONE:
        note_late(run, event.call, text, event.error)
    else:
        close_call(run, event.call, n, at, text, event.error)


def _take_report(run: Run, event: ev.DelegateFinished, n: int, at: float) -> None:
    if run.phase is Phase.DONE:
        # A run reports its usage with its end; the usage stays as it was reported.
        note_late(run, event.call, event.text, failure_of(event))
        return
    run.usage += event.usage
    if event.call in run.late_members:
        del run.late_members[event.call]
        return
    failure = failure_of(event)
    close_call(run, event.call, n, at, event.text, failure)


def _accept(run: Run, event: ev.RunAccepted, n: int, at: float) -> None:
    task = event.task
    run.agent = task.agent
    run.task, run.spec = task, event.spec
    run.decided_by, run.kind_version = event.decided_by, event.kind_version
    run.revision, run.prompts = event.revision, event.prompts
    run.started_at = at
    run.accepted = n
    run.deadline, run.budget = event.deadline, event.budget
    run.phase = Phase.ACTING  # nothing open: the next event begins a model call or ends the run
    step = TaskStep(task=with_arguments(task.task, task.inputs), images=task.images)
    step.delegated = task.reply_to is not None or (task.forks is not None and task.forks.delegated)
    if task.standing is not None and task.standing.source:
        step.asked = task.standing.asked
    run.steps = [*map(_of_another, event.history), step, *map(_of_another, event.prefix)]
    run.fixed_tokens = event.fixed_tokens
    run.tokens = weight_of_memory(run)
    run.step = task.forks.at - 1 if task.forks is not None else 0
    begin_facts(run)


def _of_another(step: Step) -> Step:
    return msgspec.structs.replace(step, entry=0) if isinstance(step, ActionStep) else step


def _recall(run: Run, event: ev.MemoryAsked, n: int, at: float) -> None:
    seconds = run.spec.memory.seconds if run.spec is not None else 0.0
    run.recalling = Recalling(call=event.call, query=event.query, count=event.count, since=n, at=at, due=at + seconds)


def _overflow(run: Run, event: ev.ContextOverflowed, n: int, at: float) -> None:
    note_refusal(run, event)
    run.tokens = weight_of_memory(run)


def _summarize(run: Run, event: ev.HistorySummarized, n: int, at: float) -> None:
    run.summary = Summary(text=event.text, covers=event.covers, step=event.step, attempt=event.attempt)
    run.tokens = weight_of_memory(run)


def with_arguments(task: str, arguments: dict[str, Any]) -> str:
    """The task as its agent reads it: it learns by name which variables it was given."""
    if not arguments:
        return task
    given = msgspec.json.encode(arguments).decode()
    return f"{task}\n\nThese additional arguments come with the task; use them by their names:\n{given}"


def _receive_message(run: Run, event: ev.MessageReceived, n: int, at: float) -> None:
    run.messages += 1
    run.unread.append(MessageStep(text=event.text, sender=event.sender))


def read_messages(run: Run) -> None:
    """The model call that begins now takes the messages along that came since the last one began."""
    if run.unread:
        run.tokens += weight_of_unread(run)
        run.steps += run.unread
        run.unread = []


def _call_model(run: Run, event: ev.ModelCalled, n: int, at: float) -> None:
    read_messages(run)
    if run.step != event.step and event.purpose == "act":
        run.step = event.step
    if event.attempt == 1:
        run.failures, run.failing_since = 0, None
    choose(run, event, at)
    run.deferral = None
    run.phase = Phase.THINKING
    run.model = ModelInFlight(
        purpose=event.purpose,
        step=event.step,
        attempt=event.attempt,
        cause=event.cause,
        since=n,
        at=at,
        postponed=event.postponed,
    )


def _answer(run: Run, event: ev.ModelAnswered, weight: int) -> None:
    started = run.model.at if run.model else 0.0
    if event.context is not None:
        run.context = min(event.context, run.context or event.context)
    if event.purpose == "act" and run.spec is not None and not (event.items and native_calls(event.items)):
        # What the endpoint's own tools have found is counted, but is in no request.
        note_count(run, event.usage.input_tokens, weight)
    run.server, run.worker = event.server or run.server, event.worker or run.worker
    if event.learned:
        run.learned = {
            **run.learned,
            event.endpoint: {**run.learned.get(event.endpoint, {}), **event.learned},
        }
    run.model = None
    run.phase = Phase.ACTING
    run.usage += event.usage + Usage(model_calls=1)
    if event.unpriced:
        run.unpriced = event.model or "the model"
    if event.purpose == "plan":
        first = is_fresh(run.steps)
        run.steps.append(PlanningStep(plan=event.content, first=first, usage=Usage() + event.usage))
    elif event.purpose == "act":
        run.current = ActionStep(
            number=event.step,
            content=event.content,
            native=bool(event.calls),
            items=event.items,
            items_of=event.endpoint if event.items else "",
            started_at=started,
            usage=Usage() + event.usage,
        )
    elif run.current is not None and event.purpose != SUMMARY:
        run.current.content = event.content
        run.current.usage += event.usage


def _defer(run: Run, event: ev.ModelDeferred, n: int, at: float) -> None:
    purpose, cause = (run.model.purpose, run.model.cause) if run.model else ("act", "")
    postponed = run.model.postponed if run.model else None
    run.model = None
    run.phase = Phase.WAITING
    run.failures += not event.rate_limited
    run.failing_since = run.failing_since if run.failing_since is not None else at
    run.deferral = Deferral(
        timer=f"model-{purpose}-{event.step}-{event.attempt}",
        until=event.until,
        since=n,
        purpose=purpose,
        step=event.step,
        attempt=event.attempt,
        at=at,
        cause=cause,
        postponed=postponed,
    )


def _start_step(run: Run, event: ev.StepStarted, n: int, at: float) -> None:
    run.step = event.step
    run.current = ActionStep(number=event.step, started_at=at)
    # A step may begin while a model is asked: when the run is to be wound up.
    run.model, run.deferral = None, None
    run.phase = Phase.ACTING


def _finish_step(run: Run, event: ev.StepFinished, n: int, at: float) -> None:
    run.usage += Usage(steps=1)
    run.proposal = None
    if run.phase in (Phase.THINKING, Phase.WAITING):
        # Its model call has failed for good, and the run goes on or waits in another way.
        run.model, run.deferral, run.phase = None, None, Phase.ACTING
    if run.current is not None:
        run.current.error = event.error
        run.truncated = run.truncated or (event.error is not None and event.error.code == "cut-off")
        run.current.ended_at, run.current.entry = at, n
        run.steps.append(run.current)
        run.current = None


def _finish(run: Run, event: ev.RunFinished, n: int, at: float) -> None:
    reason = f"{run.agent} ended: {event.error.message if event.error else event.state}"
    for call in run.open_calls():
        revoke(run, call, n, at, reason)
    _cut_short(run, event, n, at)
    if run.ends_now:
        again = [one for one in run.revoked if one.since < n and one.call in run.late_members]
        run.revoked += [msgspec.structs.replace(one, since=n, at=at) for one in again]
    run.model, run.deferral, run.recalling = None, None, None
    run.waits, run.signals, run.unread = {}, [], []
    run.proposal = None
    run.phase = Phase.DONE
    run.result = Result(state=event.state, output=event.output, error=event.error, since=n, at=at)
    if run.parent is not None and event.output is None and event.error is not None:
        run.result.found = partial_result_of(run)
    if event.state in ("success", "max_steps_error"):
        run.steps.append(AnswerStep(output=event.output))


def _cut_short(run: Run, event: ev.RunFinished, n: int, at: float) -> None:
    """The step in work becomes one that later turns of the session read, with the outcomes of its calls so far."""
    step, run.current = run.current, None
    if step is None or not (step.content or step.calls):
        return
    why = event.error or ErrorInfo("cancelled", event.state)
    for call in step.calls:
        if call.is_open:
            cut_short(call, f"the run ended ({why.message})")
    step.error = why.saying(f"The run ended amid this step: {why.message}")
    step.interrupted, step.ended_at, step.entry = True, at, n
    run.steps.append(step)


def _change_toolset(run: Run, event: ev.ToolsetChanged, n: int, at: float) -> None:
    run.tools = {tool.name: tool for tool in event.tools}
    run.members = {member.name: member for member in event.members}
    run.missing, run.checks_with_calls = event.missing, event.checks_with_calls
    run.fixed_tokens = event.fixed_tokens or run.fixed_tokens


def _remember(run: Run, event: ev.MemoryRecalled, n: int, at: float) -> None:
    run.recalling = None
    run.steps += [RecalledStep(memories=event.memories)] if event.memories else []


def _begin_wait(run: Run, event: ev.WaitStarted, n: int, at: float) -> None:
    run.waits[event.name] = KindWait(until=event.until, since=n, signal=event.signal)


def _end_wait(run: Run, event: ev.WaitFinished, n: int, at: float) -> None:
    run.waits.pop(event.name, None)
    if event.signal is not None:
        taken = next(place for place, kept in enumerate(run.signals) if kept.name == event.signal)
        del run.signals[taken]


def _keep_signal(run: Run, event: ev.SignalReceived, n: int, at: float) -> None:
    run.signals.append(KeptSignal(name=event.name, payload=event.payload, sender=event.sender))


def _propose(run: Run, event: ev.AnswerProposed, n: int, at: float) -> None:
    run.proposal = Proposal(
        answer=event.answer, step=event.step, checks=event.checks, arguments=event.arguments, problems={}
    )


def _check_answer(run: Run, event: ev.AnswerChecked, n: int, at: float) -> None:
    if run.proposal is not None:
        run.proposal.problems[event.call] = event.problem


def _begin_grace(run: Run, event: ev.GraceStarted, n: int, at: float) -> None:
    run.grace, run.deadline, run.budget = n, event.until, None


def _request_cancel(run: Run, event: ev.CancelRequested, n: int, at: float) -> None:
    run.cancelled = event.reason if run.cancelled is None else run.cancelled
    run.ends_now = run.ends_now or event.now


def _pay_late(run: Run, event: ev.RecordIgnored, n: int, at: float) -> None:
    """The usage of a run is reported with its end and does not change afterwards."""
    if run.phase is not Phase.DONE:
        run.usage += event.usage
        run.unpriced = run.unpriced or ((event.model or "the model") if event.unpriced else None)


_EFFECTS: dict[type, Callable[[Run, Any, int, float], None]] = {
    ev.AnswerChecked: _check_answer,
    ev.AnswerProposed: _propose,
    ev.ApprovalDecided: decide_call,
    ev.ApprovalRequested: open_call,
    ev.CallDropped: drop_call,
    ev.CallRefused: open_call,
    ev.CallTimedOut: time_out_call,
    ev.CancelRequested: _request_cancel,
    ev.ContextOverflowed: _overflow,
    ev.DelegateFinished: _take_report,
    ev.DelegateStarted: open_call,
    ev.GraceStarted: _begin_grace,
    ev.HistorySummarized: _summarize,
    ev.MemoryAsked: _recall,
    ev.MemoryRecalled: _remember,
    ev.MessageReceived: _receive_message,
    ev.ModelCalled: _call_model,
    ev.ModelDeferred: _defer,
    ev.ToolsetChanged: _change_toolset,
    ev.RecordIgnored: _pay_late,
    ev.RunAccepted: _accept,
    ev.RunFinished: _finish,
    ev.SignalReceived: _keep_signal,
    ev.StepFinished: _finish_step,
    ev.StepStarted: _start_step,
    ev.ToolAnswered: _take_result,
    ev.ToolCalled: open_call,
    ev.ToolPaused: pause_call,
    ev.WaitStarted: _begin_wait,
    ev.WaitFinished: _end_wait,
}
"""The effect of each common event on the run, except for a model's answer."""


def partial_result_of(run: Run) -> str | None:
    """Step by step, each call with its observation; None when there is nothing to tell."""
    steps = [*run.steps, *([run.current] if run.current is not None else [])]
    found: list[str] = []
    for step in steps:
        match step:
            case PlanningStep():
                found.append(f"Plan:\n{step.plan}")
            case ActionStep():
                found += [f"{call.name}: {seen}" for call in step.asked if (seen := _seen(call))]
                account = account_of(step)
                found += [account.seen] if account is not None and account.seen else []
            case _:
                pass
    if run.proposal is not None:
        found.append(f"Answer that was still being checked:\n{observation_of(run.proposal.answer)}")
    if not found:
        return None
    limit = run.spec.limits.observation_chars if run.spec else None
    return clip("Stopped before it was done. Found until then:\n" + "\n".join(found), limit)


def _seen(call: CallState) -> str:
    """Return the call's observation, or that its outcome is unknown; "" for a call that failed or was not made."""
    if call.error is not None and call.error.code == "interrupted":
        return call.error.message
    if call.is_open and call.opened:
        return "no answer by then; it may or may not have taken effect"
    return call.observation or ""
