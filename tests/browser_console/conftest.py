"""A real browser for the console."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from browser_console.observed import Errors, Pictures
from harness.patience import patience
from harness.stack import Gateway

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH; the console is NOT tested")
    expect.set_options(timeout=1000 * patience(20))
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--disable-quic"])


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture(scope="session")
def pictures() -> Pictures:
    return Pictures()


@pytest.fixture
def page(browser: Browser, gateway: Gateway, errors: Errors) -> Iterator[Page]:
    """The console of the module's gateway; the test fails when the browser complains."""
    context = browser.new_context(viewport={"width": 1280, "height": 820}, color_scheme="light")
    page = context.new_page()
    errors.watch(page)
    page.goto(f"{gateway.service.url}/#/runs")
    yield page
    context.close()
    assert errors == []
