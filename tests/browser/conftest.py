"""A real Chromium over pages of this folder. Without one, the tests are skipped with a loud word."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cadre.delivery.workspace_store import WorkspaceStore
from cadre.testing.in_memory_deployment import MAX_FILE_BYTES, InMemoryDeployment
from cadre.testing.in_memory_process import InMemoryProcess
from cadre.tool import ToolContext
from cadre_browser.sessions import sessions
from integration.web_server import Answer, WebServer, web_server

PAGES = Path(__file__).parent / "pages"

NewCall = Callable[[], ToolContext]


def missing() -> str:
    """Return what is not installed; empty when all is there."""
    commands = [
        os.environ.get("CADRE_BROWSER_CHROMIUM", "chromium"),
        os.environ.get("CADRE_BROWSER_DRIVER", "chromedriver"),
    ]
    lacking = [command for command in commands if shutil.which(command) is None]
    return f"no {', no '.join(lacking)} on PATH" if lacking else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lacking := missing():
        terminalreporter.section("BROWSER NOT TESTED", sep="!", red=True)
        terminalreporter.line(f"{lacking}: install Debian's chromium and chromium-driver")


@pytest.fixture(autouse=True)
def _chromium() -> None:
    if lacking := missing():
        pytest.skip(lacking)


@pytest.fixture(autouse=True)
def browsers(_chromium: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Browsers that reach this machine; settings may be changed before the first call."""
    monkeypatch.setenv("CADRE_BROWSER_PRIVATE", "127.0.0.1/32")
    sessions.cache_clear()
    yield monkeypatch
    sessions().close()
    sessions().guard.close()
    sessions.cache_clear()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        for file in PAGES.glob("*.html"):
            server.pages[f"/{file.name}"] = Answer(file.read_bytes())
        yield server


@pytest.fixture
def call() -> NewCall:
    """Contexts of calls, one after the other, of one run."""
    deployment = InMemoryDeployment({}, {}, {}, lambda: None)
    ports = deployment.ports(InMemoryProcess("test"))
    numbers = itertools.count(1)

    def new() -> ToolContext:
        id_ = f"run1_{next(numbers)}_0"
        workspace = WorkspaceStore(
            ports.files, ports.blobs, tree="run1", call=id_, by="test", most_bytes=MAX_FILE_BYTES
        )
        return ToolContext(call_id=id_, run="run1", tree="run1", workspace=workspace)

    return new
