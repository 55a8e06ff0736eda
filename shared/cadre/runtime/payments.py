"""Pays what a run owes the world: sends messages, sets timers, withdraws calls."""

import asyncio
from collections.abc import Awaitable

import msgspec

from cadre.engine.commands import CallModel, Command, Revoke, Send, SetTimer
from cadre.engine.context.observation import observation_of
from cadre.engine.work_summary import work_of
from cadre.ports import Bus, Journal
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Report, RunState
from cadre.protocol.tagged import for_people
from cadre.runtime.pinned_prompts import PinnedPrompts
from cadre.runtime.run_cache import read_run

SHORT_WAIT_SECONDS = 1.0
"""Up to this a worker waits itself: message schedules are no use below their tick."""

ANSWERED: tuple[RunState, ...] = ("success", "max_steps_error")
"""The ends of a run that come with an answer."""


class Payments:
    """Pays for the runs of one agent. Paying twice is harmless: ids are derived, and receivers know them."""

    def __init__(self, journal: Journal, bus: Bus, prompts: PinnedPrompts, agent: str) -> None:
        self._journal = journal
        self._bus = bus
        self._prompts = prompts
        self._agent = agent

    async def pay(self, commands: list[Command]) -> SetTimer | None:
        """Pays all commands but model calls; returns the timer that is too short for a schedule.

        Raises RetryableError: pay again.
        """
        short: SetTimer | None = None
        payments: list[Awaitable[object]] = []
        for command in commands:
            match command:
                case Send():
                    payments.append(self._send(command))
                case SetTimer() if command.cause is not None and _seconds(command) <= SHORT_WAIT_SECONDS:
                    short = command
                case SetTimer():
                    payments.append(self._bus.schedule(command.timer, self._agent, command.due))
                case Revoke():
                    payments.append(self._bus.revoke(command.effect(self._agent)))
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
