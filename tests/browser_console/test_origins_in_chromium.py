"""A held call in a real browser says where the values of its arguments first stood, and leads there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "ruled"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(1)
    return gateway


def test_a_held_payment_shows_the_mail_that_named_its_recipient(
    page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    run = gateway.submit("clerk", f"Pay the bill, note it in {tmp_path / 'books'} 200")
    gateway.wait_for(run, "approval.requested")
    (call,) = gateway.request("GET", f"/v1/approvals?run={run}").json()["approvals"]
    _, brought, place = call["origins"]["recipient"]
    page.get_by_role("link", name="Approvals").click()
    card = page.get_by_role("article").filter(has_text="pay")
    origins = card.locator(".origins")
    expect(origins.locator("dd.strange")).to_contain_text(place)
    expect(origins.locator("dd.known").first).to_be_visible()
    pictures.take(page, "origins")
    origins.get_by_role("link", name=place).click()
    expect(page).to_have_url(f"{gateway.service.url}/#/run/{run}?at=call%3A{brought}")
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("read_mail")
