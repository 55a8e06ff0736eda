"""Schedules, triggers, notices and budgets are made, changed, paused and removed with forms, as rights allow."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser_console.observed import Errors, Pictures
from cadre.automation.notice import signature
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "held"
ADMIN_KEY = "0123456789abcdef" * 4
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment |= {"CADRE_SECRET_SHOP": SECRET}
        stack.model(Path(__file__).parent / "script.yaml")
        for name in ("chief", "clerk"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.open_gateway(2)
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    return Gateway(stack.services["gateway"])


def section(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name)


def test_a_schedule_is_made_with_what_is_wrong_said_at_its_field(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    page.get_by_role("link", name="Automation").click()
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("morning report")
    dialog.get_by_label("Agent", exact=True).select_option("clerk")
    save = dialog.get_by_role("button", name="Make")
    save.click()
    task = dialog.get_by_label("Task")
    expect(task).to_be_focused()
    expect(task).to_have_attribute("aria-invalid", "true")
    task.fill("Report of {{ tick.date( }}")
    save.click()
    every = dialog.get_by_label("Every", exact=True)
    expect(every).to_be_focused()
    every.fill("10 moons")
    for label, right in (("Name", "morning"), ("Task", "Report of {{ tick.date() }}"), ("Every", "10m")):
        save.click()
        field = dialog.get_by_label(label, exact=True)
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        field.fill(right)
        expect(field).not_to_have_attribute("aria-invalid", "true")
    errors.forgive("422")
    dialog.get_by_text("More").click()
    count = dialog.get_by_label("Ticks in all")
    count.fill("lots")
    save.click()
    expect(dialog.locator(".wrong:visible")).to_have_text("“lots” is not a number")
    pictures.at_all_widths(page, "automation-form")
    count.fill("")
    dialog.get_by_label("Time zone").fill("Europe/Berlin")
    dialog.get_by_label("Options of its runs").fill('{"inputs": {"account": 9007199254740993}}')
    save.click()
    expect(dialog).to_have_count(0)
    made = gateway.request("GET", "/v1/schedules/morning").json()
    assert made["spec"] == {
        "agent": "clerk",
        "task": "Report of {{ tick.date() }}",
        "every": "10m",
        "time_zone": "Europe/Berlin",
        "options": {"inputs": {"account": 2**53 + 1}},
    }


def test_a_schedule_is_paused_changed_run_and_removed(page: Page, gateway: Gateway) -> None:
    made = gateway.request("GET", "/v1/schedules/morning").json()
    page.goto(f"{gateway.service.url}/#/automation")
    dialog = page.get_by_role("dialog")
    row(page, "morning").get_by_role("button", name="Pause").click()
    expect(row(page, "morning")).to_contain_text("paused")
    assert gateway.request("GET", "/v1/schedules/morning").json()["paused"]
    row(page, "morning").get_by_role("button", name="Resume").click()
    expect(row(page, "morning")).to_contain_text("active")
    row(page, "morning").get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Name", exact=True)).not_to_be_editable()
    expect(dialog.get_by_label("Options of its runs")).to_have_value(
        '{\n  "inputs": {\n    "account": 9007199254740993\n  }\n}'
    )
    dialog.get_by_label("Every", exact=True).fill("2h")
    dialog.get_by_role("button", name="Save").click()
    expect(row(page, "morning")).to_contain_text("every 2h")
    changed = gateway.request("GET", "/v1/schedules/morning").json()
    assert changed["spec"] == {**made["spec"], "every": "2h"}
    page.get_by_role("button", name="New schedule").click()
    dialog.get_by_label("Name", exact=True).fill("morning")
    dialog.get_by_label("Agent", exact=True).select_option("clerk")
    dialog.get_by_label("Task").fill("x")
    dialog.get_by_label("Every", exact=True).fill("1d")
    dialog.get_by_role("button", name="Make").click()
    expect(dialog.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    dialog.get_by_role("button", name="Close").click()

    row(page, "morning").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("treeitem").filter(has_text="clerk").first).to_be_visible()
    page.go_back()
    row(page, "morning").get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row(page, "morning")).to_have_count(0)
    assert gateway.request("GET", "/v1/schedules/morning").status_code == 404


def test_a_trigger_shows_its_address_and_deliveries_and_is_tried(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    page.goto(f"{gateway.service.url}/#/automation")
    page.get_by_role("button", name="New trigger").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("orders")
    dialog.get_by_label("Agent", exact=True).select_option("clerk")
    dialog.get_by_label("Task").fill("Look at order {{ payload.number }}.")
    dialog.get_by_label("Subject on the bus").fill("orders.*")
    secret = dialog.get_by_label("Variable of the secret")
    secret.fill(SECRET)
    dialog.get_by_role("button", name="Make").click()
    expect(secret).to_have_attribute("aria-invalid", "true")
    errors.forgive("422")
    secret.fill("CADRE_SECRET_SHOP")
    dialog.get_by_role("button", name="Make").click()
    card = page.get_by_role("article").filter(has_text="orders")
    expect(card).to_contain_text(f"POST {gateway.service.url}/v1/triggers/orders")
    expect(card).to_contain_text("cadre.event.orders.*")

    body, now = b'{"number": 9007199254740993}', int(time.time())
    headers = {"webhook-id": "m1", "webhook-timestamp": str(now), "webhook-signature": "v1,bm8="}
    refused = gateway.request("POST", "/v1/triggers/orders", content=body, headers=headers)
    assert refused.json()["code"] == "invalid-signature"
    headers["webhook-signature"] = signature(SECRET, "m1", now, body)
    taken = gateway.request("POST", "/v1/triggers/orders", content=body, headers=headers)
    run = taken.json()["id"]
    deliveries = card.locator(".deliveries")
    expect(deliveries).to_contain_text("invalid-signature")
    expect(deliveries.get_by_role("link", name="Look at order 9007199254740993.")).to_have_attribute(
        "href", f"#/run/{run}"
    )
    pictures.at_all_widths(page, "automation")


def test_a_trigger_is_tried_with_a_message(page: Page, gateway: Gateway, errors: Errors, pictures: Pictures) -> None:
    page.goto(f"{gateway.service.url}/#/automation")
    dialog = page.get_by_role("dialog")
    card = page.get_by_role("article").filter(has_text="orders")
    deliveries = card.locator(".deliveries")
    card.get_by_role("button", name="Try it").click()
    dialog.get_by_label("Message").fill('{"nummer": 1}')
    dialog.get_by_role("button", name="Show the task").click()
    expect(dialog.get_by_role("alert")).to_contain_text("number")
    dialog.get_by_label("Message").fill('{"number": 18446744073709551617}')
    dialog.get_by_role("button", name="Show the task").click()
    expect(dialog.locator("pre")).to_have_text("Look at order 18446744073709551617.")
    runs = len(gateway.request("GET", "/v1/runs?label=trigger=orders").json()["runs"])
    pictures.take(page, "automation-try")
    dialog.get_by_role("button", name="Start the run").click()
    expect(page.get_by_role("treeitem").filter(has_text="clerk").first).to_be_visible()
    page.go_back()
    expect(deliveries.get_by_role("link")).to_have_count(runs + 1)
    errors.forgive("422")


def test_a_trigger_is_paused_resumed_and_removed(page: Page, gateway: Gateway) -> None:
    page.goto(f"{gateway.service.url}/#/automation")
    dialog = page.get_by_role("dialog")
    card = page.get_by_role("article").filter(has_text="orders")
    body, now = b'{"number": 1}', int(time.time())
    headers = {"webhook-timestamp": str(now)}
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("paused")
    headers |= {"webhook-id": "m2", "webhook-signature": signature(SECRET, "m2", now, body)}
    answer = gateway.request("POST", "/v1/triggers/orders", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "trigger-paused")
    card.get_by_role("button", name="Resume").click()
    expect(card).to_contain_text("active")
    again = gateway.request("POST", "/v1/triggers/orders", content=body, headers=headers)
    assert again.status_code == 202
    card.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(card).to_have_count(0)


def test_a_notice_and_a_budget_are_made_changed_paused_and_removed(page: Page, gateway: Gateway) -> None:
    page.goto(f"{gateway.service.url}/#/automation")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="New notice").click()
    dialog.get_by_label("Name", exact=True).fill("desk")
    dialog.get_by_label("Address").fill("https://desk.example/hook")
    dialog.get_by_label("Variable of the secret").fill("CADRE_SECRET_SHOP")
    dialog.get_by_label("run.finished").check()
    dialog.get_by_label("error", exact=True).check()
    dialog.get_by_label("Agents").fill("chief, clerk")
    dialog.get_by_role("button", name="Make").click()
    expect(row(page, "desk")).to_contain_text("https://desk.example/hook")
    wanted = {
        "name": "desk",
        "url": "https://desk.example/hook",
        "secret_env": "CADRE_SECRET_SHOP",
        "events": ["run.finished"],
        "states": ["error"],
        "agents": ["chief", "clerk"],
    }
    assert gateway.request("GET", "/v1/notices/desk").json() == wanted
    row(page, "desk").get_by_role("button", name="Pause").click()
    expect(row(page, "desk")).to_contain_text("paused")
    assert gateway.request("GET", "/v1/notices/desk").json() == {**wanted, "paused": True}
    row(page, "desk").get_by_role("button", name="Resume").click()
    expect(row(page, "desk")).to_contain_text("active")
    assert gateway.request("GET", "/v1/notices/desk").json() == wanted
    row(page, "desk").get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row(page, "desk")).to_have_count(0)

    page.get_by_role("button", name="New budget").click()
    dialog.get_by_label("Name", exact=True).fill("monthly")
    dialog.get_by_role("button", name="Make").click()
    expect(dialog.get_by_label("Tokens at most")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("In each").select_option("month")
    dialog.get_by_label("Tokens at most").fill("9007199254740993")
    dialog.get_by_label("Cost at most").fill("12.50")
    dialog.get_by_label("User").fill("*")
    dialog.get_by_role("button", name="Make").click()
    expect(row(page, "monthly")).to_contain_text("each user")
    spec = {"window": "month", "tokens": 2**53 + 1, "cost": 12.5, "user": "*"}
    assert gateway.request("GET", "/v1/budgets/monthly").json()["spec"] == spec
    row(page, "monthly").get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Tokens at most")).to_have_value("9007199254740993")
    dialog.get_by_label("Cost at most").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert gateway.request("GET", "/v1/budgets/monthly").json()["spec"] == {
        "window": "month",
        "tokens": 2**53 + 1,
        "user": "*",
    }
    row(page, "monthly").get_by_role("button", name="Pause").click()
    expect(row(page, "monthly")).to_contain_text("paused")
    row(page, "monthly").get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row(page, "monthly")).to_have_count(0)


@pytest.mark.parametrize(
    ("options", "buttons"),
    [
        ({"roles": ["viewer"]}, set()),
        ({"roles": ["operator"]}, {"New schedule", "Run now", "Change", "Pause", "Remove", "Try it"}),
        (
            {"roles": ["admin"]},
            {
                *("New schedule", "New trigger", "New notice", "New budget"),
                *("Run now", "Change", "Pause", "Remove", "Try it"),
            },
        ),
    ],
    ids=["viewer", "operator", "admin"],
)
def test_who_may_not_write_sees_no_buttons_for_it(
    browser: Browser, stack: Stack, errors: Errors, options: dict[str, list[str]], buttons: set[str]
) -> None:
    if "asking" not in stack.services:
        stack.add("asking", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)
    url = stack.services["asking"].url
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=30) as http:
        (role,) = options["roles"]
        key = http.post("/v1/keys", json={"name": f"of-{role}", **options}).json()["token"]
        hours = {"agent": "clerk", "task": "x", "every": "1d"}
        hook = {"agent": "clerk", "task": "x", "subject": "x"}
        assert http.put("/v1/schedules/daily", content=json.dumps(hours)).status_code == 200
        assert http.put("/v1/triggers/hook", content=json.dumps(hook)).status_code == 200
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/#/automation")
    page.get_by_label("API key").fill(key)
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(row(page, "daily")).to_be_visible()
    expect(page.get_by_role("article").filter(has_text="hook").get_by_role("button", name="Show")).to_be_visible()
    names = set(page.locator("main").get_by_role("button").all_inner_texts())
    assert names - {"Show", "Copy"} == buttons
    changes = [row(page, "daily"), page.get_by_role("article").filter(has_text="hook")]
    may_change = [place.get_by_role("button", name="Change").count() for place in changes]
    assert may_change == {"viewer": [0, 0], "operator": [1, 0], "admin": [1, 1]}[role]
    context.close()
    errors.clear()
