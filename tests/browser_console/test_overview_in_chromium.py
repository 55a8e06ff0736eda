"""The first page in a real browser: what needs a person, charts of what happened, and where they lead."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "tests" / "e2e" / "held"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(Path(__file__).parent / "script.yaml")
        stack.agent(TEAM / "chief.yaml", start=False)
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway()
        gateway.wait_offered(2)
        yield gateway


def test_what_needs_a_person_and_what_happened(
    page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    page.goto(f"{gateway.service.url}/")
    expect(page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")
    needs = page.get_by_role("region", name="Needs a person")
    expect(needs.locator(".empty")).to_be_visible()
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 500")
    card = needs.get_by_role("article").filter(has_text="refund")
    expect(card.get_by_role("link", name="1 waiting for a decision")).to_have_attribute("href", "#/approvals")
    page.reload()
    expect(card).to_be_visible()
    tokens = page.get_by_role("figure").filter(has_text="Tokens by agent")
    expect(tokens.get_by_text("clerk").first).to_be_attached()
    for name in ("overview", "overview-phone"):
        pictures.take(page, name)
        page.set_viewport_size({"width": 390, "height": 820})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 900})

    page.get_by_role("combobox", name="In the last").select_option("hour")
    minute = tokens.locator("a").filter(has_text="clerk").last
    expect(minute).to_have_attribute("href", re.compile(r"^#/runs\?member=clerk&since=\d+&until=\d+$"))
    since, until = (int(part) for part in re.findall(r"\d{9,}", str(minute.get_attribute("href"))))
    assert until - since == 60
    page.get_by_role("combobox", name="In the last").select_option("day")
    page.get_by_role("combobox", name="By").select_option("model")
    expect(page.get_by_role("figure").filter(has_text="Tokens by model")).to_be_visible()
    page.get_by_role("combobox", name="By").select_option("agent")
    bar = tokens.locator("a").filter(has_text="clerk")
    expect(bar).to_have_attribute("href", re.compile(r"^#/runs\?member=clerk&since=\d+&until=\d+$"))
    bar.click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    expect(page.get_by_label("Member", exact=True)).to_have_value("clerk")
    expect(page.locator(".runs tbody tr").filter(has_text="have clerk")).to_have_count(1)
    page.get_by_label("Asked for").select_option("")
    expect(page).to_have_url(f"{gateway.service.url}/#/runs?member=clerk")

    page.goto(f"{gateway.service.url}/")
    card.get_by_role("link", name=re.compile(r"^refund\(.*amount=500")).click()
    expect(page.get_by_role("region", name="Details").get_by_role("heading", name="refund")).to_be_visible()
    assert gateway.request("POST", f"/v1/runs/{run}/cancel", json={}).status_code == 202


def test_statistics_have_charts_by_what_is_chosen(
    page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 50", user="ann")
    gateway.finished(run)
    page.goto(f"{gateway.service.url}/#/statistics?span=hour")
    for by, name in (("agent", "clerk"), ("user", "ann"), ("tool", "refund")):
        page.get_by_role("combobox", name="By").select_option(by)
        title = f"{'Calls' if by == 'tool' else 'Tokens'} by {by}"
        figure = page.get_by_role("figure").filter(has_text=title)
        expect(figure.locator(".legend").get_by_text(name)).to_be_visible()
        expect(page.locator("main > div > .scroll > table").get_by_role("cell", name=name, exact=True)).to_be_visible()
    page.get_by_role("combobox", name="By").select_option("user")
    expect(page.get_by_role("figure").filter(has_text="Tokens by user").locator("a").last).to_have_attribute(
        "href", re.compile(r"^#/runs\?user=ann&since=\d+&until=\d+$")
    )
    page.get_by_role("combobox", name="By").select_option("day")
    expect(page.get_by_role("figure")).to_have_count(2)
    page.get_by_role("combobox", name="By").select_option("agent")
    expect(page.get_by_role("figure")).to_have_count(4)
    pictures.at_all_widths(page, "statistics")
