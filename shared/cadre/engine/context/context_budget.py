"""How much of a model's context a run takes up, in estimated tokens.

Where a model counts more than the estimate, its own count of the last request corrects it (`Run.scale`), and an
endpoint that refuses a request as too long tightens it (`Run.tight`, `Run.refused`), however much its spec claims.
"""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from cadre.engine.context.images import shown_by
from cadre.engine.context.observation import clip, observation_of
from cadre.engine.context.tokens import fit, tokens_of
from cadre.engine.kind import deed_of, kind_of
from cadre.journal import events as ev
from cadre.journal.run import SUMMARY, Run
from cadre.journal.steps import ActionStep, AnswerStep, PlanningStep, RecalledStep, Step, TaskStep
from cadre.spec.agent import AgentSpec

MESSAGE = 24
"""Tokens of what stands around each message and call: roles, ids, headings."""

IMAGE = 1_600
"""Tokens of one image, at the highest resolution that endpoints read it in."""

ANSWER = 4_096
"""Tokens kept free for the answer of a model whose `max_tokens` is not set, as far as its context has them."""

TIGHTENING = 1.3
"""What each refused request makes of the estimate."""


def room(spec: AgentSpec) -> int:
    """Tokens that a request may take up, by the spec alone."""
    context, wanted = spec.model.context, spec.model.max_tokens
    if wanted is None:
        return context - (ANSWER if context >= 4 * ANSWER else context // 4)
    return context - wanted if wanted < context else 1


def limit(run: Run) -> int:
    """Tokens that a request may take up, by this module's way of counting."""
    if run.spec is None:
        return 0
    claimed = int(room(run.spec) / run.calibration)
    return claimed if run.refused_tokens is None and not run.overflows else min(claimed, known_room(run))


def refused_tokens(run: Run) -> int:
    """What the smallest request that was refused took up, the one in flight included."""
    # A summary's request is cut to the limit.
    written = run.model is not None and run.model.purpose == SUMMARY
    asked = limit(run) if written else run.fixed_tokens + run.tokens
    return asked if run.refused_tokens is None else min(asked, run.refused_tokens)


def known_room(run: Run) -> int:
    """What the spec claims, as far as the endpoint has not said otherwise. Refused again and again, a request shrinks
    faster and faster: a context may be claimed to be many times what it is."""
    claimed = room(run.spec) if run.spec is not None else 0
    least = claimed if run.refused_tokens is None else min(claimed, run.refused_tokens)
    return int(least / TIGHTENING**run.overflows) if run.overflows else least


def summary_tokens(run: Run) -> int:
    """The most that a summary of earlier steps may take up."""
    return min(1_500, limit(run) // 8)


def per_step(run: Run) -> int:
    """The most that one step's observations may take up together."""
    return known_room(run) // 2


def scale_of(run: Run, counted: int, answer: int) -> float:
    """The estimate's correction, after a model has counted its request; `answer` is what its answer weighs."""
    estimate = run.fixed_tokens + run.tokens - answer
    # Small requests say more about templates than about texts.
    if not counted or estimate < 1_000:
        return run.calibration
    return min(4.0, max(1.0, 1.05 * counted / estimate))


def task_of(step: TaskStep, run: Run) -> str:
    """The task as far as the context has room for it."""
    return fit(step.task, max(0, known_room(run) - run.fixed_tokens) // 2) if run.spec else step.task


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
            return 2 * MESSAGE + task + _repeated(task, run) + IMAGE * len(step.images)
        case PlanningStep():
            return 4 * MESSAGE + tokens_of(step.plan)
        case RecalledStep():
            return 2 * MESSAGE + sum(MESSAGE + tokens_of(memory.text) for memory in step.memories)
        case AnswerStep():
            return MESSAGE + _tokens(step.output)
        case ActionStep():
            return _weight_of_action(step)


def _repeated(task: int, run: Run) -> int:
    return 2 * min(task, known_room(run) // 8)


def _weight_of_action(step: ActionStep) -> int:
    weight = 3 * MESSAGE + tokens_of(step.content) + _of_failure(step.error.message if step.error else None)
    deed = deed_of(step)
    if deed is not None:
        return weight + tokens_of(deed.seen or "") + tokens_of(deed.text)
    for call in step.calls:
        asked = call.correction or call
        weight += 2 * MESSAGE + _tokens(asked.arguments) + tokens_of(call.observation or "")
        weight += _of_failure(call.error.message if call.error else None)
    return weight


def weight_of_memory(run: Run) -> int:
    """Of everything that the model reads beside the base, between two steps."""
    summary = run.summary
    summarized = tokens_of(summary.text) if summary is not None else 0
    return summarized + sum(weights_of(_steps_read(run), run))


def _steps_read(run: Run) -> list[Step]:
    covers, always = run.summary.covers if run.summary is not None else 0, pinned(run)
    return [step for place, step in enumerate(run.steps) if place >= covers or place in always]


def pinned(run: Run) -> range:
    """Places of the task and of what was recalled for it: they are read as they are, whatever a summary covers."""
    memory = run.steps
    begin = next((at for at in reversed(range(len(memory))) if isinstance(memory[at], TaskStep)), None)
    if begin is None:
        return range(0)
    recalled = len(memory) > begin + 1 and isinstance(memory[begin + 1], RecalledStep)
    return range(begin, begin + 2 if recalled else begin + 1)


def weigh(run: Run, event: ev.AnyEvent) -> int:
    """Estimated tokens that the event adds to what the model reads: an upper bound on what the finished step counts."""
    tokens = _TOKENS.get(type(event))
    weight = tokens(run, event) if tokens is not None else 0
    if tokens is None and run.spec is not None:
        weight = kind_of(run).tokens(run, event)
    if not (brought := len(shown_by(run, event))):
        return weight
    steps = [*_steps_read(run), *([run.current] if run.current is not None else [])]
    before = sum(len(step.images) for step in steps if isinstance(step, ActionStep))
    most = _images_shown(run)
    return weight + IMAGE * (min(most, before + brought) - min(most, before))


def _of_memories(_: Run, event: ev.MemoryRecalled) -> int:
    if not event.memories:
        return 0
    return 2 * MESSAGE + sum(MESSAGE + tokens_of(memory.text) for memory in event.memories)


def _of_answer(_: Run, event: ev.ModelAnswered) -> int:
    if event.purpose == "act":
        return 3 * MESSAGE + tokens_of(event.content) + sum(map(_asked, event.calls))
    return 4 * MESSAGE + tokens_of(event.content) if event.purpose == "plan" else 0


def _of_result(run: Run, event: ev.ToolAnswered) -> int:
    if not kind_of(run).reads_calls(run):
        return 0
    most = _longest(run)
    error = clip(event.error.message, most) if event.error is not None else None
    return MESSAGE + tokens_of(clip(observation_of(event.output), most)) + _of_failure(error)


def _of_report(run: Run, event: ev.DelegateFinished) -> int:
    if not kind_of(run).reads_calls(run):
        return 0
    text = tokens_of(event.text) + (_tokens(event.output) if event.error is not None else 0)
    return 2 * MESSAGE + text + _of_failure(event.error.message if event.error else None)


def _of_refusal(run: Run, event: ev.CallRefused) -> int:
    if not kind_of(run).reads_calls(run):
        return 0
    return MESSAGE + _tokens(event.arguments) + _of_failure(clip(event.error.message, _longest(run)))


def _of_step(_: Run, event: ev.StepFinished) -> int:
    return _of_failure(event.error.message) if event.error is not None else 0


def _of_ruling(_: Run, event: ev.ApprovalDecided) -> int:
    return 4 * MESSAGE + tokens_of(event.feedback)


def _of_silence(_: Run, __: ev.CallTimedOut) -> int:
    return 4 * MESSAGE


_TOKENS: dict[type, Callable[[Run, Any], int]] = {
    ev.ApprovalDecided: _of_ruling,
    ev.CallRefused: _of_refusal,
    ev.CallTimedOut: _of_silence,
    ev.DelegateFinished: _of_report,
    ev.MemoryRecalled: _of_memories,
    ev.ModelAnswered: _of_answer,
    ev.StepFinished: _of_step,
    ev.ToolAnswered: _of_result,
}

UNREAD = frozenset(get_args(ev.CommonEvent)) - frozenset(_TOKENS)
"""Common events that no model reads of."""


def _longest(run: Run) -> int | None:
    return run.spec.limits.observation_chars if run.spec is not None else None


def _asked(call: ev.RequestedCall) -> int:
    return 2 * MESSAGE + tokens_of(call.name) + _tokens(call.arguments)


def _of_failure(message: str | None) -> int:
    """An error comes with a hint at what to do."""
    return 3 * MESSAGE + tokens_of(message) if message is not None else 0


def _tokens(value: Any) -> int:
    return tokens_of(value) if isinstance(value, str) else tokens_of(msgspec.json.encode(value).decode())


def to_cover(run: Run) -> int | None:
    """How many steps of the memory the next summary covers; None when it would cover nothing new."""
    first = run.summary.covers if run.summary is not None else 0
    weights, always = weights_of(run.steps, run), pinned(run)
    kept = (
        limit(run) - run.fixed_tokens - summary_tokens(run) - sum(weights[place] for place in always)
    ) // 2
    covers = len(run.steps)
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
    rest = [place for place in range(covers, len(run.steps)) if place not in always]
    return rest[0] + 1 if rest else None
