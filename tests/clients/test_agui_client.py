"""The stock client of AG-UI, which checks the order of all events: threads, members, corrections, its own tools."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.test_a2a_agent import team
from clients.test_frameworks import PYTHON
from harness.patience import patience
from harness.stack import Gateway

STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'
PACKAGES = PYTHON.parents[1] / "node_modules"
SCRIPT = Path(__file__).parent / "agui_client.mjs"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with team(tmp_path_factory.mktemp("stack")) as found:
        yield found


@pytest.mark.skipif(
    not PACKAGES.is_dir(), reason="make test-clients had no npm to install @ag-ui/client with"
)
def test_the_stock_client_of_ag_ui(gateway: Gateway, tmp_path: Path) -> None:
    books, script = tmp_path / "books", tmp_path / SCRIPT.name
    shutil.copy(SCRIPT, script)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    command = ["node", str(script), gateway.service.url, str(books)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
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
