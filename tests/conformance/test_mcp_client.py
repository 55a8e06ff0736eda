"""The client of `cadre tools --mcp` before the protocol's own conformance suite, in both eras.

Left out are the scenarios of what it does not declare: elicitation, and results that ask for more input; OAuth sign-in,
for which a file of servers has headers. `sep-2640-*` are about skills that a server offers.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.suite import NODE, SUITE, passed_checks, without_colours
from harness.patience import patience

CLIENT = Path(__file__).parent / "client.py"


@pytest.mark.parametrize(
    ("scenario", "least"),
    [
        ("initialize", 1),
        ("tools_call", 2),
        ("sse-retry", 3),
        ("request-metadata", 5),
        ("http-standard-headers", 4),
        ("http-custom-headers", 18),
        ("http-invalid-tool-headers", 12),
        ("json-schema-ref-no-deref", 1),
        ("json-schema-2020-12-preservation", 9),
    ],
)
def test_a_scenario_holds(scenario: str, least: int) -> None:
    """Everything passes, and at least so many checks."""
    client = f"{sys.executable} {CLIENT}"
    command = [str(NODE), str(SUITE), "client", "--command", client, "--scenario", scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    told = without_colours(ended.stdout + ended.stderr)
    assert ended.returncode == 0, told
    assert passed_checks(told) >= least, told
