"""The console in a real browser: a team is watched, corrected and cancelled, and the page outlives its gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_console.observed import Errors, Pictures
from harness.command import commands_of
from harness.stack import Gateway, Stack

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "tests" / "e2e" / "held"

PAGES = (
    "overview",
    "runs",
    "chat",
    "approvals",
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
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(Path(__file__).parent / "script.yaml")
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


def start(page: Page, task: str) -> None:
    """Starts a run of the chief by the dialog; the page of the run follows."""
    page.get_by_role("button", name="New run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Agent").select_option("chief")
    dialog.get_by_label("Task").fill(task)
    dialog.get_by_role("button", name="Start").click()
    expect(page.get_by_role("treeitem").filter(has_text="chief").first).to_be_visible()


def test_a_team_is_watched_two_levels_deep_and_a_call_below_is_corrected(
    page: Page, stack: Stack, gateway: Gateway, errors: Errors, pictures: Pictures, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    start(page, f"have clerk: refund {books} 500")
    tree = page.get_by_role("tree")

    # The model's answer grows before it is whole; its beginning may have been written before anybody looked.
    tree.locator("[aria-level='3']").filter(has_text="thinking").first.click()
    growing = page.locator(".detail pre.live")
    expect(growing).to_contain_text("orders and will look after")
    expect(tree.get_by_role("treeitem").filter(has_text="hand the task").first).to_be_visible()
    pictures.take(page, "run-live")

    expect(tree.get_by_role("treeitem").filter(has_text="clerk").first).to_be_visible()
    held = tree.get_by_role("treeitem").filter(has_text="refund").filter(has_text="waits for approval")
    expect(held).to_be_visible()
    expect(page.locator("#nav .count")).to_have_text("1")

    held.click()
    page.reload()
    expect(held).to_have_attribute("aria-selected", "true")
    expect(page.get_by_label("amount")).to_have_value("500")
    pictures.take(page, "run-held")

    # The gateway dies: the page says so, keeps what it shows, and goes on when it is back.
    page.get_by_label("amount").fill("90")
    service = stack.services["gateway"]
    service.kill()
    expect(page.locator(".meta .bad")).to_contain_text("connection lost")
    expect(held).to_be_visible()
    service.start()
    expect(page.locator(".meta .live")).to_have_text("live")
    errors.forgive("net::ERR")

    # What was typed meanwhile is still there; what the schema forbids is named.
    amount = page.get_by_label("amount")
    expect(amount).to_have_value("90")
    amount.fill('"much"')
    page.get_by_role("button", name="Approve with changes").click()
    expect(page.locator(".decision .alert")).to_contain_text("amount")
    errors.forgive("422")
    amount.fill("90")
    page.get_by_role("button", name="Approve with changes").click()
    expect(page.locator(".run-head .badge")).to_have_text("success")
    assert "refund 90" in books.read_text()
    expect(tree.get_by_role("treeitem").filter(has_text="waits for approval")).to_have_count(0)
    pictures.take(page, "run-done")

    # The same page of a run that is over: its rows come all at once, and it shows the same.
    rows = tree.get_by_role("treeitem").all_inner_texts()
    page.reload()
    expect(page.locator(".run-head .badge")).to_have_text("success")
    expect(tree.get_by_role("treeitem")).to_have_count(len(rows))
    assert tree.get_by_role("treeitem").all_inner_texts() == rows


def test_what_a_model_was_sent_is_shown(page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path) -> None:
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 50")
    gateway.finished(run)
    page.goto(f"{gateway.service.url}/#/run/{run}")
    page.locator(f"[data-key^='model:{run}_1_0:']").first.click()
    page.get_by_text("The prompt as sent").click()
    messages = page.locator(".messages > li")
    messages.first.locator("summary").click()
    expect(messages.first).to_contain_text("You are the clerk")
    expect(messages.last).to_contain_text("user")
    expect(page.get_by_text("Tools on offer")).to_be_visible()
    pictures.take(page, "run-prompt")


def test_by_what_a_run_was_decided_is_told_by_digests(
    page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    """Of a run below too; a run whose agent names no tools has no schemas."""
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 50")
    gateway.finished(run)
    below = gateway.run(f"{run}_1_0")
    assert below["schemas"]
    page.goto(f"{gateway.service.url}/#/run/{run}?at=run:{run}_1_0")
    facts = page.locator(".detail .facts").first
    for name, digest in (("Revision", below["revision"]), ("Tools' schemas", below["schemas"])):
        expect(facts.locator(f'dt:has-text("{name}") + dd')).to_have_text(digest)
    pictures.take(page, "run-digests")
    page.get_by_role("treeitem").first.click()
    expect(facts).to_contain_text(gateway.run(run)["revision"])
    expect(facts).not_to_contain_text("schemas")


def test_a_run_that_waits_for_an_agent_at_rest_is_told_and_spoken_to(
    page: Page, stack: Stack, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    cadre = commands_of(stack, tmp_path)
    card = '{"name":"sleeper","description":"Has no replica yet."}'
    assert cadre("provision", "--at-rest", card).returncode == 0
    gateway.wait_offered(3)
    run = gateway.submit("sleeper", "Wake up.")
    page.goto(f"{gateway.service.url}/#/run/{run}")
    expect(page.get_by_role("heading", level=1)).to_have_text("sleeper Wake up.")
    expect(page.locator(".run-head .meta")).to_contain_text("nothing has happened yet")
    page.get_by_role("button", name="Send message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("It is late.")
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator("#toasts")).to_contain_text("sent")
    pictures.take(page, "run-queued")
    assert cadre("retire", "sleeper").returncode == 0


def test_the_tree_is_walked_with_keys(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 50")
    gateway.finished(run)
    page.goto(f"{gateway.service.url}/#/run/{run}")
    tree = page.get_by_role("tree")
    first = tree.get_by_role("treeitem").first
    expect(first).to_have_attribute("aria-expanded", "true")
    tree.focus()
    page.keyboard.press("ArrowLeft")
    expect(first).to_have_attribute("aria-expanded", "false")
    expect(tree.get_by_role("treeitem")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(tree.get_by_role("treeitem").nth(1)).to_have_attribute("aria-selected", "true")
    expect(page.locator(".detail h2")).to_have_text("Step 1")


def test_a_run_is_rejected_in_the_inbox_and_another_cancelled(page: Page, pictures: Pictures, tmp_path: Path) -> None:
    start(page, f"have clerk: refund {tmp_path / 'books'} 700")
    page.get_by_role("link", name="Approvals").click()
    card = page.get_by_role("article").filter(has_text="700")
    expect(card.get_by_label("amount")).to_have_value("700")
    pictures.take(page, "approvals")
    card.get_by_label("Feedback for the model").fill("He was paid last week.")
    card.get_by_role("button", name="Reject").click()
    expect(card).to_have_count(0)

    page.get_by_role("link", name="Runs").click()
    start(page, f"have clerk: refund {tmp_path / 'books'} 800")
    expect(page.get_by_role("button", name="1 to approve")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".run-head .badge")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="to approve")).to_have_count(0)

    page.get_by_role("link", name="Runs").click()
    page.get_by_label("State").select_option("cancelled")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "state=cancelled" in page.url
    pictures.take(page, "runs")
    page.get_by_role("link", name="Team").click()
    drawing = page.get_by_role("group", name="Team: ")
    expect(drawing.locator(".step").filter(has_text="chief")).to_have_count(1)
    expect(drawing.locator(".way").filter(has_text="chief leads to clerk")).to_have_count(1)
    expect(page.get_by_role("article").filter(has_text="chief").first).to_be_visible()
    expect(page.get_by_role("article").filter(has_text="clerk").first).to_contain_text("0 messages")
    pictures.take(page, "team")


@pytest.mark.timeout(600)
def test_every_page_is_sound_at_each_width(
    browser: Browser, gateway: Gateway, errors: Errors, pictures: Pictures, tmp_path: Path
) -> None:
    run = gateway.submit("chief", f"have clerk: refund {tmp_path / 'books'} 900", session="phone")
    held = gateway.wait_for(run, "approval.requested")["event"]["call"]
    paths = {
        **{page: page for page in PAGES},
        "decided": "approvals?view=decided",
        "chat": "chat?agent=chief&session=phone",
        "run": f"run/{run}?at=call:{held}",
        "compare": f"compare/{run}/{run}",
    }
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    page = context.new_page()
    errors.watch(page)
    too_wide = []
    for name, path in paths.items():
        page.goto(f"{gateway.service.url}/#/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if name in ("run", "chat"):
            expect(page.get_by_label("amount")).to_be_visible()
        else:
            page.wait_for_load_state("networkidle")
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            too_wide.append(path)
        pictures.at_all_widths(page, f"page-{name}")
    context.close()
    assert gateway.request("POST", f"/v1/approvals/{held}", json={"verdict": "rejected"}).status_code in (
        200,
        202,
    )
    errors.forgive("503")  # this deployment has no memory
    assert too_wide == []
    assert errors == []
