"""Tests of how the page of a large run keeps up with 50 events a second. They are made in the browser, in place of a
gateway."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser_console.observed import answer_as_a_gateway

LIVE_SECONDS = 6
STREAM = (Path(__file__).parent / "large_run.js").read_text()


@pytest.mark.parametrize("runs", [1, 1000], ids=["5000 events", "1000 runs"])
@pytest.mark.timeout(300)
def test_a_large_run_stays_fluid(browser: Browser, runs: int) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 820})
    page = context.new_page()
    page.route("**/*", answer_as_a_gateway)
    page.add_init_script(f"const RUNS = {runs}, SECONDS = {LIVE_SECONDS};" + STREAM)
    page.goto("http://console.test/#/run/a1")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    page.wait_for_function("told.done", timeout=120_000)
    told = page.evaluate("told")
    drawn = page.get_by_role("treeitem").count()
    print(json.dumps({"runs": runs, "drawn": drawn, **told}))
    context.close()
    assert drawn < 100, "only rows in view are elements"
    # Where other work has the processor any task may be long once; a page that is slow is so with each event.
    assert len(told["over"]) < LIVE_SECONDS * 50 / 10, told
