"""Calls of a program's runs, answered by lives that begin, die and are given up."""

from typing import Any

import pytest

from cadre.adapters.program.address import ProgramAddress
from cadre.adapters.program.runner import MOST_DEATHS, ProgramRunner, ProgramTerms
from cadre.errors import RetryableError
from cadre.protocol.messages import CodeCall, CodeFinished
from cadre.spec.agent import AgentSpec

CALL = CodeCall(
    id="r:program:0",
    tree="r",
    run="r",
    at=0.0,
    agent="trips",
    pool="program-trips",
    block="r:program",
    code="",
)


class Processes:
    """Processes that cannot begin at first, and die at once then."""

    def __init__(self, runner: ProgramRunner, failures: int) -> None:
        self.failures, self.begun = failures, 0
        self._runner = runner

    async def begin(self, life: str, order: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise RetryableError("no process")
        self.begun += 1
        self._runner.lost(life, "its process was killed by signal 9")

    def end(self, life: str) -> None:
        return None


@pytest.mark.parametrize("failures", [0, 2])
async def test_lives_that_cannot_begin_are_tried_again_and_those_that_die_are_counted(failures: int) -> None:
    none: Any = None

    class Clock:
        def now(self) -> float:
            return 1.0

    clock: Any = Clock()
    address = ProgramAddress(AgentSpec(name="trips", description="Books."))
    runner = ProgramRunner(address, none, clock, ProgramTerms("here", 60.0, 4, b"secret"))
    processes: Any = Processes(runner, failures)
    runner.processes = processes
    for _ in range(failures):
        with pytest.raises(RetryableError):
            await runner.answer(CALL)
    answer = await runner.answer(CALL)
    assert isinstance(answer, CodeFinished)
    assert answer.error is not None
    assert answer.error.code == "program-failed"
    assert processes.begun == MOST_DEATHS
    assert (runner.busy, runner.waiting) == (0, 0)
    runner.interrupt("r")
    assert await runner.answer(CALL) is None
    await address.close()
