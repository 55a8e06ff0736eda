"""One call of a tool in the executor: no matter what the tool does is an outcome that says so."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cadre.delivery.fair_limiter import FairLimiter
from cadre.protocol.messages import ErrorInfo, ToolCall
from cadre.protocol.tagged import MAX_LEVELS
from cadre.runtime.invocation import InvocationOutcome, Invocations
from cadre.tool import InvalidArguments, ToolContext, tool
from cadre.tools.loading import AnyTool
from harness.texts import holds

PATIENCE = 30.0


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("no words")


class MuteRefusal(InvalidArguments):
    def __str__(self) -> str:
        raise AttributeError("no words")


def fails(error: Callable[[], BaseException], *, is_async: bool) -> AnyTool:
    """A tool that raises it."""

    def in_thread() -> None:
        """Fails."""
        raise error()

    async def in_loop() -> None:
        """Fails."""
        raise error()

    return tool(in_loop) if is_async else tool(in_thread)


def call_of(made: AnyTool) -> ToolCall:
    return ToolCall(id="r_1_0", tree="r", run="r", at=0.0, agent="boss", tool=made.name, arguments={})


async def outcome_of(made: AnyTool, invocations: Invocations | None = None) -> InvocationOutcome:
    running = (invocations or Invocations()).run(made, call_of(made), 1)
    return await asyncio.wait_for(running, PATIENCE)


def error_of(outcome: InvocationOutcome) -> ErrorInfo:
    assert outcome.error is not None
    return outcome.error


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_without_a_text_is_told_all_the_same(is_async: bool) -> None:
    error = error_of(await outcome_of(fails(Mute, is_async=is_async)))
    assert error.type == "AgentToolExecutionError"
    assert holds(error.message, ": Mute: ", "AttributeError")
    error = error_of(await outcome_of(fails(lambda: MuteRefusal("x"), is_async=is_async)))
    assert error.type == "AgentToolCallError"
    assert "AttributeError" in error.message


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_that_was_cancelled_by_nobody_but_itself_has_failed(is_async: bool) -> None:
    error = error_of(await outcome_of(fails(lambda: asyncio.CancelledError("lost"), is_async=is_async)))
    assert error.type == "AgentToolExecutionError"
    assert error.message.endswith(": CancelledError: lost")


async def test_a_tool_that_was_interrupted_says_so() -> None:
    begun = asyncio.Event()

    @tool
    async def gives_up(context: ToolContext) -> None:
        """Gives up when asked to."""
        begun.set()
        await context.cancelled.wait_async()
        raise asyncio.CancelledError

    invocations = Invocations()
    running = asyncio.create_task(outcome_of(gives_up, invocations))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    invocations.interrupt("r")
    assert error_of(await running).type == "Interrupted"


async def test_a_call_that_leaves_things_in_order_outlives_the_end_of_its_run() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool
    async def tidies() -> str:
        """Tidies up."""
        begun.set()
        await go.wait()
        return "tidy"

    invocations = Invocations()
    plain = call_of(tidies)
    cleanup = msgspec.structs.replace(plain, cleanup=True)
    running = asyncio.create_task(invocations.run(tidies, cleanup, 1))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    invocations.interrupt("r")
    assert invocations.is_ended(plain)
    assert not invocations.is_ended(cleanup)
    go.set()
    assert (await running).output == "tidy"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_at_work_beyond_its_time_keeps_its_slot(is_async: bool) -> None:
    over, begun, ended = threading.Event(), threading.Event(), asyncio.Event()

    @tool(timeout=0.2, concurrency=1)
    def in_thread() -> None:
        """Heeds nothing."""
        begun.set()
        over.wait(PATIENCE)
        raise Mute

    @tool(timeout=0.2, concurrency=1)
    async def in_loop() -> None:
        """Heeds nothing."""
        begun.set()
        while not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()

    made: AnyTool = in_loop if is_async else in_thread
    invocations, limiter, following = Invocations(), FairLimiter(1), asyncio.Event()
    invocations.limiters[made.name] = limiter

    async def follow() -> None:
        async with limiter.acquire("r"):
            following.set()

    async with limiter.acquire("r"):
        next_one = asyncio.create_task(follow())
        assert "TimeoutError: no result within 0.2 s" in error_of(await outcome_of(made, invocations)).message
    assert begun.is_set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not following.is_set()
    over.set()
    ended.set()
    await asyncio.wait_for(next_one, PATIENCE)


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 970, 5000])
async def test_a_result_nested_too_deeply_is_given_as_text(levels: int) -> None:
    @tool
    async def nest() -> Any:
        """Nests."""
        value: Any = "core"
        for _ in range(levels):
            value = [value]
        return value

    outcome = await outcome_of(nest)
    assert outcome.error is None
    assert outcome.output.startswith("[[")
    assert outcome.note == "" or "200" in outcome.note


def returning(value: Any, hint: Any) -> AnyTool:
    """A tool that returns the value and promises the hint."""

    def give() -> Any:
        """Gives."""
        return value

    give.__annotations__["return"] = hint
    return tool(give)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (5, int, 5),
        ("5", int, 5),
        (5.0, int, 5.0),
        (5, str, "5"),
        ("[1, 2]", list[int], [1, 2]),
        ("five", Any, "five"),
        (None, str | None, None),
        ({"a": ["1", 2, "3.0"]}, dict[str, list[int]], {"a": [1, 2, 3.0]}),
        ({"a": ["1", {"b": "true"}]}, dict[str, list[int | dict[str, bool]]], {"a": [1, {"b": True}]}),
        ([1, 2.5], list[str], ["1", "2.5"]),
        ({"rows": '[{"a": "1"}]'}, dict[str, list[dict[str, int]]], {"rows": [{"a": 1}]}),
    ],
)
async def test_a_result_is_what_the_hint_says(value: Any, hint: Any, expected: Any) -> None:
    outcome = await outcome_of(returning(value, hint))
    assert (outcome.output, outcome.error, outcome.note) == (expected, None, "")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("five", int),
        (None, str),
        ({"a": "b"}, dict[str, int]),
        (2.5, int),
        ({"status": "done", "rows": ["x" * 5000]}, str | None),
        ([{"id": 1}], dict[str, int]),
        ("no", bool),
    ],
)
async def test_a_result_that_is_not_what_the_hint_says_is_given_whole_with_a_note(value: Any, hint: Any) -> None:
    outcome = await outcome_of(returning(value, hint))
    assert (outcome.output, outcome.error) == (value, None)
    assert "return hint" in outcome.note


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_a_tool_that_has_returned_has_not_failed() -> None:
    for value in (Silent(), {"a": Silent()}, {(1, 2): Silent()}, [2**70], object()):
        outcome = await outcome_of(returning(value, dict[str, int]))
        assert outcome.error is None
