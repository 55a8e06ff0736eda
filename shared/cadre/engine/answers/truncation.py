"""Answers that an endpoint cut at the limit of tokens, in the middle of what they ask for."""

from collections.abc import Callable

from cadre.journal.arrivals import ModelReplied
from cadre.protocol.messages import ErrorInfo

_CUT = "Your answer was cut off at the limit of tokens before it was whole, so nothing of it was done."

WRITE_LESS = "Write less at once."


def cut_off(
    reply: ModelReplied, is_whole: Callable[[], bool] = lambda: False, advice: str = WRITE_LESS
) -> ErrorInfo | None:
    """Return the error that the model reads, with this advice; None for an answer that is whole, or whole in what it
    asks for, which `is_whole` is asked about."""
    if reply.finish_reason != "length" or is_whole():
        return None
    return ErrorInfo("cut-off", f"{_CUT} {advice}")


def is_cut_off(error: ErrorInfo | None) -> bool:
    """Return whether a step ended with this error because its answer was cut.

    With some chat templates an answer that must be a call never ends: such a run leaves its model the choice from
    then on (`Run.truncated`).
    """
    return error is not None and error.code == "cut-off"
