"""The gateway's MCP server before the protocol's own conformance suite, in both eras.

Scenarios that want fixture tools are left out: the tools here are agents. Those of Tasks have a team of their own
(`test_mcp_task_scenarios.py`).
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.suite import NODE, SUITE, failed_checks, passed_checks, without_colours
from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "calling"

UNTESTABLE = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}
"""Checks of `server-stateless` that want the suite's own diagnostic tools."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of a team, with the door open."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        agents = [file for file in sorted(TEAM.glob("*.yaml")) if file.name != "script.yaml"]
        for file in agents:
            stack.agent(file, start=False)
        stack.tools(TEAM / "tools.py", start=False)
        found = Gateway(stack.add("gateway", "cadre_gateway", start=False, CADRE_DOORS="mcp"))
        stack.start_all()
        found.wait_offered(len(agents))
        yield found


@pytest.mark.parametrize(
    ("scenario", "least", "untestable"),
    [
        ("server-initialize", 2, set()),
        ("ping", 2, set()),
        ("tools-list", 3, set()),
        ("dns-rebinding-protection", 2, set()),
        ("http-header-validation", 14, set()),
        ("server-stateless", 21, UNTESTABLE),
    ],
)
def test_a_scenario_holds(gateway: Gateway, scenario: str, least: int, untestable: set[str]) -> None:
    """Nothing fails but what cannot be tried, and at least so many checks pass."""
    command = [str(NODE), str(SUITE), "server", "--url", f"{gateway.service.url}/mcp", "--scenario", scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    told = without_colours(ended.stdout + ended.stderr)
    assert failed_checks(told) == untestable, told
    assert passed_checks(told) >= least, told
