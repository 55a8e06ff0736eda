"""Tests of how far a run may go, seen from outside: deadlines, budgets over a tree, timeouts, calls that lead
nowhere."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.command import Commands
from harness.patience import eventually
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "bounded"

INPUT, OUTPUT = 500.0, 1500.0
"""Prices of a million tokens."""

ENDS_WITHIN = 15.0
"""Seconds from a deadline to its run's end on a busy machine; what is stopped would take thirty."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    prices = folder / "prices.yaml"
    prices.write_text(f'other: {{input: 1, output: 1}}\n"scripted*": {{input: {INPUT}, output: {OUTPUT}}}\n')
    with Stack(folder) as stack:
        stack.environment["CADRE_PRICES"] = str(prices)
        stack.model(TEAM / "script.yaml")
        yield stack


def tokens(usage: dict[str, Any]) -> int:
    return int(usage["input_tokens"] + usage["output_tokens"])


def cost(usage: dict[str, Any]) -> float:
    return float(usage["input_tokens"] * INPUT + usage["output_tokens"] * OUTPUT) / 1e6


def steps(usage: dict[str, Any]) -> float:
    return float(usage["steps"])


MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {"tokens": tokens, "cost": cost, "steps": steps}


def answers(gateway: Gateway, run: str) -> list[dict[str, Any]]:
    """Return what each model call of the tree used."""
    return [data["event"]["usage"] for name, data in gateway.events(run) if name == "model.answered"]


# --- deadlines


def test_a_deadline_ends_a_run_with_what_it_has_found_and_stops_its_model_call(stack: Stack, gateway: Gateway) -> None:
    before = time.time()
    run = gateway.submit("worker", "do-think", deadline=8)
    after = time.time()
    detail = gateway.run(run)
    result = gateway.finished(run)
    assert (result["state"], result["error"]["type"]) == ("error", "DeadlineExceeded")
    assert "echo: heard a first finding" in result["output"]
    assert before + 8 <= result["deadline_at"] <= after + 8
    assert -0.1 <= result["ended_at"] - result["deadline_at"] < ENDS_WITHIN
    assert detail["deadline_at"] == result["deadline_at"]
    eventually(
        lambda: [line["outcome"] for line in stack.model_requests() if line["rule"] == "thinks"] == ["left"],
        what="the model call has been dropped",
        state=lambda: stack.model_requests(),
    )


def test_a_deadline_ends_the_whole_tree_and_stops_its_tools(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"second: do-linger {file}", deadline=20)
    eventually(lambda: done(file) == ["begun"], what="the tool is at work")
    result = gateway.finished(run)
    assert (result["state"], result["error"]["type"]) == ("error", "DeadlineExceeded")
    eventually(lambda: done(file) == ["begun", "stopped"], what="the tool was stopped")
    [child] = gateway.run(run)["children"]
    assert child["deadline_at"] == result["deadline_at"]
    eventually(lambda: gateway.run(run)["children"][0]["ended_at"] is not None, what="the member ended")


def test_an_agent_may_have_a_deadline_and_a_budget_of_its_own(gateway: Gateway) -> None:
    run = gateway.submit("brief", "do-think", deadline=600)
    result = gateway.finished(run)
    assert result["error"]["type"] == "DeadlineExceeded"
    assert result["deadline_at"] - result["started_at"] == pytest.approx(3, abs=0.01)
    looped = gateway.finished(gateway.submit("brief", "do-loop 8", budget={"steps": 2, "tokens": 1_000_000}))
    assert looped["budget"] == {"steps": 2, "tokens": 1_000_000}
    assert (looped["error"]["type"], looped["usage"]["steps"]) in (
        ("BudgetExceeded", 2),
        ("DeadlineExceeded", looped["usage"]["steps"]),  # on a very slow machine
    )


# --- budgets


@pytest.mark.parametrize("kind", ["tokens", "cost", "steps"])
def test_a_tree_shares_its_budget(gateway: Gateway, kind: str) -> None:
    """Half of what it would take: the sum stays within it, but for the calls in flight."""
    measure = MEASURES[kind]
    free = gateway.submit("boss", "both: do-loop 8")
    whole = gateway.finished(free)
    assert whole["state"] == "success"
    assert whole["usage"]["cost"] == pytest.approx(cost(whole["usage"]))
    assert whole["usage"]["steps"] == 2 + 9 + 9
    largest = 1 if kind == "steps" else max(measure(usage) for usage in answers(gateway, free))
    budget = measure(whole["usage"]) / 2
    if kind != "cost":
        budget = int(budget)

    run = gateway.submit("boss", "both: do-loop 8", budget={kind: budget})
    result = gateway.finished(run)
    used = measure(result["usage"])
    assert used <= budget + 2 * largest
    assert used > budget / 3
    shares = [data["event"]["budget"][kind] for name, data in gateway.events(run) if name == "delegate.started"]
    assert len(shares) == 2
    assert sum(shares) <= budget
    assert [child["budget"][kind] for child in result["children"]] == shares
    ends = [child["error"] and child["error"]["type"] for child in result["children"]]
    assert "BudgetExceeded" in ends
    own = sum(measure(one["own_usage"]) for one in (result, *result["children"]))
    assert own == pytest.approx(used)


def test_a_cost_without_a_price_is_told(stack: Stack, gateway: Gateway) -> None:
    """An agent that was started without prices cannot keep a cost budget; one whose file has them can."""
    stack.services["second"].terminate()
    stack.add("poor", "cadre_agent", TEAM / "second.yaml", CADRE_PRICES="")
    try:
        result = gateway.finished(gateway.submit("second", "do-loop 8", budget={"cost": 100.0}))
        assert (result["state"], result["error"]["type"]) == ("error", "BudgetExceeded")
        assert "nobody told what scripted costs (see CADRE_PRICES)" in result["error"]["message"]
        assert result["usage"]["model_calls"] == 1
        free = gateway.finished(gateway.submit("second", "do-loop 1"))
        assert (free["state"], free["usage"]["cost"]) == ("success", 0)
    finally:
        stack.services["poor"].terminate()
        stack.services["second"].start()
    usage = gateway.finished(gateway.submit("dear", "do-loop 1"))["usage"]
    assert usage["cost"] == pytest.approx((usage["input_tokens"] * 1000 + usage["output_tokens"] * 2000) / 1e6)


# --- timeouts and circles


def test_a_tool_that_takes_too_long_is_given_up_and_stopped(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("worker", f"do-linger {file}")
    assert "no answer within 3 s" in gateway.succeeded(run)
    eventually(lambda: done(file) == ["begun", "stopped"], what="the tool was stopped")
    names = [name for name, data in gateway.events(run) if data.get("run") == run]
    assert "call.timed_out" in names


def test_a_member_that_takes_too_long_is_given_up_and_cancelled(gateway: Gateway) -> None:
    run = gateway.submit("impatient", "second: do-think")
    result = gateway.finished(run)
    assert (result["state"], "no answer within 3 s" in result["output"]) == ("success", True)
    eventually(lambda: gateway.run(run)["children"][0]["state"] == "cancelled", what="the member was cancelled")


# --- the command line


def test_bounds_on_the_command_line(cadre: Commands) -> None:
    done = cadre("run", "worker", "do-loop 8", "--budget-steps", 2, "--budget-cost", "5.5", "--deadline", "10m")
    assert done.returncode == 7, done.stderr
    assert "echo: heard turn 1" in done.stdout
    assert "BudgetExceeded: The budget of 2 steps is used up" in done.stderr.splitlines()[-1]
    shown = cadre("show", "@last").stdout
    assert "budget   5.5 cost, 2 steps" in shown
    assert "deadline 20" in shown
    assert re.search(r", cost \d+\.\d", shown)
    told = json.loads(cadre("show", "@last", "-o", "json").stdout)
    assert told["budget"] == {"cost": 5.5, "steps": 2}
    assert told["deadline_at"] - told["started_at"] == pytest.approx(600, abs=30)
