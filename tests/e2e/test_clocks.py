"""Services on machines whose clocks are ten minutes off: waits and deadlines last as long as they say all the same."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.command import Commands, commands_of
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "clocks"
OFF = {"ahead": 600, "behind": -600}


def wrong(seconds: float) -> dict[str, str]:
    """Environment of a process whose clock is off by so much."""
    folder = Path(__file__).parent.parent / "harness" / "wrong_clock"
    return {"PYTHONPATH": str(folder), "CLOCK_OFF": str(seconds)}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        for name, off in OFF.items():
            clock = wrong(off)
            stack.add(name, "cadre_agent", TEAM / f"{name}.yaml", start=False, **allowed(clock))
        stack.add("gateway", "cadre_gateway", start=False, **allowed(wrong(-600)))
        stack.start_all()
        yield stack


def allowed(clock: dict[str, str]) -> dict[str, str]:
    return {**clock, "CADRE_CLOCK_SKEW_SECONDS": "3600"}


@pytest.fixture(scope="module")
def cadre(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_of(stack, tmp_path_factory.mktemp("cli"))


@pytest.mark.parametrize("agent", OFF)
def test_a_wait_lasts_as_long_as_it_says(gateway: Gateway, agent: str) -> None:
    run = gateway.submit(agent, f"limited {agent}")
    deferred = gateway.wait_for(run, "model.deferred")
    began = time.monotonic()
    assert abs(deferred["event"]["until"] - time.time()) < 30, "told by the server's clock"
    result = gateway.finished(run, within=60)
    assert 2 < time.monotonic() - began < 30
    assert (result["state"], result["output"]) == ("success", "in time")
    assert abs(result["started_at"] - time.time()) < 60


@pytest.mark.parametrize("agent", OFF)
def test_a_deadline_that_one_sets_and_another_keeps(gateway: Gateway, agent: str) -> None:
    """The gateway's clock is off too."""
    began = time.monotonic()
    result = gateway.finished(gateway.submit(agent, "think long", deadline=4), within=60)
    assert 3 < time.monotonic() - began < 30
    assert result["error"]["type"] == "DeadlineExceeded"


def test_a_wrong_clock_is_told(stack: Stack, gateway: Gateway, cadre: Commands) -> None:
    def skews() -> dict[str, float]:
        live = gateway.request("GET", "/v1/agents").json()["agents"]
        return {one["name"]: one["replicas"][0]["skew"] for one in live}

    eventually(lambda: skews().keys() == OFF.keys(), what="both agents are live")
    assert {name: round(skew / 10) * 10 for name, skew in skews().items()} == OFF
    assert re.findall(r"\d+ s", cadre("ps").stderr) == ["600 s"]
    assert re.search(r"^ok .*clock", cadre("doctor").stdout, re.MULTILINE)
    assert re.search(r"^fail .*clock.*600", cadre("doctor", **wrong(600)).stdout, re.MULTILINE)
    metrics = httpx2.get(f"{stack.services['ahead'].url}/metrics", timeout=patience()).text
    [line] = [one for one in metrics.splitlines() if one.startswith("cadre_clock_skew_seconds")]
    assert float(line.split()[-1]) == pytest.approx(600, abs=5)


def test_a_service_refuses_a_clock_beyond_the_limit(stack: Stack) -> None:
    refused = stack.add("refused", "cadre_agent", TEAM / "ahead.yaml", start=False, **wrong(600))
    refused.start(wait=False)
    assert refused.process is not None
    assert refused.process.wait(patience()) == 2
    said = refused.log.read_text()
    assert "600" in said
    assert "CADRE_CLOCK_SKEW_SECONDS" in said
