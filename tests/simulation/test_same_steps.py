"""A seed is a story: played again, in this process or another, it takes the same steps at the same times."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from simulation.main import main, replay, summary
from simulation.world import play

SEEDS = range(30, 42)


def digests() -> list[str]:
    return [play(seed)[1].trace.digest() for seed in SEEDS]


def test_the_same_seed_takes_the_same_steps() -> None:
    first = digests()
    assert digests() == first
    assert len(set(first)) == len(first), "other seeds, other stories"


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_in_another_process_too(hash_seed: str) -> None:
    code = "from simulation.test_same_steps import digests; print(*digests())"
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.split() == digests()


def test_a_replay_tells_the_whole_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(3) == 0
    output = capsys.readouterr().out
    assert "seed 3: team" in output
    assert "RunAccepted" in output
    assert output.rstrip().endswith("every promise held")


def test_the_command_counts_what_it_did(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["simulation", "--seeds", "12", "--jobs", "1"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("12 seeds, ")
    assert summary(1, Counter(), 1.0, 0).endswith("none failed")
    assert summary(1, Counter(), 1.0, 2).endswith("2 failed")
