"""Five tasks as somebody does them who sees the console for the first time. The browser counts the clicks; a test that
needs more of them than before fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from browser_console.observed import Pictures
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "shop"
COUNT = """
addEventListener("click", (event) => {
  // The click that return makes on a form's button, and that of a label on its field, are not a person's.
  if (event.isTrusted && event.detail > 0) sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1;
}, true);
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        (prices := stack.folder / "prices.yaml").write_text("scripted: {input: 1000, output: 1000}\n")
        stack.environment["CADRE_PRICES"] = str(prices)
        stack.model(TEAM / "script.yaml")
        for name in ("chief", "clerk", "reporter"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        yield stack.open_gateway(3)


class Visitor:
    """Somebody with a mouse and a keyboard, who begins at the first page."""

    def __init__(self, page: Page, gateway: Gateway) -> None:
        page.add_init_script(COUNT)
        page.goto(f"{gateway.service.url}/")
        page.reload()
        self.page = page
        self.choices = 0

    @property
    def clicks(self) -> int:
        """Return the clicks so far. The browser tells of none in the list of a field, where a choice takes two."""
        return int(self.page.evaluate("Number(sessionStorage.clicks ?? 0)")) + 2 * self.choices

    def choose(self, field: Locator, name: str) -> None:
        field.select_option(name)
        self.choices += 1

    def type(self, field: Locator, text: str) -> None:
        field.click()
        self.page.keyboard.type(text)

    def go(self, name: str) -> None:
        self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()


@pytest.fixture
def visitor(page: Page, gateway: Gateway) -> Visitor:
    return Visitor(page, gateway)


def ask(gateway: Gateway, books: Path, order: int, amount: int, **fields: str) -> str:
    run = gateway.submit("chief", f"have clerk: refund {books} {order} {amount}", **fields)
    if amount > 100:
        gateway.wait_for(run, "approval.requested")
    else:
        gateway.finished(run)
    return run


def test_why_the_run_of_last_night_cost_so_much(
    visitor: Visitor, page: Page, gateway: Gateway, pictures: Pictures, tmp_path: Path
) -> None:
    for order in (1, 2):
        ask(gateway, tmp_path / "books", order, 50)
    dear = gateway.submit("chief", "Ann is angry, have clerk: read the letters of Ann")
    gateway.finished(dear)
    page.reload()
    costs = page.get_by_role("figure").filter(has_text="Cost by agent")
    costs.locator("a").filter(has_text="chief").last.click()
    page.locator(".runs tbody .c-task a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ann is angry")
    opened = visitor.clicks
    # The sums stand in the rows: the branch is seen without a click, and reached with one.
    tree = page.get_by_role("tree")
    sums = [float(text) for text in tree.locator(".row:not(:has(.name.model)) .spent").all_inner_texts()]
    assert sums[0] == max(sums) > 0
    page.get_by_role("button", name="Dearest").click()
    details = page.get_by_role("region", name="Details")
    expect(details.get_by_role("heading", level=2)).to_contain_text("Model")
    expect(details).to_contain_text("Cost")
    details.get_by_text("The prompt as sent").click()
    expect(details).to_contain_text("asks once more where the parcel is")
    assert visitor.clicks - opened == 2
    assert visitor.clicks == 4
    pictures.at_all_widths(page, "dearest")


def test_approve_the_refund_of_order_17(visitor: Visitor, page: Page, gateway: Gateway, tmp_path: Path) -> None:
    books = tmp_path / "books"
    runs = [ask(gateway, books, order, 500) for order in (16, 17, 18)]
    page.reload()
    page.get_by_role("region", name="Needs a person").get_by_role("link", name="Refund 500 € for order 17").click()
    page.get_by_role("region", name="Details").get_by_role("button", name="Approve", exact=True).click()
    assert gateway.finished(runs[1])["state"] == "success"
    assert books.read_text() == "17 500\n"
    assert visitor.clicks == 2
    for run in (runs[0], runs[2]):
        assert gateway.request("POST", f"/v1/runs/{run}/cancel", json={}).status_code == 202
        gateway.finished(run)


def test_what_changed_between_these_two(visitor: Visitor, page: Page, gateway: Gateway, tmp_path: Path) -> None:
    for amount in (40, 60):
        ask(gateway, tmp_path / "books", 30, amount, user="two")
    visitor.go("Runs")
    rows = page.locator(".runs tbody tr")
    for amount in (40, 60):
        rows.filter(has_text=f"30 {amount}").get_by_role("checkbox").click()
    page.get_by_role("region", name="Selection").get_by_role("link", name="Compare").click()
    page.get_by_label("Only differences").click()
    expect(page.locator(".compare tbody tr").first).to_be_visible()
    expect(page.locator(".compare tbody tr:not(.differs)")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("60 €")
    assert visitor.clicks == 5


def test_start_the_report_for_may(visitor: Visitor, page: Page, gateway: Gateway) -> None:
    page.get_by_role("button", name="New run").click()
    dialog = page.get_by_role("dialog")
    visitor.choose(dialog.get_by_label("Agent"), "reporter")
    visitor.type(dialog.get_by_label("Task"), "Write the report for May.")
    page.keyboard.press("Tab")
    visitor.type(dialog.get_by_label("month"), "May")
    dialog.get_by_role("button", name="Start").click()
    expect(page.get_by_role("region", name="Details")).to_contain_text("The report for May.")
    assert visitor.clicks == 6


def test_stop_everything_of_this_user(visitor: Visitor, page: Page, gateway: Gateway, tmp_path: Path) -> None:
    for order in (41, 42, 43):
        ask(gateway, tmp_path / "books", order, 500, user="eve")
    ask(gateway, tmp_path / "books", 44, 50, user="eve")
    other = ask(gateway, tmp_path / "books", 45, 500, user="ida")
    visitor.go("Runs")
    visitor.type(page.get_by_label("User", exact=True), "eve")
    expect(page.locator(".runs tbody tr")).to_have_count(4)
    page.get_by_label("Select all that are shown").click()
    page.get_by_role("button", name="Cancel 3 runs").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 3 runs").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert visitor.clicks == 5

    def states() -> dict[str, int]:
        runs = gateway.request("GET", "/v1/runs?user=eve").json()["runs"]
        return {state: [one["state"] for one in runs].count(state) for state in {one["state"] for one in runs}}

    eventually(lambda: states() == {"cancelled": 3, "success": 1}, what="what eve had going is cancelled")
    assert gateway.run(other)["ended_at"] is None
