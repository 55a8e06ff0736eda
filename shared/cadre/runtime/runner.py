"""The shell around the pure loop: journal a record, and pay what that made owed: messages, timers, withdrawn calls,
and the model call, paid in place."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from cadre.delivery.retry import retry
from cadre.engine.chat import as_text, in_summary, messages_of
from cadre.engine.commands import CallModel, Command, Revoke, Send, SetTimer
from cadre.engine.context.text_size import clip, observation_of
from cadre.journal.arrivals import ModelReplied, Poisoned, Toolset
from cadre.journal.run import AnswerStep, Phase, Run, Step, TaskStep
from cadre.loop.owed import owed
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Record, Report, RunState, TimerFired
from cadre.protocol.tagged import for_people
from cadre.runtime.journaling import Journaling, NewEntry, TakenOver, World
from cadre.runtime.model_calls import ModelCalls, Needless, attempt_id, is_in_flight
from cadre.runtime.run_cache import CachedRun, PinnedPrompts, read_run
from cadre.spec.agent import AgentSpec
from cadre.spec.prices import Prices

log = logging.getLogger("cadre.runner")

NO_PRICES = Prices()

KNOWN_SECONDS = 2.0
"""The greatest age of the knowledge that a model call is this worker's when it is sent. A worker gives a sign of life
each second, and is taken for dead after an ack wait (4 s) without one: within this time no other worker can have newly
taken over the call."""


class Runner:
    """Takes the runs of one agent forward: asks the model, and pays what the runs owe once `journaling` has their
    entries."""

    def __init__(
        self,
        spec: AgentSpec,
        prompts: PinnedPrompts,
        world: World,
        toolset: Callable[[], Toolset],
        prices: Prices = NO_PRICES,
        *,
        journaling: type[Journaling] = Journaling,
    ) -> None:
        self._clock = world.clock
        self._payments = Payments(world, prompts, spec.name)
        self._calls = ModelCalls(world, spec.name, prices)
        self.journaling = journaling(spec, prompts, world, toolset, self._calls.abort)
        self.accounts_for = self.journaling.cache.accounts_for
        self.on_ask: Callable[[str], None] = lambda run: None
        """Called with the run's id when a model is about to be asked for it."""

    async def handle(self, record: Record, deliveries: int = 1, seq: int = 0, slot: int = 0) -> bool:
        """Account for one inbox record; return True when it may be acked, False when it is another worker's now.

        `seq` is where the record lies in the stream that holds the journal too, `slot` the queue that it came from.
        Raises Elsewhere, and RetryableError when the bus fails: call it again, counting one delivery more.
        """
        try:
            commands = await self.journaling.account(record, deliveries, seq, slot)
            await self._settle(record.id, record.tree, record.run, commands)
        except TakenOver:
            log.info("%s is in other hands", record.id)
            return False
        return True

    async def account_early(self, record: Record, slot: int = 0) -> None:
        """Account for a record that is in the queue still, and pay what follows but for a model call, as a worker that
        dies behind it. Raises Elsewhere, RetryableError."""
        try:
            await self._payments.pay(await self.journaling.account(record, deliveries=1, seq=0, slot=slot))
        except TakenOver:
            log.info("%s is in other hands", record.id)

    async def poison(self, what: Poisoned, tree: str, run: str) -> None:
        """End the run whose record no worker survives."""
        await self._payments.pay(await self.journaling.poison(what, tree, run))

    def interrupt(self, what: str) -> None:
        """Drop the model call that this process may be making: of a run that has ended, by the run's id, or one call
        that a message has made needless, by its own id."""
        self._calls.abort(what)

    def is_asking(self, run: str) -> bool:
        """Return True if this process asks the model for the run."""
        return self._calls.is_open(run)

    # --- pay

    async def _settle(self, record_id: str, tree: str, run_id: str, commands: list[Command]) -> None:
        """Pays, and goes on for as long as what was paid has an answer in this very process."""
        while True:
            waiting = await self._payments.pay(commands)
            if waiting is not None:
                await self._clock.sleep(max(0.0, waiting.due - self._clock.now()))
                commands = await self._goes_off(record_id, waiting.timer)
                continue
            mine = next((c for c in commands if type(c) is CallModel and c.cause == record_id), None)
            if mine is None:
                return
            commands = await self._ask(record_id, tree, run_id, mine)

    async def _goes_off(self, record_id: str, timer: TimerFired) -> list[Command]:
        def decide(cached: CachedRun) -> NewEntry | list[Command]:
            if timer.id in cached.run.seen:
                raise TakenOver
            return NewEntry(timer, cause=timer.id)

        return await self.journaling.add_entry(record_id, timer.tree, timer.run, decide)

    # --- the model call

    async def _ask(self, record_id: str, tree: str, run_id: str, command: CallModel) -> list[Command]:
        """Make the call and journals what it came to, unless the run has moved on without it."""
        async with self.journaling.cache.locked(tree, run_id) as cached:
            if not is_in_flight(cached.run, command):
                return self._moved_on(cached.run, command, record_id)
            request = cached.transcript.request(cached.run, command.purpose)

        async def confirm() -> None:
            # A process that stood still, or waited for its turn, may have been taken for dead meanwhile.
            async with self.journaling.cache.locked(tree, run_id, within=KNOWN_SECONDS) as now:
                if not is_in_flight(now.run, command):
                    raise Needless

        self.on_ask(run_id)
        outcome = await self._calls.make(cached.run, command, request, confirm)
        if outcome is None:
            log.info("model call of %s dropped: it is said to be needless", run_id)
            self.journaling.cache.forget(cached)
        call = attempt_id(run_id, command)
        late = False

        def decide(cached: CachedRun) -> NewEntry | list[Command]:
            nonlocal late
            if outcome is not None and is_in_flight(cached.run, command):
                return NewEntry(outcome, outcome.id if isinstance(outcome, TimerFired) else call)
            bought = isinstance(outcome, ModelReplied) and outcome.usage.total_tokens
            if outcome is not None and bought and record_id in cached.run.seen and call not in cached.run.seen:
                late = True  # the run accounts for it, and nothing follows from it
                # 0 is no attempt: the run may be at the next step by now, in an attempt of this very number.
                return NewEntry(msgspec.structs.replace(outcome, attempt=0), call)
            return self._moved_on(cached.run, command, record_id)

        commands = await self.journaling.add_entry(record_id, tree, run_id, decide)
        return await self.journaling.add_entry(record_id, tree, run_id, decide) if late else commands

    def _moved_on(self, run: Run, command: CallModel, record_id: str) -> list[Command]:
        """Return what is left to pay by a worker whose model call the run did not wait for.

        If the run has ended, its finisher may have crashed before it sent the final messages: they are owed again, as
        this record may be the last to trigger them. A model call that belongs to another record by now keeps the run
        alive by that one, and this record may go. Else another worker has this one, or the state is that of a replica
        which lags behind the record and knows of an earlier call: raises TakenOver.
        """
        if run.phase is Phase.DONE:
            return owed(run)
        if record_id in run.seen and run.model is not None and run.model.cause != command.cause:
            return self.journaling.left_owed(run, record_id)
        raise TakenOver


SHORT_WAIT_SECONDS = 1.0
"""Up to this a worker waits itself: message schedules are no use below their tick."""

ANSWERED: tuple[RunState, ...] = ("success", "max_steps_error")
"""The ends of a run that come with an answer."""


class Payments:
    """Pays for the runs of one agent. Paying twice is harmless: ids are derived, and receivers know them."""

    def __init__(self, world: World, prompts: PinnedPrompts, agent: str) -> None:
        self._journal = world.journal
        self._bus = world.bus
        self._sleep = world.clock.sleep
        self._prompts = prompts
        self._agent = agent

    async def pay(self, commands: list[Command]) -> SetTimer | None:
        """Pay all commands but model calls, each as often as it takes; return the timer that is too short for a
        schedule."""
        short: SetTimer | None = None
        payments: list[Awaitable[object]] = []
        for command in commands:
            match command:
                case Send():
                    payments.append(retry(partial(self._send, command), self._sleep))
                case SetTimer() if command.cause is not None and _seconds(command) <= SHORT_WAIT_SECONDS:
                    short = command
                case SetTimer():
                    set_timer = partial(self._bus.schedule, command.timer, self._agent, command.due)
                    payments.append(retry(set_timer, self._sleep))
                case Revoke():
                    payments.append(retry(partial(self._bus.revoke, command.effect(self._agent)), self._sleep))
                case CallModel():
                    pass
        if len(payments) == 1:
            await payments[0]
        elif payments:
            await asyncio.gather(*payments)
        return short

    async def _send(self, command: Send) -> None:
        message = command.message
        if isinstance(message, Report):
            prompts = await self._prompts.find(command.prompts)
            text = _report_text(message, prompts)
            if command.with_summary and message.state in ANSWERED:
                work = work_of(await read_run(self._journal, message.child), prompts)
                text = f"{text}\n\n{prompts.managed_summary(message.agent, work)}"
            message = msgspec.structs.replace(message, text=text)
        await self._bus.send(message, self._agent, to=command.to)


def _report_text(report: Report, prompts: Prompts) -> str:
    if report.state == "max_steps_error" and report.error is not None:
        # What follows may be a guess: the manager is to know why.
        said = prompts.managed_report(report.agent, observation_of(for_people(report.output)))
        return f"{report.error.message}\n{said}"
    if report.state in ANSWERED:
        return prompts.managed_report(report.agent, observation_of(for_people(report.output)))
    return report.error.message if report.error else report.state


def _seconds(timer: SetTimer) -> float:
    return timer.due - timer.began


_LONGEST = 2_000
"""Characters of a message: a manager reads a whole report at once, and may have several members."""


def work_of(run: Run, prompts: Prompts) -> list[str]:
    """Return the texts of the messages, the task first; the answer is in the report."""
    messages = [
        message
        for step in run.steps
        if not isinstance(step, AnswerStep)
        for message in in_summary(step, messages_of(_plain(step), run, prompts))
    ]
    return [clip(_text(message["content"]), _LONGEST) for message in as_text(messages)]


def _plain(step: Step) -> Step:
    """A manager knows how a task is handed to a member."""
    return msgspec.structs.replace(step, delegated=False) if isinstance(step, TaskStep) else step


def _text(content: object) -> str:
    """Without images, which a report cannot carry."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return observation_of(content)
