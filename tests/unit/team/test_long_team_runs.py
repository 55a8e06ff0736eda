"""Tests of what a long run of a test team costs anyone who waits for it."""

from typing import Any

import pytest

from cadre import Agent, Limits, tool
from cadre.delivery.codec import decode
from cadre.testing import Team, answer, call, in_memory_deployment

STEPS = 60
WRITER = Agent(name="writer", description="Writes.", tools=["count_words"], limits=Limits(max_steps=STEPS + 1))


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


async def test_waiting_for_a_run_reads_no_entry_at_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(data: bytes, kind: type) -> Any:
        nonlocal read
        read += 1
        return decode(data, kind)

    monkeypatch.setattr(in_memory_deployment, "decode", counted)
    script = [*(call("count_words", text=f"one two {n}") for n in range(STEPS)), answer("counted")]
    async with Team([WRITER], [count_words], script) as team:
        run = await team.start("writer", "Count.")
        assert await run.result() == "counted"
        assert run.is_over
        during = read
        entries = len(team.journal(run.id))
    assert entries > 2 * STEPS
    assert during <= 3 * entries, "each once while it is waited for, and once for its answer"
