"""SIGTERM to every process in turn while runs go on: none fails, no effect happens twice, hardly anybody waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chaos import effects
from chaos.campaign import collect
from chaos.crew import GROUPS, Crew
from chaos.evidence import Evidence
from chaos.load import Load
from chaos.strikes import Strikes
from chaos.verdict import violations

ENDS_WITHIN = 120.0

PATIENCE = 1.0
"""Seconds that an accepted request itself may take, beyond the time in which there was no gateway to take it."""


async def roll(folder: Path) -> tuple[Evidence, dict[str, float]]:
    """What is left, and the seconds from each process's SIGTERM until the one in its place was ready."""
    took: dict[str, float] = {}
    with Crew(folder) as crew:
        load, strikes, enough = Load(crew.gateway_url, "rolling"), Strikes(crew), asyncio.Event()
        submitting = asyncio.create_task(load.submit_until(enough))
        for name in crew.names:
            if name != "nats":
                began = time.monotonic()
                await strikes.restart((name,))
                took[name] = time.monotonic() - began
        enough.set()
        await submitting
        await load.all_ended(ENDS_WITHIN)
        return await collect(crew, load, strikes), took


@pytest.mark.timeout(400)
def test_every_service_is_restarted_under_load(tmp_path: Path) -> None:
    evidence, took = asyncio.run(roll(tmp_path))
    assert violations(evidence) == []
    assert took.keys() == {name for names in GROUPS.values() for name in names} - {"nats"}
    assert [strike.victim for strike in evidence.strikes if strike.status != 0] == []
    assert effects.interrupted(evidence) == {}, "an executor that is told to stop lets its calls finish"
    assert len(evidence.orders) > 20
    longest = max(order.refused for order in evidence.orders)
    assert longest <= took["gateway"] + PATIENCE, (longest, took)
