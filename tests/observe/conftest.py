"""A real browser to look at what backends show."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from observe.demo import ROOT

PICTURES = ROOT / "build" / "observe"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

_SHOWN_WITHIN = 180_000
"""Milliseconds."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH; what it shows is NOT tested")
    expect.set_options(timeout=_SHOWN_WITHIN)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--disable-quic", "--no-sandbox"])


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose last state is kept as a picture in build/observe."""
    context = browser.new_context(viewport={"width": 1700, "height": 1500})
    context.set_default_timeout(_SHOWN_WITHIN)
    page = context.new_page()
    yield page
    page.screenshot(path=PICTURES / f"{request.node.name}.png")
    context.close()
