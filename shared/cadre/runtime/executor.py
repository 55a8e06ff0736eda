"""Handle the calls of tools: claim, run, settle, answer and ack them, and finish those found half done.

An executor asks other processes whether they still work on the calls that they have claimed.
"""

import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from cadre.delivery.call_worker import addressed_call, poisoned, too_late
from cadre.delivery.codec import unpack_call
from cadre.delivery.quarantine import SUSPECT_CALL_AFTER_DELIVERIES, Quarantine
from cadre.delivery.retry import retry
from cadre.delivery.worker import Job, Worker, check_sender
from cadre.errors import CadreError, Fenced, OutcomeUnknown, TerminalError, UnreadableMessage
from cadre.ports import Blobs, Bus, Clock, Delivery, Effect, Effects, Peers, QuarantineStore
from cadre.protocol.messages import EffectClaim, EffectResult, ErrorInfo, ToolCall, ToolResult, call_of_round
from cadre.protocol.topology import result_id
from cadre.runtime.invocation import InvocationOutcome, Invocations
from cadre.runtime.tool_output import cut_error, cut_to_read, oversized
from cadre.tools.loading import AnyTool

log = logging.getLogger("cadre.tools")

T = TypeVar("T")

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
        """Hold the call in hand: entered before the claim, whose readers may ask before its writer knows of it."""
        self._calls[call] += 1
        try:
            yield
        finally:
            self._calls[call] -= 1
            if not self._calls[call]:
                del self._calls[call]

    def has(self, call: str) -> bool:
        """Return whether the call is claimed here and its result is still to come."""
        return call in self._calls

    async def left(self, tool: str, effect: Effect) -> Effect:
        """Return what a claimer that no longer has the call in hand has left: its claim, or its result after all.

        Raises AtWorkElsewhere when it is at work, RetryableError when that is unknown.
        """
        claim = effect.claim
        for _ in range(_QUESTIONS):
            held = await self._is_in_hand(tool, claim)
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

    async def _is_in_hand(self, tool: str, claim: EffectClaim) -> bool | None:
        if claim.executor == self.instance:
            return self.has(claim.call)
        return await self._peers.has_in_hand(tool, claim.executor, claim.call)


class Executor:
    """Handles the deliveries of all tools of a process."""

    def __init__(
        self,
        effects: Effects,
        bus: Bus,
        blobs: Blobs,
        in_hand: InHand,
        quarantine: QuarantineStore,
        clock: Clock,
    ) -> None:
        self._effects = effects
        self._bus = bus
        self._blobs = blobs
        self._in_hand = in_hand
        self._clock = clock
        self._worker = Worker(
            unpack_call,
            self._refuse,
            blobs,
            Quarantine(quarantine, clock, suspect_after=SUSPECT_CALL_AFTER_DELIVERIES),
            self._clock,
        )
        self.invocations = Invocations()

    async def handle(self, tool: AnyTool, delivery: Delivery) -> None:
        """Ack once the result is in the run's inbox. Raises RetryableError: deliver again."""
        try:
            await self._worker.handle(delivery, lambda job: self._serve(tool, job))
        except AtWorkElsewhere as error:
            # Without a word to the queue: the other one settles the message, or dies and it is delivered again.
            log.info("%s left alone: %s", delivery.subject, error)

    async def _serve(self, tool: AnyTool, job: Job[ToolCall]) -> bool:
        call = await job.message()
        check_sender(call, job.address)
        result = await self._result(tool, call, job.delivery)
        if result is not None and call.reply:
            await self._insist(lambda: self._bus.send(result, tool.name, to=call.agent), f"sending {result.id}")
        return True

    async def _refuse(self, job: Job[ToolCall], error: TerminalError) -> None:
        """Tell the run that its call will not be answered otherwise."""
        log.warning("%s given up: %s", job.delivery.subject, error)
        if call := addressed_call(job.address):
            why = poisoned(call, error)
            refusal = self._tool_result(call, error=why.saying(cut_error(why.message)))
            came = await self._what_came_of(self._new_claim(call, job.delivery), refusal)
            await self._bus.send(came, call.tool, to=call.agent)

    async def _what_came_of(self, claim: EffectClaim, refusal: ToolResult) -> ToolResult:
        """Return the result that was kept before somebody died of telling it; else the refusal, kept from now on."""
        try:
            effect = await self._effects.read(claim)
            if effect is not None and effect.result is None:
                effect = await self._in_hand.left(refusal.tool, effect)
        except UnreadableMessage as error:
            log.warning("the effect of %s cannot be read: %s", refusal.call, error)
            return refusal
        if effect is None:
            return refusal
        return effect.result or await self._settle(effect, refusal)

    async def _result(self, tool: AnyTool, call: ToolCall, delivery: Delivery) -> ToolResult | None:
        """None when the answer is somebody else's to give."""
        claim = self._new_claim(call, delivery)
        if tool.card.read_only or (call.resumes is not None and call.resumes.may_repeat):
            return await self._revoked(claim, delivery) or await self._run(tool, call, delivery.deliveries)
        with self._in_hand.hold(call.id):
            effect = await self._insist(lambda: self._claim(claim), f"claiming {call.id}")
            if effect.result is None and replace(effect.claim, revoked=False) == claim:
                if effect.claim.revoked:  # before anybody has begun
                    return await self._settle(effect, await self._not_run(call, _run_ended(call)))
                return await self._settle(effect, await self._run(tool, call, delivery.deliveries))
        if effect.result is None:
            if effect.claim.call_seq != delivery.seq and not delivery.retried:
                # The call was published twice. Its first message is un-acked: its holder answers.
                log.info("call %s is in work as message %d: dropped", call.id, effect.claim.call_seq)
                return None
            effect = await self._in_hand.left(tool.name, effect)
        if effect.result is not None:
            log.info("call %s has its result: sent again", call.id)
            return effect.result
        return await self._settle(effect, await self._after_a_death(tool, call, delivery, effect))

    async def _revoked(self, claim: EffectClaim, delivery: Delivery) -> ToolResult | None:
        """Return what has settled a call that needs no claim and comes again after its executor's death; None while
        it is still awaited."""
        if delivery.deliveries == 1:
            return None
        effect = await self._insist(lambda: self._effects.read(claim), f"looking for {claim.call}")
        return effect.result if effect is not None else None

    async def _after_a_death(self, tool: AnyTool, call: ToolCall, delivery: Delivery, effect: Effect) -> ToolResult:
        if tool.card.idempotent and not effect.claim.revoked:
            return await self._run(tool, call, delivery.deliveries)
        why = ": its run has ended, or does not wait for it any more" if effect.claim.revoked else ""
        text = (
            f"outcome unknown: executor {effect.claim.executor} stopped while it ran tool {tool.name!r};"
            f" the tool may or may not have done its work, and was not run again{why}"
        )
        return await self._not_run(call, ErrorInfo("interrupted", text))

    def _new_claim(self, call: ToolCall, delivery: Delivery) -> EffectClaim:
        return EffectClaim(
            id=f"{call.id}:claim",
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call.id,
            executor=self._in_hand.instance,
            call_seq=delivery.seq,
            agent=call.agent,
            tool=call.tool,
        )

    async def _claim(self, claim: EffectClaim) -> Effect:
        """Return our claim, or that of the executor that was first.

        A claim of ours whose answer was lost comes back as found: then the call has not begun yet.
        """
        try:
            return Effect(claim, await self._effects.claim(claim), None)
        except Fenced as error:
            found = await self._effects.read(claim)
            if found is None:
                raise OutcomeUnknown(f"the claim of {claim.call}", error) from error
            return found

    async def _settle(self, effect: Effect, result: ToolResult) -> ToolResult:
        """Store the result, or returns the one that was stored before it."""
        at = self._clock.now()

        async def store() -> ToolResult:
            nonlocal effect
            settled = EffectResult(
                id=f"{effect.claim.call}:effect",
                tree=result.tree,
                run=result.run,
                at=at,
                claim=effect.claim,
                claim_seq=effect.seq,
                result=result,
            )
            try:
                await self._effects.settle(settled)
            except Fenced as error:
                found = await self._effects.read(effect.claim)
                if found is None:
                    return result  # claim and run were removed: it no longer matters whose result this is
                if found.result is None:
                    effect = found  # the run has marked the claim meanwhile
                    raise OutcomeUnknown(f"the result of {result.call}", error) from error
                return found.result
            return result

        return await self._insist(store, f"storing the result of {result.call}")

    async def _run(self, tool: AnyTool, call: ToolCall, deliveries: int) -> ToolResult:
        unwanted = self._unwanted(call)
        if unwanted is not None:
            return await self._not_run(call, unwanted)
        started = self._clock.now()
        return await self._answer(call, await self.invocations.run(tool, call, deliveries), started)

    async def _not_run(self, call: ToolCall, why: ErrorInfo) -> ToolResult:
        return await self._answer(call, InvocationOutcome(error=why), self._clock.now())

    def _unwanted(self, call: ToolCall) -> ErrorInfo | None:
        """Return why the call need not begin any more."""
        if call.deadline is not None and self._clock.now() >= call.deadline:
            return too_late(call.tool)
        if self.invocations.is_ended(call):
            return _run_ended(call)
        return None

    async def _answer(self, call: ToolCall, outcome: InvocationOutcome, started: float) -> ToolResult:
        for file in outcome.files:
            await self._insist(functools.partial(self._blobs.put, file.data), f"storing a file of {call.id}")
        output, blob = outcome.output, None
        whole = oversized(output, call.output_chars)
        if whole is not None:
            blob = await self._insist(lambda: self._blobs.put(whole), f"storing the output of {call.id}")
            output = cut_to_read(whole, blob, call.output_chars)
        return self._tool_result(
            call,
            output=output,
            error=outcome.error,
            blob=blob,
            files=[file.info for file in outcome.files] if blob else [],
            blob_form="json" if blob and not isinstance(outcome.output, str) else "text",
            started_at=started,
            unfinished=outcome.unfinished,
            note=cut_error(outcome.note),
        )

    def _tool_result(self, call: ToolCall, **fields: Any) -> ToolResult:
        return ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call_of_round(call.id),
            tool=call.tool,
            executor=self._in_hand.instance,
            **fields,
        )

    async def _insist(self, operation: Callable[[], Awaitable[T]], doing: str) -> T:
        """Try until it works: what a tool has done once cannot be recovered by starting over."""
        return await retry(operation, self._clock.sleep, doing=doing, log=log)


def _run_ended(call: ToolCall) -> ErrorInfo:
    return ErrorInfo("cancelled", f"tool {call.tool!r} was not run: its run has ended")
