"""The stock client of A2A drives agents: cards, answers, streams, a correction of a call, lists, an end."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.test_frameworks import TEAM
from clients.versions import PYTHON
from harness.patience import patience
from harness.stack import Gateway, Stack

AGENT = Path(__file__).parent / "a2a_agent.py"


@contextlib.contextmanager
def team(folder: Path) -> Iterator[Gateway]:
    """The gateway of a chief whose clerk refunds, and of a host."""
    with Stack(folder) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("chief", "clerk", "host"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        yield stack.open_gateway(3)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with team(tmp_path_factory.mktemp("stack")) as found:
        yield found


@pytest.mark.client("a2a-sdk", "A2A", "answers, streams, files, approvals, lists, an end, HTTP+JSON, version 0.3")
def test_the_stock_client_of_a2a(gateway: Gateway, tmp_path: Path) -> None:
    books = tmp_path / "books"
    command = [str(PYTHON), str(AGENT), gateway.service.url, str(books)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told.pop("answer").endswith("refunded 50")
    assert told == {
        "over HTTP": "TASK_STATE_COMPLETED",
        "version 0.3": "TASK_STATE_COMPLETED",
        "greeting": "Hello!",
        "waits": "TASK_STATE_INPUT_REQUIRED",
        "ends": "TASK_STATE_COMPLETED",
        "listed": True,
        "cancelled": "TASK_STATE_CANCELED",
    }
    assert books.read_text() == "refund 50\n"
