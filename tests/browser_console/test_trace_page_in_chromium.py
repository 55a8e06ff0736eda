"""The page of a trace in a real browser: however long an error is, however deep a tree, it is within the screen."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from cadre.telemetry.tracing.page import page
from cadre.telemetry.tracing.spans import SpanRecord

DEEP = 25


def deep_trace() -> list[SpanRecord]:
    return [
        SpanRecord(
            trace="ab" * 16,
            span=f"{depth:016x}",
            parent=f"{depth - 1:016x}" if depth else None,
            name=f"invoke_agent agent_with_a_long_name_{depth}",
            start=depth * 10**9,
            end=90 * 10**9,
            service="agent_with_a_long_name",
            run="r",
            status="ERROR",
            message="ValueError:" + "x" * 5000,
            attributes={"input.value": "y" * 5000},
        )
        for depth in range(DEEP)
    ]


@pytest.mark.parametrize("width", [1280, 400])
def test_long_errors_stay_within_the_screen(browser: Browser, tmp_path: Path, width: int) -> None:
    file = tmp_path / "trace.html"
    file.write_text(page(deep_trace(), "boss " + "9" * 32).replace("<details>", "<details open>"))
    shown = browser.new_page(viewport={"width": width, "height": 800})
    shown.goto(file.as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    names = shown.locator("summary")
    assert names.count() == DEEP
    assert min(box["width"] for one in names.all() if (box := one.bounding_box())) > width / 10
    shown.close()
