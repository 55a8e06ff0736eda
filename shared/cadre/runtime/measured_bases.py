"""Measures the tokens of a request besides the run's steps, once for each toolset."""

from typing import NamedTuple

from cadre.engine.chat import base_tokens
from cadre.engine.kind import to_begin
from cadre.journal.arrivals import Toolset
from cadre.journal.run import Run
from cadre.prompting.prompts import Prompts
from cadre.spec.agent import AgentSpec

_KEPT = 4


class _Base(NamedTuple):
    toolset: Toolset
    prompts: Prompts
    revision: str
    tokens: int


class MeasuredBases:
    """Measures anew only when the toolset changes, or for a run that began with another revision."""

    def __init__(self) -> None:
        self._bases: list[_Base] = []

    def tokens(self, spec: AgentSpec | None, prompts: Prompts, revision: str, toolset: Toolset) -> int:
        """Tokens of a request of runs of this revision, which has this spec and these prompts, without their steps."""
        for known in self._bases:
            if known.toolset is toolset and known.prompts is prompts and known.revision == revision:
                return known.tokens
        run = to_begin(spec) if spec is not None else Run(id="", tree="")
        run.tools, run.members, run.missing = toolset.tools, toolset.members, toolset.missing
        tokens = base_tokens(run, prompts)
        self._bases = [_Base(toolset, prompts, revision, tokens), *self._bases[: _KEPT - 1]]
        return tokens
