"""Makes the model calls of one agent: each can be aborted, and none is tried twice here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from cadre.engine.commands import CallModel
from cadre.engine.model_request import ModelRequest, asked_model
from cadre.engine.timers import deadline_fired
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.journal.arrivals import ModelFailed, ModelReplied
from cadre.journal.run import ModelInFlight, Run
from cadre.ports import Confirm, TurnTakingModel
from cadre.protocol.deltas import OF_ANSWER, Delta, StreamChunk
from cadre.protocol.messages import TimerFired
from cadre.protocol.topology import model_call_id
from cadre.spec.names import FINAL_ANSWER
from cadre.spec.prices import Prices, priced

if TYPE_CHECKING:
    from cadre.runtime.journaling import World

ModelOutcome = ModelReplied | ModelFailed | TimerFired
"""The outcome of a call; the timer is that of the run's deadline."""

_MARK = ":model:"


def attempt_id(run: str, call: CallModel | ModelInFlight) -> str:
    """Return the id of this attempt at a model call of the run."""
    return model_call_id(run, call.purpose, call.step, call.attempt)


def is_in_flight(run: Run, command: CallModel) -> bool:
    """Return whether the run awaits the outcome of this very call."""
    model = run.model
    return (
        model is not None
        and model.attempt == command.attempt
        and model.step == command.step
        and model.purpose == command.purpose
        and model.cause == command.cause
    )


class Needless(Exception):
    """The run has gone on without the call: it must not be made."""


class _Call:
    """A call in flight, made within its caller's task: a separate task would cost more than the rest."""

    def __init__(self, task: asyncio.Task[object], identity: str) -> None:
        self.task = task
        self.identity = identity
        self.aborted = False
        self.late = False
        """It was aborted because the run's deadline has come."""


class ModelCalls:
    """Asks the model of one agent, for any number of runs at once."""

    def __init__(self, world: World, agent: str, prices: Prices) -> None:
        self._model = world.model
        # Asked once: a check against a protocol costs more than all else that is done here for a call.
        self._in_turn = world.model if isinstance(world.model, TurnTakingModel) else None
        self._bus = world.bus
        self._clock = world.clock
        self._worker = world.worker
        self._agent = agent
        self._prices = prices
        self._open: dict[str, _Call] = {}

    def is_open(self, run: str) -> bool:
        """Return whether this process asks the model for the run."""
        return run in self._open

    def abort(self, what: str) -> None:
        """Drop a call that this process is making, given by its own id or by the id of its run."""
        run, mark, _ = what.partition(_MARK)
        call = self._open.get(run)
        if call is not None and not call.aborted and (not mark or call.identity == what):
            _drop(call)

    async def make(self, run: Run, command: CallModel, request: ModelRequest, confirm: Confirm) -> ModelOutcome | None:
        """Call the model once `confirm` allows it; return the outcome as an arrival, or None when the call was aborted
        or is Needless.

        At the run's deadline its timer is the outcome: the record of the deadline may wait for a place behind calls
        that hang, this one among them.
        """
        task = asyncio.current_task()
        assert task is not None
        call = self._open[run.id] = _Call(task, attempt_id(run.id, command))
        late = deadline_fired(run) if run.deadline is not None else None
        alarm = self._alarm(call, late.at) if late is not None else None
        try:
            return await self._complete(run, command, request, confirm)
        except Needless:
            return None
        except asyncio.CancelledError:
            # An abort ends the call alone; any other cancellation means the whole task.
            if call.aborted and task.uncancel() == 0:
                return late if call.late else None
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
            if self._open.get(run.id) is call:
                del self._open[run.id]

    def _alarm(self, call: _Call, deadline: float) -> asyncio.TimerHandle:
        def go_off() -> None:
            if not call.aborted:
                call.late = True
                _drop(call)

        return asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock.now()), go_off)

    async def _complete(
        self, run: Run, command: CallModel, request: ModelRequest, confirm: Confirm
    ) -> ModelReplied | ModelFailed:
        asked = asked_model(run) if run.spec is not None else None
        started = self._clock.now()
        pieces = chunks = 0
        answer: AnswerPieces | None = None

        async def on_text(text: str, *, of_answer: bool = False, chunk: dict[str, Any] | None = None) -> None:
            nonlocal pieces, answer, chunks
            if chunk is not None:
                chunks += 1
                await self._bus.tell(run.tree, _chunk(run, command, chunks, chunk))
                return
            delta = Delta(
                run=run.id,
                agent=self._agent,
                step=command.step,
                attempt=command.attempt,
                text=text,
                seq=pieces + 1,
                purpose=command.purpose,
            )
            if of_answer:
                answer = answer or AnswerPieces(run, request)
                if (told := answer.next(delta)) is not None:
                    await self._bus.tell(run.tree, told)
                return
            pieces += 1
            await self._bus.tell(run.tree, delta)

        try:
            if self._in_turn is not None:
                reply = await self._in_turn.complete_in_turn(request, on_text, confirm)
            else:
                await confirm()
                reply = await self._model.complete(request, on_text)
        except ModelUnavailable as error:
            return ModelFailed(
                attempt=command.attempt,
                message=error.message,
                status=error.status,
                retry_after=error.retry_after,
                rate_limited=error.rate_limited,
            )
        except ModelRefused as error:
            return ModelFailed(
                attempt=command.attempt,
                message=error.message,
                status=error.status,
                final=True,
                too_long=error.too_long,
                about_form=error.about_form,
                context=error.context,
                tokens=error.tokens,
            )
        if chunks:
            await self._bus.tell(run.tree, _chunk(run, command, chunks + 1, None))
        name = asked.name if asked else ""
        # An endpoint may answer under a longer name (with a date) than it was asked by.
        price = (asked and asked.price) or self._prices.of(reply.model) or self._prices.of(name)
        return ModelReplied(
            attempt=command.attempt,
            content=reply.content,
            calls=reply.calls,
            usage=priced(reply.usage, price, reply.cached_tokens) if price is not None else reply.usage,
            unpriced=price is None,
            model=reply.model,
            finish_reason=reply.finish_reason,
            items=reply.items,
            cached_tokens=reply.cached_tokens,
            reasoning_tokens=reply.reasoning_tokens,
            response=reply.response,
            first_seconds=reply.first_seconds,
            server=reply.server,
            worker=self._worker,
            context=reply.context,
            endpoint=reply.endpoint if reply.items or reply.learned else "",
            learned=reply.learned,
            raw=reply.raw,
            seconds=round(self._clock.now() - started, 6),
        )


def _chunk(run: Run, command: CallModel, seq: int, data: dict[str, Any] | None) -> StreamChunk:
    return StreamChunk(run=run.id, step=command.step, attempt=command.attempt, seq=seq, data=data)


def _drop(call: _Call) -> None:
    call.aborted = True
    call.task.cancel()


class AnswerPieces:
    """Makes the deltas of one answer, where nothing but the loss of the model call can make it another one: not where
    it must fit a schema or pass checks."""

    def __init__(self, run: Run, request: ModelRequest) -> None:
        spec = run.spec
        offered = any(tool["function"]["name"] == FINAL_ANSWER for tool in request.tools)
        self._is_told = (
            offered and run.parent is None and spec is not None and spec.output_schema is None and not spec.checks
        )
        self._variables = tuple(run.task.inputs) if run.task is not None else ()
        self._seq = 0
        self._held = ""

    def next(self, piece: Delta) -> Delta | None:
        """Return the delta to send for the piece; None while there is nothing to send."""
        if not self._is_told:
            return None
        self._held += piece.text
        # The name of a variable alone stands for its value.
        if self._seq == 0 and any(name.startswith(self._held) for name in self._variables):
            return None
        self._seq += 1
        text, self._held = self._held, ""
        return msgspec.structs.replace(piece, text=text, seq=self._seq, purpose=OF_ANSWER)
