"""Numbers of more digits than a double has, on each page of the console; and a page that meets what it cannot show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from browser_console.observed import Errors, Pictures
from harness.people import waiting
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "digits"
ACCOUNT = str(2**53 + 1)
ABOUT = {"ids": [2**64 + 1, -(2**63) - 1], "rate": 1.0}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "payer.yaml", start=False)
        stack.tools(TEAM / "bank.py", start=False)
        yield stack.open_gateway(1)


def the_call(page: Page) -> Locator:
    """The row of the one call."""
    return page.locator(".row:has(.name.call)")


def held(gateway: Gateway) -> str:
    run = gateway.submit("payer", "pay")
    waiting(gateway, run)
    return run


def booked(gateway: Gateway, run: str) -> dict[str, Any]:
    assert gateway.finished(run)["state"] == "success"
    (found,) = [data["event"]["output"] for event, data in gateway.events(run) if event == "tool.answered"]
    return dict(found)


def test_the_amount_is_corrected_and_the_account_keeps_its_digits(
    page: Page, gateway: Gateway, pictures: Pictures
) -> None:
    run = held(gateway)
    page.goto(f"{gateway.service.url}/#/approvals?tree={run}")
    card = page.get_by_role("article")
    expect(card.get_by_label("account")).to_have_value(ACCOUNT)
    expect(card.get_by_role("button", name="Approve")).to_have_text("Approve")
    card.get_by_label("amount").fill("90")
    expect(card.locator(".changes").get_by_role("row")).to_have_count(2)  # the head, and the amount
    pictures.take(page, "exact-numbers")
    card.get_by_role("button", name="Approve with changes").click()
    expect(page.get_by_role("article")).to_have_count(0)
    assert booked(gateway, run) == {
        "account": int(ACCOUNT),
        "digits": ACCOUNT,
        "amount": 90,
        "about": ABOUT,
    }

    page.get_by_role("link", name="Decided").click()
    expect(page.get_by_role("row").filter(has_text=ACCOUNT)).to_have_count(1)
    page.goto(f"{gateway.service.url}/#/run/{run}")
    call = the_call(page)
    expect(call).to_contain_text(ACCOUNT)
    call.click()
    detail = page.get_by_role("region", name="Details")
    for digits in (ACCOUNT, str(2**64 + 1), "1.0"):
        expect(detail.get_by_text(digits, exact=True).first).to_be_visible()


def test_an_account_is_typed_in_digit_by_digit_and_two_runs_are_compared(page: Page, gateway: Gateway) -> None:
    runs = [held(gateway), held(gateway)]
    for run, account in zip(runs, (str(2**53 + 2), str(2**53 + 3)), strict=True):
        page.goto(f"{gateway.service.url}/#/run/{run}")
        the_call(page).click()
        page.get_by_role("button", name="Edit as JSON").click()
        raw = page.get_by_label("Arguments as JSON")
        raw.fill(raw.input_value().replace(ACCOUNT, account))
        page.get_by_role("button", name="Edit as fields").click()
        expect(page.get_by_label("account")).to_have_value(account)
        page.get_by_role("button", name="Approve with changes").click()
        assert booked(gateway, run)["digits"] == account
    page.goto(f"{gateway.service.url}/#/compare/{runs[0]}/{runs[1]}")
    first = page.get_by_role("region", name="Step 1", exact=True)
    expect(first).to_contain_text("differs")
    for account in (str(2**53 + 2), str(2**53 + 3)):
        expect(first.get_by_text(account, exact=True).first).to_be_visible()


def test_arguments_beside_the_task_are_sent_again(page: Page, gateway: Gateway) -> None:
    given = {"account": int(ACCOUNT) + 2**60, "about": ABOUT}
    run = gateway.submit("payer", "pay from variables", inputs=given)
    waiting(gateway, run)
    page.goto(f"{gateway.service.url}/#/run/{run}")
    page.get_by_role("button", name="Again").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page).not_to_have_url(f"{gateway.service.url}/#/run/{run}")
    expect(the_call(page)).to_be_visible()
    again = page.url.split("#/run/")[1].split("?")[0]
    accepted = [data["event"] for event, data in _events_so_far(gateway, again) if event == "run.accepted"]
    assert accepted[0]["task"]["inputs"] == given


def test_the_other_pages_keep_the_digits_too(page: Page, gateway: Gateway) -> None:
    run = gateway.submit("payer", "pay", session="digits", user=ACCOUNT)
    waiting(gateway, run)
    page.goto(f"{gateway.service.url}/#/overview")
    expect(page.get_by_role("region", name="Needs a person")).to_contain_text(f"account={ACCOUNT}")
    page.goto(f"{gateway.service.url}/#/runs?columns=user")
    expect(page.locator(".runs .c-user").filter(has_text=ACCOUNT)).to_have_count(1)
    page.goto(f"{gateway.service.url}/#/chat?agent=payer&session=digits")
    account = page.get_by_label("account")
    expect(account).to_have_value(ACCOUNT)
    account.fill(str(2**53 + 5))
    page.get_by_role("button", name="Approve with changes").click()
    assert booked(gateway, run)["digits"] == str(2**53 + 5)

    page.goto(f"{gateway.service.url}/#/runs")
    page.get_by_role("button", name="New run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("pay from variables")
    dialog.get_by_text("More").click()
    given = {"account": 2**64 + 3, "about": ABOUT}
    dialog.get_by_label("Arguments as JSON").fill(json.dumps(given))
    dialog.get_by_role("button", name="Start").click()
    expect(the_call(page)).to_be_visible()
    started = page.url.split("#/run/")[1].split("?")[0]
    accepted = [data["event"] for event, data in _events_so_far(gateway, started) if event == "run.accepted"]
    assert accepted[0]["task"]["inputs"] == given


def test_what_the_page_cannot_show_is_named_and_the_rest_is_shown(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    run = held(gateway)
    asks = []

    def broken(route: Route) -> None:
        asks.append(route.request.url)
        if len(asks) > 1:
            route.fulfill(status=503, json={"code": "away", "detail": "NATS is away"})
            return
        unread = "event: rows\nid: 1\ndata: {oops\n\n"
        untaken = _frame("rows", {"seq": 2, "rows": [{"key": {"toString": 1}}]})
        text = "".join([unread, untaken, *(_frame(name, data) for name, data in _rows_so_far(gateway, run))])
        route.fulfill(status=200, content_type="text/event-stream", body=text)

    page.route(f"**/v1/runs/{run}/events*", broken)
    page.goto(f"{gateway.service.url}/#/run/{run}")
    expect(the_call(page)).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="2 events")).to_contain_text("cadre show")
    expect(page.locator(".meta .bad")).to_contain_text("NATS is away")
    pictures.take(page, "fault")
    errors.forgive("503")


def _events_so_far(gateway: Gateway, run: str) -> list[tuple[str, dict[str, Any]]]:
    """The events up to the held call: the stream of a run that waits has no end."""
    found = []
    for name, data in gateway.events(run):
        found.append((name, data))
        if name == "approval.requested":
            break
    return found


def _rows_so_far(gateway: Gateway, run: str) -> list[tuple[str, dict[str, Any]]]:
    """The rows up to the held call."""
    found = []
    for name, data in gateway.events(run, view="rows"):
        found.append((name, data))
        if any(row.get("state") == "held" for row in data.get("rows", ())):
            break
    return found


def _frame(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\nid: {data['seq']}\ndata: {json.dumps(data)}\n\n"
