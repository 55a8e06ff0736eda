"""What a root run will answer, told while its model writes it."""

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.run import Run
from cadre.protocol.deltas import OF_ANSWER, Delta


class AnswerPieces:
    """Makes the deltas of one answer, where nothing but the loss of the model call can make it another one: not where
    it must fit a schema or pass checks."""

    def __init__(self, run: Run, request: ModelRequest) -> None:
        spec = run.spec
        offered = any(tool["function"]["name"] == FINAL_ANSWER for tool in request.tools)
        self._is_told = (
            offered
            and run.parent is None
            and spec is not None
            and spec.output_schema is None
            and not spec.checks
        )
        self._variables = tuple(run.task.inputs) if run.task is not None else ()
        self._seq = 0
        self._held = ""

    def next(self, piece: Delta) -> Delta | None:
        """The delta that tells the piece; None while nothing is to be told."""
        if not self._is_told:
            return None
        self._held += piece.text
        # The name of a variable alone stands for its value.
        if self._seq == 0 and any(name.startswith(self._held) for name in self._variables):
            return None
        self._seq += 1
        text, self._held = self._held, ""
        return msgspec.structs.replace(piece, text=text, seq=self._seq, purpose=OF_ANSWER)
