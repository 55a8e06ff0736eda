"""The inbox of approvals in a real browser: several calls decided at once, what was changed, and who decided."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Errors, Pictures
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "held"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(Path(__file__).parent / "script.yaml")
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.environment["CADRE_TRACE_URL"] = "http://127.0.0.1:9/trace/{trace_id}?from=cadre"
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(1)
    return gateway


def asked(page: Page, gateway: Gateway, books: Path, *amounts: int) -> list[str]:
    """Runs that each wait with a refund of such an amount; the page shows them all."""
    runs = [gateway.submit("clerk", f"refund {books} {amount}") for amount in amounts]
    for run in runs:
        gateway.wait_for(run, "approval.requested")
    page.get_by_role("link", name="Approvals").click()
    expect(page.get_by_role("article")).to_have_count(len(runs))
    return runs


def test_several_calls_are_decided_at_once_and_each_outcome_is_told(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures, tmp_path: Path
) -> None:
    runs = asked(page, gateway, tmp_path / "books", 601, 602, 603)
    card = page.get_by_role("article").filter(has_text="601")
    card.get_by_label("amount").fill("60")
    row = card.locator(".changes").get_by_role("row").filter(has_text="amount")
    expect(row.locator("del")).to_have_text("601")
    expect(row.locator("ins")).to_have_text("60")
    page.get_by_label("All", exact=True).check()
    pictures.take(page, "approvals-batch")
    expect(page.get_by_role("button", name="Reject 3")).to_be_enabled()

    # Somebody else is quicker with one of them.
    (call,) = gateway.request("GET", f"/v1/approvals?run={runs[2]}").json()["approvals"]
    quicker = {"verdict": "rejected", "feedback": "Never."}
    path = f"/v1/approvals/{call['call']}"
    page.route("**/v1/approvals?*", lambda route: route.abort())  # the list does not tell it in time
    assert gateway.request("POST", path, json=quicker, headers={"Cadre-User": "ann"}).status_code in (
        200,
        202,
    )
    gateway.finished(runs[2])
    page.get_by_role("button", name="Approve 3").click()
    outcomes = page.get_by_role("status", name="Outcomes").get_by_role("listitem")
    expect(outcomes).to_have_count(3)
    expect(outcomes.filter(has_text="not decided")).to_have_count(1)
    page.unroute("**/v1/approvals?*")
    errors.forgive("409", "net::ERR_FAILED")
    assert [gateway.finished(run)["state"] for run in runs[:2]] == ["success", "success"]
    assert sorted((tmp_path / "books").read_text().split()) == sorted(["refund", "60", "refund", "602"])

    page.get_by_role("link", name="Decided").click()
    corrected = page.get_by_role("row").filter(has=page.get_by_text("corrected"))
    expect(corrected.locator("del").first).to_have_text("601")
    rejected = page.get_by_role("row").filter(has_text="Never.")
    expect(rejected).to_contain_text("ann")
    pictures.take(page, "decided")
    rejected.get_by_role("link").click()
    expect(page.get_by_role("tree")).to_be_visible()


def test_a_session_is_a_conversation_with_its_approvals_in_place(
    page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    page.get_by_role("link", name="Chat").click()
    log = page.get_by_role("log")
    expect(log).to_contain_text("Nothing was said yet.")
    page.get_by_label("Message").fill(f"refund {books} 50")
    page.get_by_role("button", name="Send").click()
    expect(log.get_by_role("article").first).to_contain_text("refund 50 is done")

    page.get_by_label("Message").fill(f"refund {books} 700")
    page.get_by_role("button", name="Send").click()
    held = log.get_by_role("article").nth(1)
    held.get_by_label("amount").fill("70")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    pictures.take(page, "chat")
    held.get_by_role("button", name="Approve with changes").click()
    expect(held).to_contain_text("refund 70 is done")

    # The session lies in the address: anyone who opens it reads the same.
    page.reload()
    expect(log.get_by_role("article")).to_have_count(2)
    expect(log.get_by_role("article").last).to_contain_text("refund 70 is done")
    page.get_by_role("button", name="New session").click()
    expect(log).to_contain_text("Nothing was said yet.")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_run_is_forked_with_another_outcome_and_its_trace_is_linked(
    page: Page, gateway: Gateway, tmp_path: Path
) -> None:
    run = gateway.submit("clerk", f"refund {tmp_path / 'books'} 50")
    gateway.finished(run)
    page.goto(f"{gateway.service.url}/#/run/{run}?at=step:{run}:2")
    trace = gateway.run(run)["trace"]
    linked = page.get_by_role("link", name="in the tracing dashboard")
    expect(linked).to_have_attribute("href", f"http://127.0.0.1:9/trace/{trace}?from=cadre")

    page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Other outcomes").click()
    dialog.get_by_label("refund (").fill("the bank is closed")
    dialog.get_by_role("button", name="Fork").click()
    expect(page).not_to_have_url(re.compile(run))
    expect(page.locator(".run-head .badge")).to_have_text("success")
    forked = page.url.split("#/run/")[1].split("?")[0]
    assert forked != run
    assert gateway.finished(forked)["output"] == "the bank is closed"


def test_a_run_whose_steps_are_used_up_is_gone_on_with(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    run = gateway.submit("clerk", f"refund {tmp_path / 'books'} 50", max_steps=1)
    assert gateway.finished(run)["state"] == "max_steps_error"
    page.goto(f"{gateway.service.url}/#/run/{run}")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".run-head .badge")).to_have_text("success")
    assert run not in page.url
