"""The shipped team's demo, traced into a real Phoenix, is found there as one tree by a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from harness.nats_server import free_port
from harness.patience import patience
from observe.demo import CACHED, REASONED, ROOT, Demo, answering, run_demo

PYTHON = ROOT / "build" / "phoenix-venv" / "bin" / "python"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    url = f"http://127.0.0.1:{port}"
    with answering(
        [PYTHON, ROOT / "deploy" / "phoenix" / "serve.py"],
        f"{url}/healthz",
        folder,
        PHOENIX_PORT=str(port),
        PHOENIX_GRPC_PORT=str(free_port()),
        PHOENIX_WORKING_DIR=str(folder),
    ):
        yield url


@pytest.fixture(scope="module")
def demo(phoenix: str, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    def has_root(trace: str) -> bool:
        return any(span["name"] == "invoke_workflow manager" for span in spans_of(Demo(phoenix, trace)))

    return Demo(phoenix, run_demo(tmp_path_factory.mktemp("up"), phoenix, "", has_root))


def spans_of(demo: Demo) -> list[dict[str, Any]]:
    """The run's spans, as Phoenix has them."""
    answer = httpx2.get(f"{demo.backend}/v1/projects/default/spans", params={"limit": 1000}, timeout=patience())
    everything = answer.json()["data"] if answer.status_code == 200 else []
    return [span for span in everything if span["context"]["trace_id"] == demo.trace]


def test_it_is_one_tree_with_kinds_and_tokens(demo: Demo) -> None:
    spans = spans_of(demo)
    ids = {span["context"]["span_id"] for span in spans}
    assert [span["name"] for span in spans if span["parent_id"] not in ids] == ["invoke_workflow manager"]
    kinds = {span["name"].split()[0]: span["span_kind"] for span in spans if span["parent_id"]}
    assert (kinds["chat"], kinds["execute_tool"], kinds["step"]) == ("LLM", "TOOL", "CHAIN")
    chats = [span["attributes"] for span in spans if span["span_kind"] == "LLM"]
    assert chats
    assert all(chat["llm.token_count.total"] > 0 for chat in chats)
    (cached,) = [chat for chat in chats if "llm.token_count.prompt_details.cache_read" in chat]
    assert cached["llm.token_count.prompt_details.cache_read"] == CACHED
    assert cached["llm.token_count.completion_details.reasoning"] == REASONED


def test_phoenix_shows_the_tree_and_what_a_model_answered(demo: Demo, page: Page) -> None:
    page.goto(f"{demo.backend}/redirects/traces/{demo.trace}")
    for name in ("invoke_workflow manager", "invoke_agent researcher", "plan manager"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.get_by_text("chat scripted", exact=True).nth(1).click()
    shown = page.locator("main").last
    expect(shown).to_contain_text("3 tool calls")
    expect(shown).to_contain_text("so I ask for all at once")
    expect(shown).to_contain_text("_1_0")  # the id of a call
    expect(shown).to_contain_text("From the tables of the Apollo flights")  # its argument
    page.get_by_text("Tools", exact=True).first.click()
    expect(shown).to_contain_text("Calculates with tables of the Apollo flights")


def test_nobody_else_can_reach_it(phoenix: str) -> None:
    """Both ports are bound to loopback: what the kernel says, in hex and back to front."""
    ports = {int(phoenix.rpartition(":")[2])}
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    ours = [one for one in listening if int(one.rpartition(":")[2], 16) in ports]
    assert ours
    assert all(one.partition(":")[0].endswith("0100007F") for one in ours)
