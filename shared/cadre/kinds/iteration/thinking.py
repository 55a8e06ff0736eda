"""Whether a step has called `think`, and with which question."""

from collections.abc import Sequence

from cadre.engine.answers.json_text import ReadingError
from cadre.journal.steps import ActionStep, Step
from cadre.kinds.iteration.parse import read_iteration


def last_action(steps: Sequence[Step]) -> ActionStep | None:
    """The last action of the steps."""
    return next((step for step in reversed(steps) if isinstance(step, ActionStep)), None)


def thinking_question(step: ActionStep | None) -> str | None:
    """What is to be thought through behind the step; None where nothing is."""
    if step is None or step.calls or step.error is not None:
        return None
    try:
        answer = read_iteration(step.content)
    except ReadingError:
        return None
    return answer.question if answer.is_thinking else None
