"""Memories in a real browser: found, and forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "remembering"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        settings = {
            "CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"),
            "CADRE_MEMORY_EMBEDDINGS": "none",
        }
        stack.add("memory", "cadre_memory", start=False, **settings)
        stack.agent(TEAM / "keeper.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(1)
    return gateway


def remembered(gateway: Gateway) -> list[dict[str, Any]]:
    answer = gateway.request("GET", "/v1/memory", params={"user": "ann", "limit": 50})
    return list(answer.json().get("memories", []))


def test_a_memory_is_found_and_forgotten(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    run = gateway.submit("keeper", "note: the key lies under the mat", user="ann", session="first-ann")
    assert gateway.finished(run)["state"] == "success"
    eventually(lambda: len(remembered(gateway)) >= 2, what="the run's memories", state=lambda: remembered(gateway))
    before = len(remembered(gateway))
    page.get_by_role("link", name="Memory").click()
    cards = page.get_by_role("article")
    expect(cards).to_have_count(before)
    pictures.take(page, "memory")
    text = cards.first.locator(".reason").inner_text()
    cards.first.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(text.split("\n")[0])
    dialog.get_by_role("button", name="Forget").click()
    expect(cards).to_have_count(before - 1)
    eventually(
        lambda: len(remembered(gateway)) == before - 1,
        what="one is forgotten",
        state=lambda: remembered(gateway),
    )
