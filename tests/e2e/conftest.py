"""A deployment of separate processes: a team's agents and tools, a gateway, a scripted model."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from harness.command import Commands, commands_of
from harness.patience import patience
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
def more(stack: Stack) -> None:
    """Services next to the team: a module that needs some adds them here, without starting them."""


@pytest.fixture(scope="module")
def gateway(request: pytest.FixtureRequest, team: Path, stack: Stack, more: None) -> Gateway:
    """The whole team at work, its agents offered all that they name; or the stack as its module began it. A module that
    needs no more than some agents names them by `AGENTS`."""
    if "gateway" in stack.services:
        return Gateway(stack.services["gateway"])
    only: list[str] | None = getattr(request.module, "AGENTS", None)
    agents = [file for file in sorted(team.glob("*.yaml")) if file.name != SCRIPT]
    agents = [file for file in agents if only is None or file.stem in only]
    for file in agents:
        stack.agent(file, start=False)
    for file in sorted(team.glob("*.py")) if only is None else []:
        stack.tools(file, start=False)
    return stack.open_gateway(len(agents))


@pytest.fixture
def openai_client(gateway: Gateway) -> OpenAI:
    """The stock client, asking the gateway."""
    return OpenAI(base_url=f"{gateway.service.url}/v1", api_key="any", timeout=patience())


@pytest.fixture(scope="module")
def cadre(stack: Stack, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """Commands next to the team, in a folder of their own."""
    return commands_of(stack, tmp_path_factory.mktemp("cli"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its services have logged."""
    report = yield
    stack = item.funcargs.get("stack")
    if report.failed and isinstance(stack, Stack):
        report.sections.append(("logs of the services", stack.logs()))
    return report
