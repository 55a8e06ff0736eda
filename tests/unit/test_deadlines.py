"""Deadlines of one event loop behind one timer, in each loop that services run in."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from cadre.delivery.deadlines import Deadlines


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_each_expires_in_its_order_also_beside_one_that_is_due_at_once(run: Callable[[Any], None]) -> None:
    async def deadlines() -> None:
        open_ones, expired, last = Deadlines(), [], asyncio.Event()
        open_ones.add("first", 0.0, lambda: expired.append("first"))
        open_ones.add("third", 0.05, lambda: expired.append("third") or last.set())  # type: ignore[func-returns-value]
        open_ones.add("second", 0.01, lambda: expired.append("second"))
        open_ones.add("never", 0.02, lambda: expired.append("never"))
        open_ones.remove("never")
        await last.wait()
        assert expired == ["first", "second", "third"]

    run(deadlines())
