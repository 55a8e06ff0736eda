"""Runs and sessions that outgrow what their model takes, against an endpoint that refuses what is too long."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.command import Commands
from harness.patience import eventually
from harness.people import assert_sound, events_of
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "long_runs"
CONTEXT = 5_000
"""Tokens that the endpoint takes, and that all agents but one know of."""


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.add("files", "cadre_tools", "cadre_standard_tools.files", start=False)


@pytest.fixture
def requests(stack: Stack, gateway: Gateway) -> Requests:
    return Requests(stack)


class Requests:
    """Requests to the endpoint since the test began."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._before = len(stack.model_requests())

    def __call__(self) -> list[dict[str, Any]]:
        return self._stack.model_requests()[self._before :]

    def refused(self) -> int:
        return sum(line["rule"] == "context" for line in self())


def summaries(gateway: Gateway, run: str) -> list[dict[str, Any]]:
    """Each covers more than the one before, and was written by the model, with the one before in mind."""
    found = events_of(gateway, run, "history.summarized")
    covers = [one["covers"] for one in found]
    assert covers == sorted(set(covers))
    assert [one["text"].split(" up to ")[0] for one in found] == [
        f"Summary {number}" for number in range(1, len(found) + 1)
    ]
    assert not any(one["without_model"] for one in found)
    return found


def test_a_run_of_forty_steps_finishes_within_its_context(
    gateway: Gateway, requests: Requests, cadre: Commands
) -> None:
    run = gateway.submit("patient", "verses: 40")
    result = gateway.finished(run)
    assert (result["state"], result["output"]) == ("success", "40 verses")
    assert result["usage"]["steps"] == 41
    assert len(summaries(gateway, run)) >= 3
    sizes = [line["tokens"] for line in requests()]
    assert max(sizes) <= CONTEXT - 500, "the answer has its room"
    assert max(sizes) > CONTEXT / 3, "no room is wasted"
    # One summary for many steps, and no request but theirs and the steps'.
    assert len(sizes) == 41 + len(summaries(gateway, run)) <= 41 * 4 / 3
    # The run reads as if no one had summarized anything.
    assert [event["output"].split(":")[0] for event in events_of(gateway, run, "tool.answered")] == [
        f"verse {number}" for number in range(1, 41)
    ]
    assert_sound(cadre, run)


def test_a_context_that_the_endpoint_does_not_take_is_found_out(
    gateway: Gateway, requests: Requests, cadre: Commands
) -> None:
    run = gateway.submit("boastful", "verses: 40")
    assert gateway.succeeded(run) == "40 verses"
    overflowed = events_of(gateway, run, "context.overflowed")
    assert 1 <= len(overflowed) == requests.refused() <= 4
    assert str(CONTEXT) in overflowed[0]["reason"]
    assert len(summaries(gateway, run)) >= 3
    assert_sound(cadre, run)


def test_an_agent_killed_in_the_middle_of_a_summary(
    stack: Stack, gateway: Gateway, requests: Requests, cadre: Commands
) -> None:
    patient = stack.services["patient"]
    run = gateway.submit("patient", "verses: 20, slowly summarized")
    called = gateway.wait_for(run, "model.called", purpose="summary")
    eventually(lambda: any(_is_open(line) for line in requests()), what="the model writes it")
    patient.kill()
    patient.start()
    assert gateway.succeeded(run) == "20 verses"
    calls = [
        event["attempt"]
        for event in events_of(gateway, run, "model.called")
        if (event["purpose"], event["step"]) == ("summary", called["event"]["step"])
    ]
    assert calls == [1, 2]
    assert requests.refused() == 0
    assert len(summaries(gateway, run)) >= 1
    assert_sound(cadre, run)


def chronicle() -> str:
    """As the team's tool reports it."""
    return "\n".join(f"In the year {1000 + y} there were {y * 7919 % 1000:03} sheep." for y in range(400))


def _is_open(line: dict[str, Any]) -> bool:
    return (line["rule"], line["outcome"]) == ("slow summary", "open")


def test_a_session_of_long_turns(gateway: Gateway, requests: Requests, cadre: Commands) -> None:
    """Each goes on from the one before, whose steps would not fit by themselves."""
    for turn in range(1, 5):
        run = gateway.submit("patient", f"verses: {turn * 16}", session="long")
        result = gateway.finished(run)
        assert (result["state"], result["output"]) == ("success", f"{turn * 16} verses")
        assert len(events_of(gateway, run, "tool.answered")) == 16
        assert len(summaries(gateway, run)) >= 1
        assert_sound(cadre, run)
    assert requests.refused() == 0


def test_an_output_that_was_cut_is_read_on(gateway: Gateway, requests: Requests, cadre: Commands) -> None:
    """It has no room in one request: what was read of it makes room for the rest."""
    run = gateway.submit("reader", "Read the whole chronicle.")
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert result["output"] == "In the year 1399 there were 681 sheep."
    cut, *pieces = [str(event["output"]) for event in events_of(gateway, run, "tool.answered")]
    assert len(cut) <= 2_000
    read = "".join(re.sub(r"\n\[\d+ of \d+ characters follow: read on at \d+\.\]$", "", piece) for piece in pieces)
    assert read == chronicle()
    assert events_of(gateway, run, "history.summarized")
    assert requests.refused() == 0
    assert_sound(cadre, run)
