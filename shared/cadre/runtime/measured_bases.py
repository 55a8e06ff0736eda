"""How many tokens a request has besides the run's steps: measured once for an offer of tools and members."""

from typing import NamedTuple

from cadre.engine.chat import base_tokens
from cadre.engine.kind import to_begin
from cadre.journal.arrivals import Offer
from cadre.journal.run import Run
from cadre.prompting.prompts import Prompts
from cadre.spec.agent import AgentSpec

_KEPT = 4


class _Base(NamedTuple):
    offer: Offer
    prompts: Prompts
    revision: str
    tokens: int


class MeasuredBases:
    """Measures anew only when the offer changes, or for a run that began with another revision."""

    def __init__(self) -> None:
        self._bases: list[_Base] = []

    def tokens(self, spec: AgentSpec | None, prompts: Prompts, revision: str, offer: Offer) -> int:
        """Tokens of a request of runs of this revision, which has this spec and these prompts, without their steps."""
        for known in self._bases:
            if known.offer is offer and known.prompts is prompts and known.revision == revision:
                return known.tokens
        run = to_begin(spec) if spec is not None else Run(id="", tree="")
        run.tools, run.members, run.missing = offer.tools, offer.members, offer.missing
        tokens = base_tokens(run, prompts)
        self._bases = [_Base(offer, prompts, revision, tokens), *self._bases[: _KEPT - 1]]
        return tokens
