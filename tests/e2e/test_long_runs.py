"""Runs and sessions that outgrow what their model takes, against an endpoint that refuses what is too long."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.command import Commands, commands_of
from harness.patience import eventually
from harness.people import events_of
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "long_runs"
CONTEXT = 5_000
"""Tokens that the endpoint takes, and that all agents but one know of."""


@pytest.fixture(scope="module")
def offered(stack: Stack, gateway: Gateway) -> Gateway:
    """The gateway, once the agents may call all of their tools."""
    stack.add("files", "cadre_tools", "cadre_standard_tools.files")

    def lack_nothing() -> bool:
        agents = gateway.request("GET", "/v1/agents").json()["agents"]
        return len(agents) == 3 and all(agent["missing"] == [] for agent in agents)

    eventually(lack_nothing, what="the tools are offered", state=stack.logs)
    return gateway


@pytest.fixture(scope="module")
def cadre(stack: Stack, offered: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_of(stack, tmp_path_factory.mktemp("cli"))


@pytest.fixture
def requests(stack: Stack, offered: Gateway) -> Requests:
    return Requests(f"{stack.services['model'].url}/script")


class Requests:
    """What the endpoint was asked since the test began."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before = len(self._lines())

    def __call__(self) -> list[dict[str, Any]]:
        return self._lines()[self._before :]

    def refused(self) -> int:
        return sum(line["rule"] == "context" for line in self())

    def _lines(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = httpx2.get(f"{self._url}/journal", timeout=30).json()
        return lines


def summaries(gateway: Gateway, run: str) -> list[dict[str, Any]]:
    """Each covers more than the one before, and was written by the model, with the one before in mind."""
    found = events_of(gateway, run, "history.summarized")
    covers = [one["covers"] for one in found]
    assert covers == sorted(set(covers))
    assert [one["text"].split(" up to ")[0] for one in found] == [
        f"Summary {number}" for number in range(1, len(found) + 1)
    ]
    assert not any(one["digest"] for one in found)
    return found


def sound(cadre: Commands, run: str) -> None:
    replay = cadre("replay", run)
    assert (replay.returncode, "no divergence" in replay.stdout) == (0, True), replay.stdout + replay.stderr


def test_a_run_of_forty_steps_finishes_within_its_context(
    stack: Stack, offered: Gateway, requests: Requests, cadre: Commands
) -> None:
    run = offered.submit("patient", "verses: 40")
    result = offered.finished(run)
    assert (result["state"], result["output"]) == ("success", "40 verses"), stack.logs()
    assert result["usage"]["steps"] == 41
    assert len(summaries(offered, run)) >= 3
    sizes = [line["tokens"] for line in requests()]
    assert max(sizes) <= CONTEXT - 500, "the answer has its room"
    assert max(sizes) > CONTEXT / 3, "no room is wasted"
    # One summary for many steps, and no request but theirs and the steps'.
    assert len(sizes) == 41 + len(summaries(offered, run)) <= 41 * 4 / 3
    # The run reads as if nobody had summarized anything.
    assert [event["output"].split(":")[0] for event in events_of(offered, run, "tool.answered")] == [
        f"verse {number}" for number in range(1, 41)
    ]
    sound(cadre, run)


def test_a_context_that_the_endpoint_does_not_take_is_found_out(
    stack: Stack, offered: Gateway, requests: Requests, cadre: Commands
) -> None:
    run = offered.submit("boastful", "verses: 40")
    result = offered.finished(run)
    assert (result["state"], result["output"]) == ("success", "40 verses"), stack.logs()
    overflowed = events_of(offered, run, "context.overflowed")
    assert 1 <= len(overflowed) == requests.refused() <= 4
    assert f"maximum context length is {CONTEXT} tokens" in overflowed[0]["reason"]
    assert len(summaries(offered, run)) >= 3
    sound(cadre, run)


def test_an_agent_killed_in_the_middle_of_a_summary(
    stack: Stack, offered: Gateway, requests: Requests, cadre: Commands
) -> None:
    patient = stack.services["patient"]
    run = offered.submit("patient", "verses: 20, slowly summarized")
    called = offered.wait_for(run, "model.called", purpose="summary")
    eventually(lambda: any(_is_open(line) for line in requests()), what="the model writes it")
    patient.kill()
    patient.start()
    result = offered.finished(run)
    assert (result["state"], result["output"]) == ("success", "20 verses"), stack.logs()
    calls = [
        event["attempt"]
        for event in events_of(offered, run, "model.called")
        if (event["purpose"], event["step"]) == ("summary", called["event"]["step"])
    ]
    assert calls == [1, 2]
    assert requests.refused() == 0
    assert len(summaries(offered, run)) >= 1
    sound(cadre, run)


def chronicle() -> str:
    """As the team's tool tells it."""
    return "\n".join(f"In the year {1000 + y} there were {y * 7919 % 1000:03} sheep." for y in range(400))


def _is_open(line: dict[str, Any]) -> bool:
    return (line["rule"], line["outcome"]) == ("slow summary", "open")


def test_a_session_of_long_turns(stack: Stack, offered: Gateway, requests: Requests, cadre: Commands) -> None:
    """Each goes on from the one before, whose steps would not fit by themselves."""
    for turn in range(1, 5):
        run = offered.submit("patient", f"verses: {turn * 12}", session="long", reset=False)
        result = offered.finished(run)
        assert (result["state"], result["output"]) == ("success", f"{turn * 12} verses"), stack.logs()
        assert len(events_of(offered, run, "tool.answered")) == 12
        assert len(summaries(offered, run)) >= 1
        sound(cadre, run)
    assert requests.refused() == 0


def test_an_output_that_was_cut_is_read_on(
    stack: Stack, offered: Gateway, requests: Requests, cadre: Commands
) -> None:
    """It has no room in one request: what was read of it makes room for the rest."""
    run = offered.submit("reader", "Read the whole chronicle.")
    result = offered.finished(run)
    assert result["state"] == "success", stack.logs()
    assert result["output"] == "In the year 1399 there were 681 sheep."
    cut, *pieces = [str(event["output"]) for event in events_of(offered, run, "tool.answered")]
    assert len(cut) <= 2_000
    read = "".join(
        re.sub(r"\n\[\d+ of \d+ characters follow: read on at \d+\.\]$", "", piece) for piece in pieces
    )
    assert read == chronicle()
    assert events_of(offered, run, "history.summarized")
    assert requests.refused() == 0
    sound(cadre, run)
