"""Estimate, in tokens, how much of a model's context a run takes up.

The model's own count of the last request corrects the estimate (`Run.counted`): what it has counted is known, what
came since is estimated. An endpoint that refuses a request as too long either says how much it takes (`Run.context`),
or the estimate is tightened (`Run.refused_tokens`, `Run.overflows`), however much the spec claims.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from cadre.engine.context.text_size import fit, tokens_of
from cadre.engine.kind import Kind, account_of, kind_of
from cadre.journal import events as ev
from cadre.journal.run import (
    SUMMARY,
    ActionStep,
    AnswerStep,
    CallState,
    Counted,
    MessageStep,
    PlanningStep,
    RecalledStep,
    Run,
    Step,
    TaskStep,
)
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of
from cadre.spec.model import ModelSpec

MESSAGE = 24
"""Tokens of what stands around each message and call: roles, ids, headings."""

IMAGE = 1_600
"""Tokens of one image, at the highest resolution that endpoints read it in."""

ANSWER = 4_096
"""Tokens kept free for the answer of a model whose `max_tokens` is not set, as far as its context has them."""

TIGHTENING = 1.3
"""The factor by which each refused request raises the estimate."""


_TELLING = 1_000
"""Estimated tokens from which on a request that counts for more says something about texts, and not about templates."""

_TIMES_TOO_HIGH = 3
"""The factor by which the estimate of instructions and tools may be too high."""

_TIMES_WHOLE = 6
"""The same for whole requests, many short messages included: an endpoint that counts less has not counted all."""


def answer_tokens(model: ModelSpec, endpoint_context: int | None = None) -> int:
    """Tokens that are kept free for an answer of this model, and the most that one may have."""
    return _kept_free(model, _context(model, endpoint_context))


def room(spec: AgentSpec, endpoint_context: int | None = None) -> int:
    """Tokens that a request may take up, by the spec and by what its endpoint has said that it takes."""
    context = _context(spec.model, endpoint_context)
    return max(1, context - _kept_free(spec.model, context))


def _kept_free(model: ModelSpec, context: int) -> int:
    if model.max_tokens is not None:
        return model.max_tokens
    return ANSWER if context >= 4 * ANSWER else context // 4


def _context(model: ModelSpec, endpoint_context: int | None) -> int:
    return model.context if endpoint_context is None else min(model.context, endpoint_context)


def limit(run: Run) -> int:
    """Tokens that a request may take up, by this module's way of counting."""
    if run.spec is None:
        return 0
    claimed = _corrected(run, room(run.spec, run.context))
    return min(claimed, known_room(run)) if _is_guessed(run) else claimed


def _corrected(run: Run, space: int) -> int:
    """The estimate up to which a request may grow before its model counts more than `space` tokens."""
    if run.counted is None:
        return space
    estimate, tokens = run.counted.estimate, run.counted.tokens
    if tokens > estimate >= _TELLING:
        return int(space / min(4.0, 1.05 * tokens / estimate))
    if estimate >= tokens > space:
        return space * estimate // tokens
    return space + estimate - tokens


def may_have_room(run: Run) -> bool:
    """Return whether instructions and tools leave room for more, as far as is known before the model has counted."""
    unknown = run.counted is None and not run.overflows
    return run.fixed_tokens <= limit(run) * (_TIMES_TOO_HIGH if unknown else 1)


def known_room(run: Run) -> int:
    """Return what the spec claims, as far as the endpoint has not said otherwise. Refused again and again, a request
    shrinks faster and faster: a context may be claimed to be many times its real size.
    """
    claimed = room(run.spec, run.context) if run.spec is not None else 0
    least = claimed if run.refused_tokens is None else min(claimed, run.refused_tokens)
    return int(least / TIGHTENING**run.overflows) if _is_guessed(run) else least


def _is_guessed(run: Run) -> bool:
    """Return whether a refusal has left open how much is too long."""
    return run.refused_tokens is not None or (run.overflows > 0 and run.context is None)


def note_count(run: Run, tokens: int, answer: int) -> None:
    """Correct the estimate by the model's count of its request; `answer` is what its answer weighs."""
    estimate = run.fixed_tokens + run.tokens - answer
    if _TIMES_WHOLE * tokens >= estimate and not _lacks_cached(run.counted, estimate, tokens):
        run.counted = Counted(estimate, tokens)


def _lacks_cached(before: Counted | None, estimate: int, tokens: int) -> bool:
    """Return whether a request that has grown is said to have shrunk: some endpoints leave out what they had cached."""
    return before is not None and estimate >= before.estimate and tokens < before.tokens


def note_refusal(run: Run, refused: ev.ContextOverflowed) -> None:
    """Correct the estimate by what an endpoint has said of a request that it refused as too long."""
    of_summary = run.model is not None and run.model.purpose == SUMMARY
    # A summary's request is cut to the limit.
    asked = limit(run) if of_summary else run.fixed_tokens + run.tokens
    if refused.context is not None:
        run.context = min(refused.context, run.context or refused.context)
    if refused.tokens is not None and not of_summary:
        run.counted = Counted(asked, refused.tokens)
    # What is known may make the next request shorter already.
    if run.context is None or _is_guessed(run) or limit(run) >= asked:
        run.refused_tokens = min(asked, run.refused_tokens or asked)
    run.overflows += 1


def summary_tokens(run: Run) -> int:
    """The most that a summary of earlier steps may take up."""
    return min(1_500, limit(run) // 8)


def per_step(run: Run) -> int:
    """The most that one step's observations may take up together."""
    return known_room(run) // 2


def task_of(step: TaskStep, run: Run) -> str:
    """The task as far as the context has room for it."""
    return fit(step.task, max(0, known_room(run) - run.fixed_tokens) // 2) if run.spec else step.task


def message_of(step: MessageStep, run: Run) -> str:
    """The message as far as the context has room for it."""
    return fit(step.text, known_room(run) // 8) if run.spec else step.text


def weight_of_unread(run: Run) -> int:
    """Return what the next model call adds by the messages that it takes along."""
    return sum(weights_of(run.unread, run)) if run.unread else 0


def is_full(run: Run) -> bool:
    """Return True if the next request would take up more than the context has room for."""
    return run.fixed_tokens + run.tokens + weight_of_unread(run) > limit(run)


def no_room(run: Run) -> ErrorInfo:
    """Return the error of a run that has no room for its steps, even with a summary."""
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


def weights_of(steps: Sequence[Step], run: Run) -> list[int]:
    """Of each step as its model reads it: of the images that steps show it sees the latest only."""
    left, found = _images_shown(run), list[int]()
    for step in reversed(steps):
        weight = _words_of(step, run)
        if isinstance(step, ActionStep):
            shown = min(left, len(step.images))
            left -= shown
            weight += IMAGE * shown
        found.append(weight)
    return found[::-1]


def _images_shown(run: Run) -> int:
    return run.spec.limits.images if run.spec is not None else 0


def _words_of(step: Step, run: Run) -> int:
    match step:
        case TaskStep():
            # Planning and the answer after the last step repeat the task.
            task = tokens_of(task_of(step, run))
            return 2 * MESSAGE + task + _framed(run) + _repeated(task, run) + IMAGE * len(step.images)
        case PlanningStep():
            return 4 * MESSAGE + tokens_of(step.plan)
        case RecalledStep():
            return 2 * MESSAGE + sum(MESSAGE + tokens_of(memory.text) for memory in step.memories)
        case MessageStep():
            return 2 * MESSAGE + tokens_of(message_of(step, run))
        case AnswerStep():
            return MESSAGE + _tokens(step.output)
        case ActionStep():
            return _weight_of_action(step)


def _framed(run: Run) -> int:
    """Return the tokens of what a template of the kind's own shows with the task."""
    framed = facts_of(run.spec).task if run.spec is not None else None
    return _tokens(framed[1]) if framed is not None else 0


def _repeated(task: int, run: Run) -> int:
    return 2 * min(task, known_room(run) // 8)


def _weight_of_action(step: ActionStep) -> int:
    weight = 3 * MESSAGE + tokens_of(step.content) + _of_items(step.items)
    weight += _of_failure(step.error.message if step.error else None)
    account = account_of(step)
    if account is not None:
        weight += tokens_of(account.seen or "") + tokens_of(account.text)
        if not account.with_calls:
            return weight
    return weight + sum(map(_weight_of_call, step.calls))


def _weight_of_call(call: CallState) -> int:
    if call.kind == "question":
        return 0  # the model has not asked it
    asked = call.correction or call
    weight = 2 * MESSAGE + _tokens(asked.arguments) + tokens_of(call.observation or "")
    return weight + _of_failure(call.error.message if call.error else None)


def weight_of_memory(run: Run) -> int:
    """Return the weight of everything that the model reads in addition to the base, between two steps."""
    summary = run.summary
    summarized = tokens_of(summary.text) if summary is not None else 0
    state = run.own.tokens if run.own is not None else 0
    return summarized + state + sum(weights_of(_steps_read(run), run))


def _steps_read(run: Run) -> list[Step]:
    covers, always = run.summary.covers if run.summary is not None else 0, pinned(run)
    return [step for place, step in enumerate(run.steps) if place >= covers or place in always]


def pinned(run: Run) -> range:
    """Places of the task and of what was recalled for it: they are read as they are, even if a summary covers them."""
    memory = run.steps
    begin = next((at for at in reversed(range(len(memory))) if isinstance(memory[at], TaskStep)), None)
    if begin is None:
        return range(0)
    recalled = len(memory) > begin + 1 and isinstance(memory[begin + 1], RecalledStep)
    return range(begin, begin + 2 if recalled else begin + 1)


def weigh(run: Run, event: ev.AnyEvent, images: int) -> int:
    """Return the estimated tokens that an event of `READ` with this number of images adds to what the model reads,
    without calls and without what the run's kind makes of it."""
    weight = 0
    if type(event) is ev.ModelAnswered:
        if event.purpose == "plan" and run.current is None:
            weight = 4 * MESSAGE + tokens_of(event.content)
        elif event.purpose == "act" or (run.current is not None and event.purpose != SUMMARY):
            weight = 3 * MESSAGE + tokens_of(event.content) + _of_items(event.items)
    elif type(event) is ev.MemoryRecalled and event.memories:
        weight = sum(weights_of([RecalledStep(memories=event.memories)], run))
    elif type(event) is ev.StepFinished and event.error is not None:
        weight = _of_failure(event.error.message)
    if not images:
        return weight
    steps = [*_steps_read(run), *([run.current] if run.current is not None else [])]
    before = sum(len(step.images) for step in steps if isinstance(step, ActionStep))
    most = _images_shown(run)
    return weight + IMAGE * (min(most, before + images) - min(most, before))


READ = frozenset({ev.DelegateFinished, ev.MemoryRecalled, ev.ModelAnswered, ev.StepFinished, ev.ToolAnswered})
"""Common events that add to what the model reads, or may show it images."""

COMMON = frozenset(get_args(ev.CommonEvent))


def weight_of_closed(run: Run, call: CallState) -> int:
    """Estimated tokens that a call of the step in work adds, which is closed now: weighed once, whole."""
    if run.spec is None or not (kind := kind_of(run)).reads_calls(run):
        return 0
    own = run.current.own if run.current is not None else None
    account = kind.account(own) if own is not None else None
    return _weight_of_call(call) if account is None or account.with_calls else 0


class KindsPart(NamedTuple):
    """The part of a model's input that only the run's kind knows: of its state, and of the step in work."""

    state: int = 0
    text: str = ""
    seen: str = ""

    def weight(self) -> int:
        """Return estimated tokens of it."""
        return self.state + tokens_of(self.text) + tokens_of(self.seen)


NOTHING = KindsPart()


def kinds_part(run: Run, kind: Kind) -> KindsPart:
    """Return what the model reads of the kind's part now: weighed before the kind's fold of an event and behind it."""
    step = run.current.own if run.current is not None else None
    state = run.own.tokens if run.own is not None else 0
    if step is None:
        return KindsPart(state) if state else NOTHING
    account = kind.account(step)
    return KindsPart(state, account.text, account.seen or "") if account is not None else KindsPart(state)


def _of_items(items: list[dict[str, Any]]) -> int:
    return _tokens(items) if items else 0


def _of_failure(message: str | None) -> int:
    """An error comes with a hint at what to do."""
    return 3 * MESSAGE + tokens_of(message) if message is not None else 0


def _tokens(value: Any) -> int:
    return tokens_of(value) if isinstance(value, str) else tokens_of(msgspec.json.encode(value).decode())


def to_cover(run: Run, unread: Sequence[MessageStep] = ()) -> int | None:
    """Return how many steps of the memory the next summary covers; None when it would cover nothing new. `unread` are
    messages that its request makes steps of the memory."""
    first = run.summary.covers if run.summary is not None else 0
    steps, always = [*run.steps, *unread], pinned(run)
    weights = weights_of(steps, run)
    kept = (limit(run) - run.fixed_tokens - summary_tokens(run) - sum(weights[place] for place in always)) // 2
    covers = len(steps)
    while covers > first:
        weight = 0 if covers - 1 in always else weights[covers - 1]
        if weight > kept:
            break
        kept -= weight
        covers -= 1
    new = [place for place in range(first, covers) if place not in always]
    if new:
        return covers
    # All of it would be kept, and yet there is no room: the oldest step goes.
    rest = [place for place in range(covers, len(steps)) if place not in always]
    return rest[0] + 1 if rest else None
