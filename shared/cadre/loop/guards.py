"""What stands before every model call, whatever the agent's kind: deadline, budget, and the room in its context."""

import copy

import msgspec

from cadre.engine.budget import GRACE_SECONDS, out_of_time, over_budget
from cadre.engine.carry_out import carry_out
from cadre.engine.context.context_budget import (
    limit,
    may_have_room,
    room,
    to_cover,
    weigh,
    weight_of_unread,
    weights_of,
)
from cadre.engine.context.tokens import tokens_of
from cadre.engine.kind import kind_of
from cadre.engine.moves import PARTIAL_RESULT
from cadre.engine.partial_result import partial_result_of
from cadre.engine.steps import finished
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import SUMMARY, Postponed, Run
from cadre.loop.fold import apply, read_messages
from cadre.protocol.messages import ErrorInfo


def told_in_full(run: Run, events: list[ev.AnyEvent], at: float) -> ev.RunFinished:
    """Return the end that the events lead to, with what the run has found where the end asks for that, and with what
    it has not made up for."""
    end = events[-1]
    assert type(end) is ev.RunFinished
    makes_up = end.error is not None and run.spec is not None and kind_of(run).makes_up
    if end.output is not PARTIAL_RESULT and not makes_up:
        return end
    after = run_after(run, events[:-1], at)
    if end.output is PARTIAL_RESULT:
        end = msgspec.structs.replace(end, output=partial_result_of(after))
    left = kind_of(after).not_undone(after) if makes_up else []
    if end.error is None or not left:
        return end
    text = f"{end.error.message.removesuffix('.')}. What these steps did was not undone: {', '.join(left)}."
    return msgspec.structs.replace(
        end, error=msgspec.structs.replace(end.error, message=text, not_undone=tuple(left))
    )


def run_after(run: Run, events: list[ev.AnyEvent], at: float) -> Run:
    """The state after the events. A copy may cost something: one is made rarely, or once in a run's life."""
    # The agent stays the same. A copy of it would be checked again, and charged to the decision's templates.
    after = copy.deepcopy(run, {id(run.spec): run.spec})
    for event in events:
        apply(after, event, run.entries + 1, at)
    return after


def beyond_bounds(run: Run, error: ErrorInfo, arrival: Arrival) -> list[ev.AnyEvent]:
    """The end of a run whose deadline or budget is used up, or what its kind does before that, in a grace."""
    moves = kind_of(run).outlived(run, error, arrival)
    if moves is None:
        return [finished(run, "error", output=partial_result_of(run), error=error)]
    if run.grace:
        return carry_out(run, arrival, moves)
    grace = ev.GraceStarted(error=error, until=arrival.at + GRACE_SECONDS)
    return [grace, *carry_out(run_after(run, [grace], arrival.at), arrival, moves)]


def within_bounds(run: Run, events: list[ev.AnyEvent], arrival: Arrival) -> list[ev.AnyEvent]:
    """The events, with what follows instead of a model call that would go beyond the run's bounds."""
    if type(events[-1]) is not ev.ModelCalled:
        return events
    deadline, budget = run.deadline, run.budget
    if type(events[0]) is ev.RunAccepted:
        deadline, budget = events[0].deadline, events[0].budget
    error: ErrorInfo | None = None
    if deadline is not None and arrival.at >= deadline:
        error = out_of_time()
    elif budget is not None:
        error = over_budget(run, budget, events)
    if error is None:
        return events
    # What has just arrived has been found as well.
    after = run_after(run, events[:-1], arrival.at)
    return [*events[:-1], *beyond_bounds(after, error, arrival)]


def within_context(run: Run, events: list[ev.AnyEvent], arrival: Arrival) -> list[ev.AnyEvent]:
    """The events, with a summary in place of a model call that the context has no room for."""
    call = events[-1]
    if type(call) is not ev.ModelCalled or call.purpose == SUMMARY:
        return events
    grown = call.attempt == 1 or bool(run.unread) or type(events[0]) is ev.MessageReceived
    overflowed = any(type(event) is ev.ContextOverflowed for event in events)
    if grown and not overflowed and not _is_full(run, events):
        return events
    if not overflowed and (not grown or any(isinstance(e, ev.HistorySummarized) for e in events)):
        return events
    after = run_after(run, events[:-1], arrival.at)
    read_messages(after)
    if to_cover(after) is not None:
        postponed = Postponed(call.purpose, call.attempt)
        return [*events[:-1], _begin(after, call, postponed)]
    if not may_have_room(after):
        return [*events[:-1], ev.RunFinished(state="error", error=_no_room(after), steps=after.step)]
    return events


def _is_full(run: Run, events: list[ev.AnyEvent]) -> bool:
    first, news = events[0], events[max(0, len(events) - 2)]
    if type(first) is ev.RunAccepted:
        return _begins_full(first, events)
    base = (news.fixed_tokens if type(news) is ev.OfferChanged else 0) or run.fixed_tokens
    most, taken = limit(run), run.tokens + weight_of_unread(run, events)
    # What a step has seen takes up half of the context at most (see `per_step`): no need to weigh it then.
    if 4 * (base + taken) <= most and not isinstance(first, ev.ModelAnswered):
        return False
    return base + taken + sum(weigh(run, event) for event in events) > most


def _begins_full(begun: ev.RunAccepted, events: list[ev.AnyEvent]) -> bool:
    """Roughly: what the run goes on from may fill the context by itself."""
    before = [*begun.history, *begun.prefix]
    task, most = begun.task, room(begun.spec)
    offered = max((e.fixed_tokens for e in events if isinstance(e, ev.OfferChanged)), default=0)
    if not before and not task.inputs and 4 * max(offered, begun.fixed_tokens, 4 * len(task.task)) <= most:
        return False
    given = 3 * tokens_of(task.task)
    if task.inputs:
        given += 3 * tokens_of(msgspec.json.encode(task.inputs).decode())
    weight = given + sum(
        weights_of(before, Run(id="", tree="", spec=begun.spec, decided_by=begun.decided_by))
    )
    return max(begun.fixed_tokens, offered) + weight > most


def _begin(run: Run, call: ev.ModelCalled, postponed: Postponed) -> ev.ModelCalled:
    """A summary, asked of the same model in place of the call."""
    before = run.summary
    attempt = before.attempt + 1 if before is not None and before.step == call.step else 1
    return msgspec.structs.replace(call, purpose=SUMMARY, attempt=attempt, postponed=postponed)


def _no_room(run: Run) -> ErrorInfo:
    taken = f"The instructions and tools of {run.agent!r} alone take about {run.fixed_tokens} tokens, and its"
    if run.context is not None:
        text = (
            f"{taken} model's endpoint takes {run.context} in and out together, which leaves room for {limit(run)}:"
            " offer it fewer tools, set prompts: short, or start the endpoint with a larger context."
        )
    else:
        text = (
            f"{taken} model's context has room for {limit(run)}: offer it fewer tools, or set model.context"
            " to what the model really takes."
        )
    return ErrorInfo("no-room", text)
