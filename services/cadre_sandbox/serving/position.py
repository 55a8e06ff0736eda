"""Where a warm interpreter is, and whether a CodeCall asks for just what comes next there."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, Self

from msgspec.structs import replace

from cadre.delivery.code_history import BlockHistory, cut_history
from cadre.delivery.codec import encode
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, CodeYielded


class Position(NamedTuple):
    """A point in the code of a run: a block, and how many exchanges it has behind it.

    Block and number do not say which history the exchanges are. Two replicas may both have run the block, and the run
    took the other one's answer, with other clock readings; or a power cut has set the run back (docs/nats.md), and it
    went another way under the same ids. An interpreter of the one history must not go on with the other. So the
    history is part of the position. Its digest costs the same however long the block is: calls carry the exchanges
    since the last stored piece only, and the reference to that piece is a digest itself.
    """

    block: str
    exchange: int
    history: str
    """Digest of the code, of the reference to the variables, and of all exchanges."""

    @classmethod
    def of(cls, call: CodeCall) -> Self:
        """The point that the call goes on from; the same however much of the history the call carries itself."""
        history, _ = cut_history(call.block, BlockHistory(call.before, call.earlier, call.exchanges))
        digest = hashlib.sha256(encode([call.block, call.code, call.snapshot, *history])).hexdigest()
        return cls(call.block, call.done, digest)


@dataclass(frozen=True, slots=True)
class Served:
    """The call that an interpreter answered last, which says where the interpreter is."""

    call: CodeCall
    position: Position
    answer: CodeAnswer
    notes: tuple[str, ...] = ()
    """What the model is told once the block has ended: which values are not what was meant."""
    passed: frozenset[Position] = frozenset()
    """Where the interpreter was before in the same block."""

    def knows(self, position: Position) -> bool:
        """Whether the call at this position has been answered by the interpreter."""
        return position == self.position or position in self.passed

    def resumes(self, call: CodeCall, position: Position) -> bool:
        """Whether the block waits in the interpreter for exactly the replies of the call, which is at `position`."""
        answer = self.answer
        if not isinstance(answer, CodeYielded):
            return False
        if (position.block, position.exchange) != (self.position.block, self.position.exchange + 1):
            return False
        replies = call.exchanges[-1].replies
        exchange = CodeExchange(calls=answer.calls, replies=replies, clock=answer.clock)
        return position == Position.of(replace(self.call, exchanges=[*self.call.exchanges, exchange]))

    def follows(self, call: CodeCall) -> bool:
        """Whether the interpreter is between blocks, and has the variables that the call asks for."""
        return isinstance(self.answer, CodeFinished) and call.snapshot == self.answer.snapshot

    def leads_to(self, call: CodeCall) -> bool:
        """Whether the interpreter has answered the call, or can go on with it from where it is."""
        position = Position.of(call)
        return self.knows(position) or self.resumes(call, position) or self.follows(call)
