"""What is done with a call: claim, run, settle, answer, ack; and what with one found half done."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cadre.adapters.system_clock import SystemClock
from cadre.delivery.codec import unpack_call
from cadre.delivery.newer_schema import leave_to_newer
from cadre.delivery.output_limit import cut_to_read, oversized
from cadre.delivery.quarantine import Trials
from cadre.delivery.sender_check import forged_call, misplaced
from cadre.errors import Fenced, NewerSchema, OutcomeUnknown, RetryableError, TerminalError, UnreadableMessage
from cadre.ports import Blobs, Bus, Clock, Delivery, Effect, Effects, Marks
from cadre.protocol.messages import EffectClaim, EffectResult, ErrorInfo, ToolCall, ToolResult
from cadre.protocol.topology import Topology, result_id
from cadre.tools.loading import AnyTool
from cadre_tools.in_hand import AtWorkElsewhere, InHand
from cadre_tools.invocation import Invocations, Outcome
from cadre_tools.output import cut_error

log = logging.getLogger("cadre.tools")

T = TypeVar("T")

_PAUSES = (0.2, 0.5, 1.0, 2.0)


class Executor:
    """Handles the deliveries of all tools of a process."""

    def __init__(
        self,
        effects: Effects,
        bus: Bus,
        blobs: Blobs,
        in_hand: InHand,
        marks: Marks,
        clock: Clock | None = None,
    ) -> None:
        self._effects = effects
        self._bus = bus
        self._blobs = blobs
        self._in_hand = in_hand
        self._clock = clock or SystemClock()
        self._trials = Trials(marks, self._clock)
        self.invocations = Invocations()

    async def handle(self, tool: AnyTool, delivery: Delivery) -> None:
        """Acks once the result is in the run's inbox. Raises RetryableError: deliver again."""
        tree = delivery.address.tree
        try:
            why = await self._trials.hear(delivery, tree, lambda: self._handle(tool, delivery))
            if why is not None:
                await self._refuse(delivery, why)
                await self._trials.acquit(delivery, tree)
        except AtWorkElsewhere as error:
            # Without a word to the queue: the other one settles the message, or dies and it is delivered again.
            log.info("%s left alone: %s", delivery.subject, error)

    async def _handle(self, tool: AnyTool, delivery: Delivery) -> None:
        try:
            await self._serve(tool, delivery)
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)
        except TerminalError as error:
            await self._refuse(delivery, str(error))

    async def _serve(self, tool: AnyTool, delivery: Delivery) -> None:
        call = await unpack_call(delivery.data, self._blobs)
        if call.tool != tool.name:
            raise UnreadableMessage(f"a call of {call.tool!r} in the queue of {tool.name!r}")
        sender = Topology.sender(delivery.subject)
        if why := misplaced(call, delivery.subject) or forged_call(call, sender):
            raise UnreadableMessage(why)
        result = await self._result(tool, call, delivery)
        if result is not None:
            await _insist(lambda: self._bus.send(result, tool.name, to=call.agent), f"sending {result.id}")
        await delivery.ack()

    async def _refuse(self, delivery: Delivery, reason: str) -> None:
        """Makes the message a dead letter, and tells the run that its call will not be answered otherwise."""
        log.warning("%s given up: %s", delivery.subject, reason)
        tool, agent, tree, call = delivery.subject.split(".")[-4:]
        run, *place = call.rsplit("_", 2)
        if len(place) == 2:
            result = ToolResult(
                id=result_id(call),
                tree=tree,
                run=run,
                at=self._clock.now(),
                call=call,
                tool=tool,
                error=ErrorInfo(
                    "Poisoned", cut_error(f"the call of tool {tool!r} cannot be served: {reason}")
                ),
                executor=self._in_hand.instance,
            )
            await self._bus.send(await self._what_came_of(result), tool, to=agent)
        await delivery.term(reason)

    async def _what_came_of(self, refusal: ToolResult) -> ToolResult:
        """The result that was kept before somebody died of telling it; else the refusal, kept from now on."""
        try:
            effect = await self._effects.read(refusal.tree, refusal.call)
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
        if tool.card.read_only:
            return await self._run(tool, call, delivery.deliveries)
        claim = EffectClaim(
            id=f"{call.id}:claim",
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call.id,
            executor=self._in_hand.instance,
            call_seq=delivery.seq,
        )
        with self._in_hand.hold(call.id):
            effect = await _insist(lambda: self._claim(claim), f"claiming {call.id}")
            if effect.result is None and effect.claim == claim:
                return await self._settle(effect, await self._run(tool, call, delivery.deliveries))
        if effect.result is None:
            if effect.claim.call_seq != delivery.seq and not delivery.retried:
                # The call was published twice. Its first message is un-acked: whoever holds it answers.
                log.info("call %s is in work as message %d: dropped", call.id, effect.claim.call_seq)
                return None
            effect = await self._in_hand.left(tool.name, effect)
        if effect.result is not None:
            log.info("call %s has its result: sent again", call.id)
            return effect.result
        return await self._settle(effect, await self._after_a_death(tool, call, delivery, effect))

    async def _after_a_death(
        self, tool: AnyTool, call: ToolCall, delivery: Delivery, effect: Effect
    ) -> ToolResult:
        if tool.card.idempotent:
            return await self._run(tool, call, delivery.deliveries)
        text = (
            f"outcome unknown: executor {effect.claim.executor} stopped while it ran tool {tool.name!r};"
            " the tool may or may not have done its work, and was not run again"
        )
        return await self._answer(call, Outcome(error=ErrorInfo("Interrupted", text)), self._clock.now())

    async def _claim(self, claim: EffectClaim) -> Effect:
        """Ours, or that of whoever was first."""
        try:
            return Effect(claim, await self._effects.claim(claim), None)
        except (Fenced, OutcomeUnknown) as error:
            # After a lost answer the claim may well be ours: then nobody has begun yet.
            found = await self._effects.read(claim.tree, claim.call)
            if found is None:
                raise OutcomeUnknown(f"the claim of {claim.call}", error) from error
            return found

    async def _settle(self, effect: Effect, result: ToolResult) -> ToolResult:
        """Stores the result, or returns the one that was stored before it."""
        settled = EffectResult(
            id=f"{result.call}:effect",
            tree=result.tree,
            run=result.run,
            at=self._clock.now(),
            claim=effect.claim,
            claim_seq=effect.seq,
            result=result,
        )

        async def store() -> ToolResult:
            try:
                await self._effects.settle(settled)
            except Fenced as error:
                found = await self._effects.read(result.tree, result.call)
                if found is None:
                    return result  # claim and run were removed: nobody is left to mind whose result this is
                if found.result is None:
                    raise OutcomeUnknown(f"the result of {result.call}", error) from error
                return found.result
            return result

        return await _insist(store, f"storing the result of {result.call}")

    async def _run(self, tool: AnyTool, call: ToolCall, deliveries: int) -> ToolResult:
        unwanted = self._unwanted(call)
        if unwanted is not None:
            return await self._answer(call, Outcome(error=unwanted), self._clock.now())
        started = self._clock.now()
        return await self._answer(call, await self.invocations.run(tool, call, deliveries), started)

    def _unwanted(self, call: ToolCall) -> ErrorInfo | None:
        """Why the call need not begin any more."""
        if call.deadline is not None and self._clock.now() >= call.deadline:
            return ErrorInfo(
                "DeadlineExceeded", f"tool {call.tool!r} was not run: its time had passed before"
            )
        if self.invocations.is_ended(call):
            return ErrorInfo("Cancelled", f"tool {call.tool!r} was not run: its run has ended")
        return None

    async def _answer(self, call: ToolCall, outcome: Outcome, started: float) -> ToolResult:
        for file in outcome.files:
            await _insist(functools.partial(self._blobs.put, file.data), f"storing a file of {call.id}")
        output, blob = outcome.output, None
        whole = oversized(output, call.output_chars)
        if whole is not None:
            blob = await _insist(lambda: self._blobs.put(whole), f"storing the output of {call.id}")
            output = cut_to_read(whole, blob, call.output_chars)
        return ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call.id,
            tool=call.tool,
            output=output,
            error=outcome.error,
            blob=blob,
            files=[file.info for file in outcome.files] if blob else [],
            blob_form="json" if blob and not isinstance(outcome.output, str) else "text",
            executor=self._in_hand.instance,
            started_at=started,
        )


async def _insist(operation: Callable[[], Awaitable[T]], doing: str) -> T:
    """Tries until it works: what a tool has done once cannot be had again by starting over."""
    tries = 0
    while True:
        try:
            return await operation()
        except RetryableError as error:
            pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
            tries += 1
            log.warning("%s: %s; trying again in %g s", doing, error, pause)
            await asyncio.sleep(pause)
