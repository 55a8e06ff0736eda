"""The drawing of the team in a real browser: it fits any width, and the tools of a service are one until opened."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.command import commands_of
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "shop"

pytestmark = pytest.mark.timeout(300)

FITS = "[...document.querySelectorAll('.graph')].every((one) => one.scrollWidth <= one.clientWidth)"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "chief.yaml", start=False)
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(2)
    return gateway


def test_the_drawing_of_the_team_fits_any_width(
    page: Page, stack: Stack, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    cadre = commands_of(stack, tmp_path)
    members = [f"member_{number}" for number in range(9)]
    cards = [{"name": "boss", "description": "Leads.", "team": ["chief", *members]}]
    cards += [{"name": name, "description": "Works."} for name in members]
    for card in cards:
        assert cadre("provision", "--at-rest", json.dumps(card)).returncode == 0
    gateway.wait_offered(12)

    page.goto(f"{gateway.service.url}/#/team")
    drawing = page.get_by_role("group", name="Team: ")
    expect(drawing.locator(".step").filter(has_text="member_8")).to_be_visible()
    for width in (1440, 1024, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        expect(drawing.locator(".step").filter(has_text="boss")).to_be_in_viewport()
        eventually(lambda: page.evaluate(FITS), what=f"the graph fits {width} px")
    page.set_viewport_size({"width": 1280, "height": 820})

    service = drawing.get_by_role("button", name="3 tools (look_up, pay_back, read_letters)")
    expect(service).to_have_attribute("aria-expanded", "false")
    expect(drawing.locator(".step").filter(has_text="pay_back").filter(has_not_text="3 tools")).to_have_count(0)
    pictures.at_all_widths(page, "team-graph")
    service.focus()
    page.keyboard.press("Enter")
    expect(service).to_have_attribute("aria-expanded", "true")
    expect(service).to_be_focused()
    expect(drawing.locator(".way").filter(has_text="3 tools leads to pay_back")).to_have_count(1)
    pictures.at_all_widths(page, "team-graph-open")
    service.click()
    expect(service).to_have_attribute("aria-expanded", "false")
    for card in cards:
        assert cadre("retire", str(card["name"])).returncode == 0
