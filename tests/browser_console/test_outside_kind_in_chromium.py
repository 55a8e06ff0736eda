"""A kind that the console has never heard of, in a real browser: the one that docs/architecture.md shows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack
from kinds.test_outside_kind import install

SCRIPT = """
rules:
  - match: {last: 'Is this right. sun'}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: wind}}]
  - match: {has_tool: true}
    reply:
      content: "It looks like sun."
      tool_calls: [{name: final_answer, arguments: {answer: sun}}]
  - reply:
      tool_calls: [{name: look, arguments: {}}]
"""
TOOLS = '''
from cadre import tool


@tool(read_only=True)
def look() -> str:
    """Look at the sky."""
    return "blue"
'''

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("stack")
    site = install(folder / "site")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "script.yaml").write_text(SCRIPT)
    with Stack(folder) as stack:
        stack.environment["PYTHONPATH"] = str(site)
        stack.model(folder / "script.yaml")
        stack.agent(site / "forecaster.yaml", start=False)
        stack.tools(folder / "tools.py", start=False)
        yield stack.open_gateway(1)


def test_its_lines_and_words_are_shown(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    run = gateway.submit("forecaster", "What will the weather be?")
    assert gateway.finished(run)["output"] == "wind"
    page.goto(f"{gateway.service.url}/#/run/{run}")
    note = page.get_by_role("treeitem").filter(has_text="drafts sun")
    note.click()
    detail = page.get_by_role("region", name="Details")
    expect(detail.get_by_role("heading", name="reviewed.drafted").first).to_be_visible()
    expect(detail.locator("dt:has-text('answer') + dd")).to_have_text("sun")
    page.get_by_role("treeitem").first.click()
    expect(detail.locator("dt:has-text('Kind') + dd")).to_have_text("reviewed")
    expect(detail.get_by_role("listitem").filter(has_text="drafts sun")).to_be_visible()
    pictures.take(page, "outside-kind")
