"""The rules for code: each block ended once, by what its language says, no matter what was killed and replayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from cadre.delivery.code_history import HistoryPiece
from cadre.engine.calls.fold_calls import failure_of
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.kinds.code.records import BlockFinished, BlockStarted, BlockYielded
from cadre.protocol.code import CodeExchange
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded
from cadre.protocol.topology import call_id, code_call_id, parent_of
from simulation.excuses import is_excused
from simulation.history import Chronicle, Violation
from simulation.language import Calls, Clock, Ended, Luck, Need, Variables, course
from simulation.tools import CHECK

if TYPE_CHECKING:
    from simulation.world import World

ONE_OUTCOME = "a block has one outcome"
MADE_ONCE = "the calls of a block are made once"
REPLAYED = "a replay is fed what the journal holds"
GOES_ON = "a block goes on from what the one before has left"
SAYS = "a block does what its code says"

Reply = tuple[Any, str | None]

_ANY = "an error of any text"


def blocks_do_what_their_code_says(world: World) -> None:
    made: dict[str, list[str]] = defaultdict(list)
    sent = [call for call, one in world.history.calls.items() if one.tool not in (*MEMORY_TOOLS, CHECK)]
    for call in [*sent, *world.history.runs]:
        made[parent_of(call) or ""].append(call)
    for name, chronicle in world.history.runs.items():
        spec = chronicle.run.spec
        if spec is not None and spec.kind == "code" and chronicle.run.decided_by == "code":
            asked = _Reader(world, chronicle).read()
            if strange := [call for call in made[name] if call not in asked]:
                raise Violation(MADE_ONCE, f"{strange} were made, and no block asked for them")


class _Reader:
    """Reads a run's journal from its begin, next to a second interpreter that nothing ever happens to."""

    def __init__(self, world: World, chronicle: Chronicle) -> None:
        self._world, self._chronicle = world, chronicle
        self._offered: set[str] = set()
        self._before: str | None = None
        """Reference of the variables that the block before has left."""
        self._block: BlockStarted | None = None
        self._step = self._first = self._exchange = 0
        """Step of the block, place of its next call, exchanges so far."""
        self._course: Generator[Need, Any, Ended] | None = None
        self._awaited: list[str] = []
        self._asked: set[str] = set()
        self._checks: set[str] = set()
        """Calls that check an answer: no block has made them."""
        self._given_up: set[str] = set()
        """Calls that no one waits for any more."""
        self._replies: dict[str, Reply] = {}
        self._told: list[CodeExchange] = []
        """The history of the block as sandboxes have received it."""

    def read(self) -> set[str]:
        """Every call that its blocks asked for."""
        for event in self._chronicle.events:
            match event:
                case ev.ToolsetChanged():
                    self._offered = {one.name for one in event.tools} | {one.name for one in event.members}
                case BlockStarted():
                    self._started(event)
                case BlockYielded():
                    self._yielded(event)
                case BlockFinished():
                    self._finished(event)
                case ev.RunFinished():
                    break  # what comes behind it is for later turns, and for no block
                case ev.AnswerProposed():
                    self._checks.update(event.checks)
                case _:
                    self._replied(event)
        if self._block is not None and self._chronicle.run.phase is not Phase.DONE:
            raise Violation(ONE_OUTCOME, f"{self._block.block} has none")
        return self._asked

    def _started(self, event: BlockStarted) -> None:
        if self._block is not None:
            raise Violation(ONE_OUTCOME, f"{self._block.block} had none when {event.block} began")
        self._block = event
        self._step, self._first, self._exchange = int(event.block.rpartition(":")[2]), 0, 0
        self._awaited, self._replies, self._told = [], {}, []
        self._course = course(event.code, self._variables(self._before), self._offered)

    def _yielded(self, event: BlockYielded) -> None:
        self._is_due(event.block, event.exchange)
        self._was_sent(event, CodeYielded)
        need = self._until(self._heard(), list(event.clock), 0.0)
        made = [(call.name, call.arguments) for call in event.calls]
        if not isinstance(need, Calls) or need.made != made:
            raise Violation(SAYS, f"{event.block} called {made}, its code says {need}")
        self._awaited = [call_id(self._chronicle.run.id, self._step, self._first + at) for at in range(len(made))]
        self._asked.update(self._awaited)
        self._first += len(made)
        self._exchange += 1

    def _replied(self, event: ev.AnyEvent) -> None:
        match event:
            case ev.ToolAnswered(call=call, error=None):
                reply: Reply = (event.output, None)
            case ev.ToolAnswered(call=call, error=error) | ev.CallRefused(call=call, error=error):
                assert error is not None
                reply = (None, error.message)
            case ev.DelegateFinished(call=call) if call in self._given_up:
                return  # reports what was used, to no block
            case ev.DelegateFinished(call=call):
                failure = failure_of(event)
                reply = (event.text, None) if failure is None else (None, failure.message)
            case ev.CallTimedOut(call=call):
                self._given_up.add(call)
                reply = (None, _ANY)
            case ev.ApprovalDecided(call=call, verdict="rejected" | "expired"):
                reply = (None, _ANY)
            case _:
                return
        if call in self._checks:
            return
        if self._block is None or call not in self._awaited:
            raise Violation(MADE_ONCE, f"{call} is answered, and no block of its run waits for it")
        if call in self._replies:
            raise Violation(MADE_ONCE, f"{call} is answered twice")
        self._replies[call] = reply

    def _finished(self, event: BlockFinished) -> None:
        self._is_due(event.block, event.exchange)
        self._was_sent(event, CodeFinished)
        heard = self._heard()
        if event.error is not None and (excused := is_excused(self._world, self._chronicle, event)):
            if event.snapshot != (self._before if excused == "kept" else None):
                raise Violation(GOES_ON, f"{event.block} was stopped, and left {event.snapshot}")
        else:
            left = self._variables(event.snapshot)
            ended = self._until(heard, None, left.luck)
            if not isinstance(ended, Ended):
                raise Violation(SAYS, f"{event.block} ended with {event.output} {event.error}, it should do {ended}")
            _is_its_end(event, ended, left)
        self._block, self._before = None, event.snapshot

    # --- what came of it against what was to come

    def _is_due(self, block: str, exchange: int) -> None:
        if self._block is None or (self._block.block, self._exchange) != (block, exchange):
            due = self._block and f"{self._block.block}:{self._exchange}"
            raise Violation(ONE_OUTCOME, f"{block}:{exchange} was taken in, due was {due}")

    def _was_sent(self, event: Any, kind: type[CodeYielded | CodeFinished]) -> None:
        """By some sandbox, in answer to this very question."""
        word = "yielded" if kind is CodeYielded else "finished"
        sent = self._chronicle.records.get(f"{event.block}:{event.exchange}:{word}", [])
        wanted = {
            name: value for name, value in msgspec.structs.asdict(event).items() if name in kind.__struct_fields__
        }
        if not any(all(getattr(one, name) == value for name, value in wanted.items()) for one in sent):
            raise Violation(ONE_OUTCOME, f"what {event.block}:{event.exchange} came to was never sent")

    def _heard(self) -> list[Reply] | None:
        """The replies to its last calls, once the sandboxes were asked with just these."""
        assert self._block is not None
        asked = self._world.history.code_calls[code_call_id(self._block.block, self._exchange)]
        if not asked:
            raise Violation(SAYS, f"{self._block.block}:{self._exchange} has an answer, and nobody asked")
        for one in asked:
            if one != asked[0]:
                raise Violation(REPLAYED, f"{one.id} was not the same each time it was sent")
            if one.snapshot != self._before:
                raise Violation(GOES_ON, f"{one.id} goes on from {one.snapshot}, left was {self._before}")
        if not self._exchange:
            return None
        exchanges = self._all_exchanges(asked[0])
        replies = [(one.value, one.error) for one in exchanges[-1].replies]
        wanted = [self._replies.get(call) for call in self._awaited]
        if len(exchanges) != self._exchange or exchanges[:-1] != self._told or not all(map(_is_reply, replies, wanted)):
            raise Violation(REPLAYED, f"{asked[0].id} was given {replies}, the journal has {wanted}")
        self._told = exchanges
        return replies

    def _all_exchanges(self, call: CodeCall) -> list[CodeExchange]:
        """Those behind references too."""
        exchanges, ref = call.exchanges, call.earlier
        while ref is not None:
            piece = msgspec.json.decode(self._world.blobs[ref], type=HistoryPiece)
            exchanges, ref = [*piece.exchanges, *exchanges], piece.earlier
        return exchanges

    def _until(self, heard: Any, clock: list[float] | None, luck: float) -> Need | Ended:
        """On to the next calls, or to the end."""
        assert self._course is not None
        try:
            while True:
                need = self._course.send(heard)
                match need:
                    case Calls():
                        return need
                    case Clock():
                        # Who was never given a reading cannot have come further.
                        if not clock:
                            return need
                        heard = clock.pop(0)
                    case Luck():
                        heard = luck
                    case _:
                        heard = None
        except StopIteration as stop:
            ended: Ended = stop.value
            return ended

    def _variables(self, snapshot: str | None) -> Variables:
        if snapshot is None:
            return Variables()
        return msgspec.json.decode(self._world.blobs[snapshot], type=Variables)


def _is_reply(given: Reply, wanted: Reply | None) -> bool:
    if wanted is None:
        return False
    if wanted[1] == _ANY:
        return given[1] is not None
    return given == wanted


def _is_its_end(event: BlockFinished, ended: Ended, left: Variables) -> None:
    if ended.variables != left:
        raise Violation(GOES_ON, f"{event.block} left {left}, it should be {ended.variables}")
    if ended.error is None:
        if event.error is not None or (event.output, event.is_final_answer) != (ended.output, ended.final):
            raise Violation(SAYS, f"{event.block} ended with {event.output} {event.error}, not with {ended}")
    elif event.error is None or ": ".join(ended.error) not in event.error.message:
        raise Violation(SAYS, f"{event.block} ended with {event.output} {event.error}, not with {ended.error}")
