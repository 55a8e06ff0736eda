"""Calling tools: in the loop or in a thread, with a context, no matter what they raise."""

import asyncio
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import msgspec
import pytest

from cadre.tool import InvalidArguments, ToolContext, tool


async def test_async_functions_run_in_the_loop_and_plain_ones_in_a_thread() -> None:
    @tool
    async def in_loop() -> int:
        """Where."""
        return threading.get_ident()

    @tool
    def in_thread() -> int:
        """Where."""
        return threading.get_ident()

    assert await in_loop.call({}, ToolContext()) == threading.get_ident()
    assert await in_thread.call({}, ToolContext()) != threading.get_ident()


async def test_a_busy_plain_function_does_not_hold_up_the_loop() -> None:
    release = threading.Event()

    @tool
    def spin() -> int:
        """Spins until released, holding the interpreter as computing does."""
        rounds = 0
        while not release.is_set():
            rounds += 1
        return rounds

    running = asyncio.create_task(spin.call({}, ToolContext()))
    beats = [time.monotonic()]
    for _ in range(10):
        await asyncio.sleep(0.02)
        beats.append(time.monotonic())
    assert not running.done()
    assert max(after - before for before, after in pairwise(beats)) < 1.0
    release.set()
    assert await running > 0


async def test_the_context_is_injected_and_hidden() -> None:
    @tool
    async def charge(amount: int, ctx: ToolContext | None = None) -> str:
        """Charges.

        Args:
            amount: Euros.
            ctx: Not for the model.
        """
        assert ctx is not None
        ctx.progress("calling the bank")
        return f"{ctx.call_id} {ctx.run} {ctx.tree} {ctx.tool} {ctx.deliveries} {bool(ctx.cancelled)}"

    assert list(charge.card.input_schema["properties"]) == ["amount"]
    context = ToolContext(call_id="r_1_0", run="r", tree="r", tool="charge", deliveries=2)
    assert await charge.call({"amount": 1}, context) == "r_1_0 r r charge 2 False"
    with pytest.raises(InvalidArguments, match="no argument 'ctx'"):
        await charge.call({"amount": 1, "ctx": {}}, context)


async def test_cancellation_reaches_threads_and_tasks() -> None:
    @tool
    def blocks(ctx: ToolContext) -> bool:
        """Waits."""
        return ctx.cancelled.wait(10)

    @tool
    async def awaits(ctx: ToolContext) -> bool:
        """Waits."""
        await ctx.cancelled.wait_async()
        return ctx.cancelled.is_set()

    for each in (blocks, awaits):
        context = ToolContext()
        running = asyncio.create_task(each.call({}, context))
        await asyncio.sleep(0)
        context.cancelled.set()
        assert await asyncio.wait_for(running, 60) is True


@pytest.mark.parametrize("error", [ValueError("kaput"), StopIteration("end"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_function_raises_reaches_the_caller_as_an_exception(error: BaseException) -> None:
    def fail() -> None:
        """Fails."""
        raise error

    async def fail_in_loop() -> None:
        """Fails."""
        raise error

    for each in (tool(fail), tool(fail_in_loop)):
        with pytest.raises(Exception, match=r"kaput|StopIteration|SystemExit\(3\)|KeyboardInterrupt"):
            await each.call({}, ToolContext())


async def test_an_integer_may_be_written_with_a_point() -> None:
    @tool
    async def take(n: int, many: list[int], x: float, zoom: Literal[1, 2], y: float | None = None) -> Any:
        """Takes numbers."""
        return n, many, x, zoom, y

    taken = await take.call({"n": 5.0, "many": [1, 2.0], "x": 3.0, "zoom": 2.0, "y": 1e300}, ToolContext())
    assert repr(taken) == "(5, [1, 2], 3.0, 2, 1e+300)"
    for wrong in (5.5, "5", True, float("inf")):
        with pytest.raises(InvalidArguments, match="argument 'n': "):
            take.validate({"n": wrong, "many": [2.0], "x": 1, "zoom": 1})


@dataclass(frozen=True)
class Place:
    name: str
    zoom: int = 3


async def test_an_argument_has_its_defaults_as_if_it_had_been_constructed() -> None:
    @tool
    def look(places: list[Place]) -> list[Place]:
        """Looks."""
        return places

    returned = await look.call({"places": [{"name": "here"}]}, ToolContext())
    assert msgspec.to_builtins(returned) == [{"name": "here", "zoom": 3}]
