"""A deployment of separate processes: a team's agents and tools, a gateway, a scripted model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"
SCRIPT = "script.yaml"


@pytest.fixture(scope="module")
def team(request: pytest.FixtureRequest) -> Path:
    """Folder of the team at work: a script for the model, agents, tools. A module names another by `TEAM`."""
    folder: Path = getattr(request.module, "TEAM", TEAM)
    return folder


@pytest.fixture(scope="module")
def stack(team: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(team / SCRIPT)
        yield stack


@pytest.fixture(scope="module")
def gateway(team: Path, stack: Stack) -> Gateway:
    """The whole team at work."""
    for file in sorted(team.glob("*.yaml")):
        if file.name != SCRIPT:
            stack.agent(file, start=False)
    for file in sorted(team.glob("*.py")):
        stack.tools(file, start=False)
    gateway = stack.gateway(start=False)
    stack.start_all()
    return gateway
