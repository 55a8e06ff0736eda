"""SIGTERM to every process in turn while runs go on: none fails, no effect happens twice, no one is turned away."""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from chaos import effects
from chaos.campaign import collect
from chaos.crew import Crew, groups
from chaos.evidence import Evidence
from chaos.load import Load, Refusal
from chaos.strikes import Strikes
from chaos.tracers import TRACERS
from chaos.verdict import violations
from harness.patience import patience

RESTARTED = groups(others=0)
"""A service is restarted alike no matter what the kind of its agent."""


class Window(NamedTuple):
    """From a process's SIGTERM until the one in its place is ready; times are those of time.monotonic."""

    began: float
    ended: float

    def sees(self, refusal: Refusal) -> bool:
        return refusal.ended >= self.began and refusal.began <= self.ended


async def roll(folder: Path) -> tuple[Evidence, dict[str, Window]]:
    """Restarts the services, up to three at a time, the replicas of each one after the other: reports what is left, and
    when each process was replaced."""
    replaced: dict[str, Window] = {}
    with Crew(folder, RESTARTED) as crew:
        load = Load(crew.gateway_url, "rolling", mixed=False)
        strikes, enough = Strikes(crew), asyncio.Event()
        submitting = asyncio.create_task(load.submit_until(enough))
        at_once = asyncio.Semaphore(3)

        async def roll_one(names: tuple[str, ...]) -> None:
            async with at_once:
                for name in names:
                    began = time.monotonic()
                    await strikes.restart((name,))
                    replaced[name] = Window(began, time.monotonic())

        await asyncio.gather(*(roll_one(names) for names in RESTARTED.values() if names != ("nats",)))
        enough.set()
        await submitting
        await load.all_ended(patience(120))
        return await collect(crew, load, strikes), replaced


@pytest.mark.timeout(400)
def test_every_service_is_restarted_under_load(tmp_path: Path) -> None:
    evidence, replaced = asyncio.run(roll(tmp_path))
    assert violations(evidence) == []
    assert replaced.keys() == {name for names in RESTARTED.values() for name in names} - {"nats"}
    # A tracer yields to everybody on a busy machine: what it has not exported in its time another one does.
    unfinished = {strike.victim for strike in evidence.strikes if strike.status != 0} - set(TRACERS)
    assert unfinished == set()
    assert effects.interrupted(evidence) == {}, "an executor that is told to stop lets its calls finish"
    assert len(evidence.orders) > 20
    untimely = [
        refusal for order in evidence.orders for refusal in order.refusals if not replaced["gateway"].sees(refusal)
    ]
    assert untimely == [], (untimely, replaced["gateway"])
