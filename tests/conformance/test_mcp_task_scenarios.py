"""Runs as tasks before the protocol's own conformance suite: its fixture tools are a team of workflows, in `team`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.suite import NODE, SUITE, failed_checks, passed_checks, without_colours
from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"

NO_PROTOCOL_ERROR = {"sep-2663-tasks-get-status-failed"}
"""Once its run has begun, a call ends with an answer or an error that its model reads: no task is `failed`."""
NOT_ASKED_BEFORE = {"sep-2663-mrtr-synchronous-before-task-creation"}
"""A call's missing arguments are reported to the model that made it, which knows better than a person whom the client
would ask."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of the fixtures, with the door open."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        agents = sorted(TEAM.glob("*.yaml"))
        for file in agents:
            stack.agent(file, start=False)
        found = Gateway(stack.add("gateway", "cadre_gateway", start=False, CADRE_DOORS="mcp"))
        stack.start_all()
        found.wait_offered(len(agents))
        yield found


@pytest.mark.parametrize(
    ("scenario", "least", "failing"),
    [
        ("tasks-lifecycle", 7, NO_PROTOCOL_ERROR),
        ("tasks-capability-negotiation", 4, set()),
        ("tasks-wire-fields", 3, set()),
        ("tasks-request-state-removal", 2, set()),
        ("tasks-mrtr-input", 3, set()),
        ("tasks-request-headers", 4, set()),
        ("tasks-dispatch-and-envelope", 8, set()),
        ("tasks-required-task-error", 2, set()),
        ("tasks-mrtr-composition", 0, NOT_ASKED_BEFORE),
        ("tasks-status-notifications", 0, set()),
    ],
)
def test_a_scenario_holds(gateway: Gateway, scenario: str, least: int, failing: set[str]) -> None:
    """Just what cannot hold fails, and at least so many checks pass."""
    command = [str(NODE), str(SUITE), "server", "--url", f"{gateway.service.url}/mcp", "--scenario", scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    told = without_colours(ended.stdout + ended.stderr)
    assert failed_checks(told) == failing, told
    assert passed_checks(told) >= least, told
