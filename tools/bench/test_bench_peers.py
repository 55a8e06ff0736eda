"""The bench with peers: what it does without them, how it talks to their programs, what its ratios are."""

import json
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from bench.peers import systems
from bench.peers.main import Amount, started, table
from bench.processes import PYTHONPATH

AMOUNT = Amount(rounds=3, singles=1, crowd=2, in_flight=2)
PROGRAM = """
import asyncio, time
from bench.peers.playing import in_tasks, in_threads, serve
def block(): print("a library says something", flush=True); time.sleep(0.001)
async def task(): print("a library says something", flush=True); await asyncio.sleep(0.001)
serve({})
"""


async def test_a_peer_that_cannot_be_had_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "BUILD", tmp_path)
    (tmp_path / "restate").mkdir()
    (tmp_path / "restate" / ".ready").touch()
    peers = {"DBOS": systems.dbos, "Restate": systems.restate}
    peers["LangGraph"] = partial(systems.framework, "langgraph", "LangGraph", "http://127.0.0.1:1/v1", streams=False)
    async with AsyncExitStack() as stack:
        assert await started(stack, peers) == []
    said = capsys.readouterr().err.splitlines()
    assert [name in line for name, line in zip(peers, said, strict=True)] == [True, True, True]
    assert "restate-server" in said[1]


@pytest.mark.parametrize("play", ["in_threads(block)", "in_tasks(asyncio.new_event_loop(), task)"])
def test_a_program_plays_what_it_reads(play: str) -> None:
    wanted = "".join(json.dumps({"count": 7, "in_flight": one}) + "\n" for one in (1, 3))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(play)],
        env={"PYTHONPATH": PYTHONPATH},
        input=wanted,
        capture_output=True,
        text=True,
        check=True,
    )
    *before, ready, alone, crowd = done.stdout.splitlines()
    assert (before, ready) == ([], "ready"), "what libraries print goes to standard error"
    for line in (alone, crowd):
        found = json.loads(line)
        assert len(found["seconds"]) == 7
        assert 0.001 <= min(found["seconds"]) <= found["took"]


def test_ratios_are_of_medians_and_ranges_of_rounds() -> None:
    own = {"p50": [1.0, 2.0, 9.0], "rate": [6.0, 6.0, 6.0], "cpu": [1.0] * 3, "crowd_cpu": [1.0] * 3}
    peer = {"p50": [4.0, 5.0, 6.0], "rate": [2.0, 3.0, 12.0], "cpu": [4.0] * 3, "crowd_cpu": [1.0] * 3}
    _, _, p50, rate, cpu, crowd = table("delegation", AMOUNT, {"Cadre": own, "Restate": peer})
    assert "0.40 × (0.25 – 1.50), ≤ 0.4: reached" in p50
    assert "2.00 × (0.50 – 3.00), ≥ 2: reached" in rate
    assert "0.25 × (0.25 – 0.25) |" in cpu
    assert "1.00 × (1.00 – 1.00), ≤ 0.5: **missed**" in crowd


def test_the_cpu_of_a_process_that_came_or_went_counts_from_and_to_then() -> None:
    assert systems.spent({1: 2.0, 2: 5.0}, {1: 2.5, 3: 0.25}) == pytest.approx(0.75)
