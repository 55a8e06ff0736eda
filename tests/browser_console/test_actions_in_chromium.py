"""Tests of what people do with the console's buttons: correct a proposal, edit a queue, tell, compare, pause, retry."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from browser_console.observed import Errors, Pictures
from cadre.adapters.nats.streams import jetstream
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAMS = Path(__file__).parents[2] / "teams"

PAGES = (
    "runs",
    "chat",
    "approvals",
    "approvals?view=decided",
    "team",
    "statistics",
    "automation",
    "memory",
    "dead-letters",
    "system",
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    rules = [
        rule
        for team in ("expenses", "tickets")
        for rule in yaml.safe_load((TEAMS / team / "script.yaml").read_text())["rules"]
    ]
    script = folder / "script.yaml"
    script.write_text(yaml.safe_dump({"rules": rules}, sort_keys=False))
    with Stack(folder) as stack:
        stack.model(script)
        stack.environment["TICKETS_DB"] = str(folder / "tickets.sqlite")
        stack.agent(TEAMS / "expenses" / "auditor.yaml", start=False)
        stack.agent(TEAMS / "tickets" / "clerk.yaml", start=False)
        stack.tools(TEAMS / "expenses" / "tools.py", start=False)
        stack.tools(TEAMS / "tickets" / "inbox.py", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(2)
    return gateway


def held(gateway: Gateway, run: str) -> dict[str, Any]:
    """The first call of the run that waits for a person."""
    gateway.wait_for(run, "approval.requested")
    (call,) = gateway.request("GET", f"/v1/approvals?run={run}").json()["approvals"]
    return dict(call)


def open_run(page: Page, gateway: Gateway, run: str) -> None:
    page.goto(f"{gateway.service.url}/#/run/{run}")
    expect(page.get_by_role("treeitem").first).to_be_visible()


def audited(page: Page, gateway: Gateway, *, correct: bool) -> str:
    """A check of expenses whose proposal a person approved, with a lower amount where it is over the bound."""
    run = gateway.submit("auditor", "Check the expense report oslo.")
    calls = held(gateway, run)["arguments"]["calls"]
    open_run(page, gateway, run)
    page.get_by_role("button", name="1 to approve").click()
    form = page.locator(".decision")
    expect(form.get_by_role("group")).to_have_count(len(calls))
    if correct:
        over = next(index for index, call in enumerate(calls) if call["arguments"].get("amount", 0) > 120)
        form.get_by_role("group").nth(over).get_by_label("amount").fill("120")
    return run


def test_one_call_of_a_proposal_is_corrected_and_another_left_out(
    page: Page, gateway: Gateway, pictures: Pictures
) -> None:
    run = audited(page, gateway, correct=True)
    form = page.locator(".decision")
    form.get_by_role("checkbox").last.uncheck()
    pictures.take(page, "proposal")
    form.get_by_role("button", name="Approve with changes").click()
    expect(page.locator(".run-head .badge")).to_have_text(re.compile("success|error"))
    decided = gateway.wait_for(run, "approval.decided")["event"]
    assert decided["verdict"] == "corrected"
    assert [set(edit) for edit in decided["edits"]] == [{"call", "arguments"}, {"call", "drop"}]


def test_two_runs_stand_side_by_side(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    runs = []
    for correct in (True, False):
        runs.append(audited(page, gateway, correct=correct))
        page.locator(".decision .primary").click()
        gateway.finished(runs[-1])
    expect(page.locator(".run-head .badge")).to_have_text("success")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog").get_by_label("Run").fill(runs[0])
    page.get_by_role("dialog").get_by_role("button", name="Compare").click()
    answer = page.get_by_role("row").filter(has_text="Answer")
    expect(answer).to_contain_text("differs")
    expect(page.get_by_role("row").filter(has_text="Task")).not_to_contain_text("differs")
    assert f"#/compare/{runs[1]}/{runs[0]}" in page.url
    page.get_by_label("Only differences").check()
    expect(page.get_by_role("row").filter(has_text="Task")).to_have_count(0)
    pictures.take(page, "compare")


def test_a_queue_is_edited_in_place_and_a_stale_edit_is_told(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    run = gateway.submit("clerk", "Do today's inbox.")
    call = held(gateway, run)
    open_run(page, gateway, run)
    queue = page.get_by_role("region", name="Queue")
    expect(queue).to_contain_text("version")
    queue.get_by_role("button", name="Add a task").click()
    page.get_by_role("dialog").get_by_label("Task").fill("Ring up the carrier")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    row = queue.get_by_role("row").filter(has_text="Ring up the carrier")
    expect(row).to_contain_text("waiting")
    pictures.take(page, "queue")

    # Somebody else is quicker: the page says so and shows what is there now.
    row.get_by_role("button", name="Reword").click()
    state = gateway.request("GET", f"/v1/runs/{run}/queue").json()
    other = {"version": state["version"], "operations": [{"op": "drop", "task": "Ring up the carrier"}]}
    assert gateway.request("PATCH", f"/v1/runs/{run}/queue", json=other).status_code == 200
    page.get_by_role("dialog").get_by_label("Task").fill("Write to the carrier")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="Not changed")).to_be_visible()
    expect(row).to_have_count(0)
    errors.forgive("409")

    page.get_by_role("button", name="Send message").click()
    page.get_by_role("dialog").get_by_label("Text").fill("Be kind to them.")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    said = gateway.wait_for(run, "message.received")["event"]
    assert said["text"] == "Be kind to them."
    expect(page.get_by_role("treeitem").filter(has_text="Be kind to them.")).to_be_visible()
    assert call["name"] == "refund"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".run-head .badge")).to_have_text("cancelled")


def test_a_schedule_is_paused_resumed_and_run_now(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    spec = {
        "name": "audit",
        "agent": "auditor",
        "task": "Check the expense report oslo.",
        "cron": "0 0 1 1 *",
    }
    assert gateway.request("POST", "/v1/schedules", json=spec).status_code == 201
    page.get_by_role("link", name="Automation").click()
    row = page.get_by_role("row").filter(has_text="audit")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    pictures.take(page, "automation")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    row.get_by_role("button", name="Run now").click()
    expect(page.locator(".run-head .agent")).to_have_text("auditor")
    assert gateway.request("DELETE", "/v1/schedules/audit").status_code == 204


def test_a_dead_letter_is_shown_delivered_again_and_removed(
    page: Page, stack: Stack, gateway: Gateway, pictures: Pictures
) -> None:
    async def send() -> None:
        async with stack.platform() as platform:
            subject = platform.topology.inbox("auditor", "gateway", "lost1", "lost1")
            await jetstream.append(platform.nc, subject, b"not a record")

    with ThreadPoolExecutor(1) as thread:  # the browser's own loop runs in this one
        thread.submit(asyncio.run, send()).result()
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="auditor")
    expect(row).to_be_visible()
    pictures.take(page, "dead-letters")
    row.get_by_role("button", name="Show").click()
    expect(page.get_by_role("dialog")).to_contain_text("not a record")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()

    # Delivered again it is as unreadable as before, and comes back as another letter.
    (before,) = gateway.request("GET", "/v1/dead-letters").json()["dead_letters"]
    row.get_by_role("button", name="Deliver again").click()
    expect(page.get_by_text("delivered again")).to_be_visible()

    def is_another() -> bool:
        letters = gateway.request("GET", "/v1/dead-letters").json()["dead_letters"]
        return [one["id"] for one in letters] not in ([], [before["id"]])

    eventually(is_another, what="the message is a dead letter once more")
    page.reload()
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_axe_finds_nothing_serious_on_any_page(page: Page, gateway: Gateway, errors: Errors) -> None:
    run = gateway.submit("auditor", "Check the expense report oslo.")
    call = held(gateway, run)["call"]
    found = []
    for path in (*PAGES, f"run/{run}?at=call:{call}", f"compare/{run}/{run}"):
        page.goto(f"{gateway.service.url}/#/{path}")
        expect(page.get_by_role("heading").first).to_be_visible()
        if path in PAGES:
            page.wait_for_load_state("networkidle")
        else:
            expect(page.locator(".decision button.primary, .compare").first).to_be_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for one in Axe().run(page).response["violations"]:
                if one["impact"] in ("serious", "critical"):
                    found.append((path, scheme, one["id"], [node["html"][:120] for node in one["nodes"]][:3]))
    assert not found, "\n".join(map(str, found))
    gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "rejected"})
    errors.forgive("503")  # this deployment has no memory
