"""The card by which a person decides on a call, and the clicks and keys that the decision takes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.command import commands_of
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "shop"

pytestmark = pytest.mark.timeout(300)


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


def ask(gateway: Gateway, books: Path, order: int, amount: int, **fields: str) -> str:
    """A run of the chief whose clerk waits with a refund."""
    run = gateway.submit("chief", f"Order {order} came broken, have clerk: refund {books} {order} {amount}", **fields)
    gateway.wait_for(run, "approval.requested")
    return run


def test_the_refund_of_order_17_is_approved_with_two_clicks(
    page: Page, stack: Stack, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    for order in (11, 12):
        ask(gateway, books, order, 300)
        (call,) = gateway.request("GET", "/v1/approvals").json()["approvals"]
        verdict = {"verdict": "approved" if order == 11 else "rejected"}
        assert gateway.request("POST", f"/v1/approvals/{call['call']}", json=verdict).status_code in (200, 202)
    run = ask(gateway, books, 17, 500, user="ann", session="s-17")
    ask(gateway, books, 18, 800)
    cadre = commands_of(stack, tmp_path)
    assert "Refund 500 € for order 17" in cadre("approvals").stdout

    page.goto(f"{gateway.service.url}/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Approvals").click()
    card = page.get_by_role("article", name="Refund 500 € for order 17")
    expect(card.get_by_role("heading", level=2)).to_contain_text("Refund 500 € for order 17")
    expect(card.locator(".chain li")).to_have_count(2)
    expect(card.locator(".chain li").first).to_contain_text("chief Order 17 came broken")
    expect(card.locator(".chain li").last).to_contain_text("clerk refund")
    expect(card.locator(".meta")).to_contain_text("for ann")
    expect(card.locator(".meta")).to_contain_text("session s-17")
    expect(card.locator(".meta")).to_contain_text("counts as rejected in")
    expect(card.locator(".earlier .badge")).to_have_text(["approved 1", "rejected 1"])
    expect(card.locator(".results")).to_contain_text("delivered on 3 May")
    expect(card.locator(".reason")).to_contain_text("amount > 100")
    pictures.at_all_widths(page, "deciding")
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card).to_have_count(0)
    assert gateway.finished(run)["state"] == "success"
    assert "17 500" in books.read_text()


def test_calls_are_decided_with_keys_that_the_page_names(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    for call in gateway.request("GET", "/v1/approvals").json()["approvals"]:
        gateway.request("POST", f"/v1/approvals/{call['call']}", json={"verdict": "rejected"})
    runs = [ask(gateway, tmp_path / "books", order, 500) for order in (21, 22, 23, 24)]
    page.get_by_role("link", name="Approvals").click()
    cards = page.get_by_role("article")
    expect(cards).to_have_count(4)
    expect(page.locator(".keys")).to_contain_text("a approve")
    orders = [re.search(r"order (\d+)", text)[1] for text in cards.get_by_role("heading", level=2).all_inner_texts()]  # type: ignore[index]
    run_of = {str(order): run for order, run in zip((21, 22, 23, 24), runs, strict=True)}

    page.keyboard.press("a")  # no card has been chosen: nothing is approved
    page.keyboard.press("j")
    expect(cards.first).to_have_attribute("aria-current", "true")
    page.keyboard.press("j")
    second = cards.nth(1)
    expect(second).to_have_attribute("aria-current", "true")
    page.keyboard.press("e")
    page.keyboard.type("jar")  # into the field, where keys are text
    expect(second.get_by_label("file")).to_have_value(re.compile("jar"))
    second.get_by_role("heading").first.click()
    page.keyboard.press("k")
    page.keyboard.press("r")
    expect(cards).to_have_count(3)
    decided = gateway.request("GET", f"/v1/approvals?state=decided&tree={run_of[orders[0]]}").json()["approvals"]
    assert [one["decision"]["verdict"] for one in decided] == ["rejected"]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_role("button", name="Approve 2").click()
    expect(cards).to_have_count(1)
    assert [gateway.finished(run_of[order])["state"] for order in orders[2:]] == ["success", "success"]
    books = (tmp_path / "books").read_text().split("\n")
    assert sorted(filter(None, books)) == sorted(f"{order} 500" for order in orders[2:])
