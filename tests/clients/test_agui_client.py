"""The stock client of AG-UI, which checks the order of all events: threads, members, corrections, its own tools."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.test_a2a_agent import team
from clients.versions import PACKAGES
from harness.patience import patience
from harness.stack import Gateway

STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'
SCRIPT = Path(__file__).parent / "agui_client.mjs"
OLD_SCRIPT = SCRIPT.with_name("agui_client_0.mjs")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with team(tmp_path_factory.mktemp("stack")) as found:
        yield found


pytestmark = pytest.mark.skipif(
    not PACKAGES.is_dir(), reason="make test-clients had no npm to install @ag-ui/client with"
)


def told_by(script: Path, gateway: Gateway, books: Path) -> dict[str, Any]:
    """Return what the script says that its client was sent."""
    copied = books.parent / script.name
    copied.write_text(script.read_text())
    (books.parent / "node_modules").symlink_to(PACKAGES)
    command = ["node", str(copied), gateway.service.url, str(books)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.mark.client("npm:@ag-ui/client", "AG-UI", "threads, streams, members, approvals, tools of the page")
def test_the_stock_client_of_ag_ui(gateway: Gateway, tmp_path: Path) -> None:
    books = tmp_path / "books"
    told = told_by(SCRIPT, gateway, books)
    assert told.pop("answer").endswith("refunded 50")
    assert {"SUBAGENT_STARTED", "SUBAGENT_FINISHED", "TOOL_CALL_START"} <= set(told.pop("types"))
    assert told == {
        "recalled": "You are Iris.",
        "messages": ["user", "assistant", "user", "assistant"],
        "asked": {"tool": "refund", "amount": 500, "within": True},
        "pending": {"type": "success"},
        "weather": "It is 3 degrees.",
        "pieces": True,
        "stories": [
            "tell a broken story",
            STORY,
            "tell another story",
            "It was all otherwise.",
            "tell it and ask",
            STORY,
            1,
        ],
    }
    assert books.read_text() == "refund 50\n"


@pytest.mark.client("npm:@ag-ui/client-0", "AG-UI", "threads, members, tools of the page")
def test_the_client_of_ag_ui_that_copilotkit_uses(gateway: Gateway, tmp_path: Path) -> None:
    books = tmp_path / "books"
    told = told_by(OLD_SCRIPT, gateway, books)
    assert told.pop("member").endswith("refunded 50")
    assert told == {"recalled": "You are Iris.", "waits": "RUN_FINISHED", "weather": "It is 3 degrees."}
    assert books.read_text() == "refund 50\n"
