"""Decides on ticks and renders the tasks of triggers away from the event loop, in a process with a bound in time."""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from cadre.automation.schedule_state import ScheduleState, decide
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError
from cadre_gateway.automation.evaluating import LENGTH, DecideTick, Evaluated, FillTask, framed

log = logging.getLogger("cadre.schedules")

EVALUATION_SECONDS = 10.0
"""Seconds that one evaluation may take. The most expensive template that passes takes a hundredth of it."""

MAX_TRIES = 3
"""Evaluations of one tick or message that may be ended; then it is given up."""

_answer = msgspec.json.Decoder(Evaluated)


class EvaluationEnded(Exception):
    """An evaluation had no end in time, or its process died; the text says which."""


@dataclass(eq=False)
class Evaluator:
    """One process, started when it is first needed and after each that was ended; requests come one after the other."""

    seconds: float = EVALUATION_SECONDS
    _process: Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def decide(self, state: ScheduleState, now: float, busy: bool, giving_up: str = "") -> ScheduleState:
        """Return the state after all ticks that are due, as `schedule_state.decide` does. Raises EvaluationEnded,
        but not with `giving_up`: nothing is rendered then."""
        if giving_up:
            return decide(state, now, busy, giving_up)
        found = (await self._ask(DecideTick(state, now, busy))).state
        assert found is not None
        return found

    async def task_for(self, spec: TriggerSpec, payload: bytes, message: str, subject: str) -> str:
        """Return the task for a message. Raises SpecError when it cannot be rendered, EvaluationEnded."""
        answer = await self._ask(FillTask(spec, bytes(payload), message, subject))
        if answer.failure:
            raise SpecError(answer.failure)
        return answer.task

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _ask(self, request: DecideTick | FillTask) -> Evaluated:
        async with self._turn, self._ended_unless_answered():
            if self._process is None or self._process.returncode is not None:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "cadre_gateway.automation.evaluating"), stdin=PIPE, stdout=PIPE
                )
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            async with asyncio.timeout(self.seconds):
                process.stdin.write(framed(request))
                await process.stdin.drain()
                (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                return _answer.decode(await process.stdout.readexactly(length))

    @asynccontextmanager
    async def _ended_unless_answered(self) -> AsyncIterator[None]:
        """End the process if no answer comes: what it says later would be taken for the next one."""
        try:
            yield
        except TimeoutError as error:
            await self._end()
            raise EvaluationEnded(f"its evaluation was ended after {self.seconds:g} s") from error
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError) as error:
            # What a pipe raises that the process has closed already depends on the event loop.
            await self._end()
            raise EvaluationEnded("the process that evaluated it died") from error
        except BaseException:
            await self._end()
            raise

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
