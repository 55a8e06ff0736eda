"""Bugs to find: production parts, each with one rule broken, put into a world in place of the sound ones."""

from typing import Any

from cadre.engine.commands import Command, Send, SetTimer
from cadre.journal.entry import Entry
from cadre.journal.run import Phase, Run
from cadre.ports import Appended, Delivery, Effect
from cadre.protocol.messages import Cancel, EffectClaim, EffectResult, Record, Report, Task, ToolResult
from cadre.runtime.executor import Executor, InHand
from cadre.runtime.inbox import Inbox
from cadre.runtime.journaling import Journaling, NewEntry
from cadre.runtime.run_cache import CachedRun
from cadre.runtime.runner import KNOWN_SECONDS, Payments, Runner
from cadre.testing.in_memory_ports import InMemoryEffects, effect_subject
from simulation import planted_in_code as code
from simulation import planted_in_memory as memory
from simulation.adapters import SimJournal
from simulation.blocks import GOES_ON, MADE_ONCE, ONE_OUTCOME, SAYS
from simulation.excuses import NO_DIVERGENCE
from simulation.invariants import FEW_READS
from simulation.remembered import KEPT, LEFT, RECALLED, WITHIN
from simulation.steering import IN_ORDER as IN_THEIR_ORDER
from simulation.workers import Parts


class AcksFirst(Inbox):
    """Lets go of the record before its run accounts for it."""

    async def handle(self, delivery: Delivery) -> None:
        await delivery.ack()
        await super().handle(delivery)


class Unfenced(SimJournal):
    """Appends anything that it is given, behind anything that is there."""

    async def append(self, entry: Entry, fence: int, **more: Any) -> Appended:
        head = self._reach.stream(entry.tree).last(self._reach.topology.journal(entry.tree, entry.run))
        return await super().append(entry, head.seq if head else 0, **more)


class TakesNothingOver(Journaling):
    """Lets go of a record whose model call died with its worker."""

    def take_over(self, run: Run, record_id: str, deliveries: int) -> NewEntry | list[Command]:
        if run.model is not None and run.model.cause == record_id:
            return []
        return super().take_over(run, record_id, deliveries)


class PaysOnce(Journaling):
    """Takes what is journaled for paid."""

    def left_owed(self, run: Run, record_id: str) -> list[Command]:
        commands = super().left_owed(run, record_id)
        return [command for command in commands if not isinstance(command, Send)]


class SetsTimersOnce(Journaling):
    """After a crash it believes that its timers are set."""

    def left_owed(self, run: Run, record_id: str) -> list[Command]:
        commands = super().left_owed(run, record_id)
        return [command for command in commands if not isinstance(command, SetTimer)]


class DropsLateRecords(Journaling):
    """Judges by the state it has in mind what is of no use any more, and lets go of it."""

    async def account(self, record: Record, deliveries: int, seq: int, slot: int) -> list[Command]:
        held = await self.cache.get(record.tree, record.run)
        open_calls = {call.id for call in held.run.open_calls()}
        unknown = (isinstance(record, ToolResult) and record.call not in open_calls) or (
            isinstance(record, Report) and record.child not in open_calls
        )
        return [] if unknown else await super().account(record, deliveries, seq, slot)


class AccountsTwice(Journaling):
    """Does not look whether it knows the record."""

    async def account(self, record: Record, deliveries: int, seq: int, slot: int) -> list[Command]:
        def decide(held: CachedRun) -> NewEntry | list[Command]:
            if held.run.phase is Phase.DONE or isinstance(record, Task):
                raise _AsItShould
            return NewEntry(record, cause=record.id)

        try:
            return await self.add_entry(record.id, record.tree, record.run, decide)
        except _AsItShould:
            return await super().account(record, deliveries, seq, slot)


class _AsItShould(Exception):
    """Here the bug does not show."""


class ReliesOnWhatMayNotArrive(Journaling):
    """Goes on from an entry that was on its way, no matter what became of it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cache.invalidate = self.cache.forget  # type: ignore[method-assign]


class AsksUntilAnAnswerIsQuick(Journaling):
    """Takes no answer of a slow server for new, and asks again."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        ask_again = self.cache.ask_again

        async def until_quick(cached: CachedRun) -> None:
            for _ in range(200):
                asked = self._clock.now()
                await ask_again(cached)
                if cached.invalid or self._clock.now() - asked < KNOWN_SECONDS:
                    return

        self.cache.ask_again = until_quick  # type: ignore[method-assign]
        self.cache.age = lambda cached: 3.0  # type: ignore[method-assign]


class TakesUpWhateverComes(Inbox):
    """Does not look whether people sent something before."""

    async def _in_turn(self, record: Record, deliveries: int, seq: int, slot: int) -> bool:
        return await self._runner.handle(record, deliveries, seq, slot)


class AcksWhatOthersHold(Inbox):
    """Acks a record though another worker has taken it over."""

    async def handle(self, delivery: Delivery) -> None:
        await super().handle(delivery)
        await delivery.ack()


class ForgetsChildren(Runner):
    """Ends without a word to those who still work for it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._payments.__class__ = _WithoutCancels


class _WithoutCancels(Payments):
    async def pay(self, commands: list[Command]) -> SetTimer | None:
        kept = [c for c in commands if not (isinstance(c, Send) and isinstance(c.message, Cancel))]
        return await super().pay(kept)


class ClaimsWithoutFence(InMemoryEffects):
    """Claims a call that somebody else has claimed."""

    async def _append(self, claim: EffectClaim, record: EffectClaim | EffectResult, fence: int) -> int:
        head = self._reach.stream(claim.tree).last(effect_subject(self._reach, claim))
        assert isinstance(record, EffectClaim) or head is not None
        return await super()._append(claim, record, head.seq if head else 0)


class LooksAtNoClaim(Executor):
    """Runs the tool no matter what the claim says."""

    async def _claim(self, claim: EffectClaim) -> Effect:
        effect = await super()._claim(claim)
        return Effect(claim, effect.seq, None)


class AsksNobody(InHand):
    """Takes anyone who has claimed a call for dead when the call comes again."""

    async def left(self, tool: str, effect: Effect) -> Effect:
        return effect


PLANTED: dict[str, tuple[Parts, frozenset[str]]] = {}
"""Each bug by name, with the promises that it may be found to break."""


def _plant(name: str, parts: Parts, *promises: str) -> None:
    PLANTED[name] = (parts, frozenset(promises))


ACKED = "a record is acked only once the journal accounts for it"
HELD = "the record of a model call in flight stays un-acked"
BRANCH = "one journal, no branches"
WAKES = "a run with work to do has a pending record or timer"
PAID = "what a run owes is paid before its last record is acked"
ONCE = "every record is accounted for exactly once"
EFFECT = "an effect happens at most once per call"
FIRST = "the first result wins"
ALIVE = "nobody is taken for dead who answers"
CANCEL = "a cancel reaches every open descendant"

_plant("ack before append", Parts(inbox=AcksFirst), ACKED, HELD, WAKES, PAID)
_plant("no fence", Parts(journal=Unfenced), BRANCH)
_plant("no takeover of model calls", Parts(journaling=TakesNothingOver), HELD, WAKES, PAID)
_plant("owed is not paid on redelivery", Parts(journaling=PaysOnce), PAID)
_plant("timers are not set after a crash", Parts(journaling=SetsTimersOnce), PAID)
_plant("late records are dropped on a cached state", Parts(journaling=DropsLateRecords), ACKED, HELD, WAKES, PAID)
_plant("a record is accounted for again", Parts(journaling=AccountsTwice), ONCE, HELD, WAKES, PAID)
_plant(
    "an entry on its way counts as arrived",
    Parts(journaling=ReliesOnWhatMayNotArrive),
    *(BRANCH, ACKED, HELD, WAKES, PAID, ONCE),
)
_plant("a slow answer is no answer", Parts(journaling=AsksUntilAnAnswerIsQuick), FEW_READS, "every run reaches an end")
_plant("people's records overtake each other", Parts(inbox=TakesUpWhateverComes), IN_THEIR_ORDER)
_plant("a zombie acks what it lost", Parts(inbox=AcksWhatOthersHold), HELD, ACKED, PAID)
_plant("open children are not cancelled", Parts(runner=ForgetsChildren), CANCEL, PAID)
_plant("effects are claimed without a fence", Parts(effects=ClaimsWithoutFence), EFFECT, FIRST)
_plant("claims are not looked at", Parts(executor=LooksAtNoClaim), EFFECT)
_plant("a living executor is taken for dead", Parts(in_hand=AsksNobody), ALIVE)
_plant(
    "an answer to an earlier question is taken",
    Parts(journaling=code.TakesAnyAnswer),
    SAYS,
    ONE_OUTCOME,
    MADE_ONCE,
    ONCE,
)
_plant("replies are mixed", Parts(code_runner=code.MixesReplies), SAYS, GOES_ON, NO_DIVERGENCE)
_plant("a replay reads the clock anew", Parts(code_runner=code.ReadsTheClockAnew), SAYS, GOES_ON, NO_DIVERGENCE)
_plant(
    "interpreters are shared between runs",
    Parts(warm_pool=code.SharesInterpreters, code_runner=code.RunsOnWhatIsWarm),
    *(SAYS, GOES_ON, NO_DIVERGENCE),
)
_plant(
    "the variables of an attempt that lost are gone on with",
    Parts(warm_pool=code.KeepsWhatIsWarm, code_runner=code.RunsOnWhatIsWarm),
    SAYS,
    GOES_ON,
    NO_DIVERGENCE,
)
_plant("variables are stored once", Parts(code_runner=code.StoresOnce), SAYS, GOES_ON)
_plant("an earlier answer is said again", Parts(code_runner=code.SaysItAgain), WAKES, PAID)
_plant("code is acked before its outcome is sent", Parts(serving=code.AcksCodeFirst), WAKES)
_plant("code that was handed over is acked", Parts(serving=code.AcksWhatItHandsOver), WAKES, PAID)
_plant("what is left is not left again after a crash", Parts(journaling=memory.LeavesOnce), PAID, LEFT)
_plant("each delivery is remembered anew", Parts(memories=memory.StoresAnew), KEPT)
_plant("a silent engine is taken for one that has stored", Parts(memories=memory.TakesSilenceForDone), KEPT)
_plant("answers of the memory service are shared", Parts(journaling=memory.SharesAnswers), RECALLED)
_plant("the model is shown what was summarized", Parts(runner=memory.ShowsEverything), WITHIN)
