"""The beginning of a run as the memory of another: what a fork takes over, with observations that may be edited."""

from typing import NamedTuple

import msgspec

from cadre.engine.context.text_size import clip
from cadre.journal.run import ActionStep, CallState, MessageStep, Phase, PlanningStep, Run, Step, TaskStep
from cadre.journal.unions import converted
from cadre.protocol.messages import Fork


class ForkError(Exception):
    """The run cannot be forked like that; the text is for the person who asked."""

    def __init__(self, message: str, *, too_early: bool = False) -> None:
        super().__init__(message)
        self.too_early = too_early
        """It could be once the run has gone on."""


class Prefix(NamedTuple):
    """The memory of a fork before and after the task."""

    history: list[Step]
    steps: list[Step]


def prefix_of(source: Run, fork: Fork) -> Prefix:
    """The steps before step `fork.at`, and what the run itself went on from. Raises ForkError."""
    if source.phase is Phase.NEW or source.task is None:
        raise ForkError(f"run {fork.run} has not begun, or is gone", too_early=True)
    begin = max(place for place, step in enumerate(source.steps) if isinstance(step, TaskStep))
    steps = _before(source, source.steps[begin + 1 :], fork)
    for call, text in fork.observations.items():
        _observe(steps, call, clip(text, source.spec.limits.observation_chars if source.spec else None))
    return Prefix(source.steps[:begin], steps)


def next_step(source: Run) -> int:
    """The step with which a run that ended without an answer can be gone on with. Raises ForkError."""
    if source.result is None:
        raise ForkError(f"run {source.id} has not ended: it goes on by itself", too_early=True)
    if source.result.state == "success":
        raise ForkError(f"run {source.id} has given its answer: there is nothing to go on with")
    steps = [step.number for step in source.steps if isinstance(step, ActionStep) and step.entry]
    begun = source.task.forks.at if source.task is not None and source.task.forks is not None else 1
    return max([begun - 1, *steps]) + 1


def _before(source: Run, steps: list[Step], fork: Fork) -> list[Step]:
    """The plans and actions before the step; copies, for observations are edited in them."""
    kept: list[Step] = []
    between: list[Step] = []
    finished = 0
    for step in steps:
        if isinstance(step, PlanningStep | MessageStep):
            between.append(step)  # made, or read, for the action behind it
        elif isinstance(step, ActionStep):
            finished = step.number
            kept += [*between, step] if finished < fork.at else _messages(between, finished == fork.at)
            between = []
    kept += _messages(between, finished == fork.at - 1)
    # The step that held the answer led to no other.
    answered = source.result is not None and source.result.state == "success"
    last = finished if answered else finished + 1
    if not 1 <= fork.at <= last:
        steps_so_far = f"{finished} step{'' if finished == 1 else 's'}"
        raise ForkError(
            f"run {source.id} has finished {steps_so_far}, so it can be forked at step 1 to {last}",
            too_early=source.phase is not Phase.DONE,
        )
    return converted(msgspec.to_builtins(kept), list[Step])


def _messages(steps: list[Step], wanted: bool) -> list[Step]:
    """Return what people had said before the step that the fork begins with."""
    return [step for step in steps if isinstance(step, MessageStep)] if wanted else []


def _observe(steps: list[Step], call: str, text: str) -> None:
    calls = [one for step in steps if isinstance(step, ActionStep) for one in step.calls]
    meant = next((one for one in calls if call in (one.id, _place(one))), None)
    if meant is None:
        places = ", ".join(map(_place, calls)) or "there is none"
        raise ForkError(f"no call before the step is named {call!r}; write <step>_<index>: {places}")
    meant.observation, meant.error = text, None


def _place(call: CallState) -> str:
    """`<step>_<index>`, which every call id ends in."""
    return "_".join(call.id.rsplit("_", 2)[1:])
