"""Knows which calls this process has in hand, and asks other processes about the calls that they have claimed."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from cadre.errors import CadreError
from cadre.ports import Effect, Effects, Peers
from cadre.protocol.messages import EffectClaim

log = logging.getLogger("cadre.tools")

_QUESTIONS = 2
"""Silence counts when it comes twice: a process that was stopped itself finds its time over before it reads."""


class AtWorkElsewhere(CadreError):
    """Another process has the call in hand: neither its outcome nor its message is this one's to settle."""


class InHand:
    """The calls with effects that the executor `instance` has in hand."""

    def __init__(self, instance: str, effects: Effects, peers: Peers) -> None:
        self.instance = instance
        self._effects = effects
        self._peers = peers
        self._calls: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, call: str) -> Iterator[None]:
        """Holds the call in hand: entered before the claim, whose readers may ask before its writer knows of it."""
        self._calls[call] += 1
        try:
            yield
        finally:
            self._calls[call] -= 1
            if not self._calls[call]:
                del self._calls[call]

    def has(self, call: str) -> bool:
        """Whether the call is claimed here and its result is still to come."""
        return call in self._calls

    async def left(self, tool: str, effect: Effect) -> Effect:
        """Returns what a claimer that no longer has the call in hand has left: its claim, or its result after all.

        Raises AtWorkElsewhere when it is at work, RetryableError when nobody can tell.
        """
        claim = effect.claim
        for _ in range(_QUESTIONS):
            held = await self._is_held(tool, claim)
            if held:
                raise AtWorkElsewhere(f"call {claim.call} is in work at executor {claim.executor}")
            # It may have stored the result just before it was asked. And had the server itself been silent, this
            # would wait for it, or raise.
            effect = await self._effects.read(claim) or effect
            if held is not None or effect.result is not None:
                break
        else:
            log.warning("call %s: executor %s does not answer", claim.call, claim.executor)
        return effect

    async def _is_held(self, tool: str, claim: EffectClaim) -> bool | None:
        if claim.executor == self.instance:
            return self.has(claim.call)
        return await self._peers.has_in_hand(tool, claim.executor, claim.call)
