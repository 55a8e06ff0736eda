"""The list of runs: filters while one types, columns and views by choice, keys, a selection, and a list that stays."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from browser_console.observed import Errors, Pictures
from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "held"
QUICK = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: quick}
spec:
  description: Answers at once.
  instructions: You answer at once.
"""
SCRIPT = """\
rules:
  - name: refund
    match: {system: You are the clerk, last: 'refund \\S+ \\d+'}
    reply:
      tool_calls:
        - name: refund
          arguments:
            file: "{{ find(last, 'refund (\\\\S+)') }}"
            amount: "{{ number(last, 'refund \\\\S+ (\\\\d+)') }}"
  - name: answer
    match: {}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: Done.}}]}
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("team")
    (folder / "quick.yaml").write_text(QUICK)
    (folder / "script.yaml").write_text(SCRIPT)
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(folder / "script.yaml")
        stack.agent(folder / "quick.yaml", start=False)
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway(2)
        for number in range(4):
            run = gateway.submit("quick", f"Weigh parcel {number}.", user="ann", labels={"desk": "north"})
            gateway.finished(run)
        for number in range(3):
            run = gateway.submit("clerk", f"refund {folder / 'books'} {900 + number}", user="bob", session=f"s{number}")
            gateway.wait_for(run, "approval.requested")
        yield gateway


def rows(page: Page) -> Locator:
    return page.locator(".runs tbody tr")


def tasks(page: Page) -> list[str]:
    found: list[str] = page.locator(".runs tbody .c-task").all_inner_texts()
    return found


def test_filters_act_while_one_types_and_stay_in_the_link(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    expect(rows(page)).to_have_count(7)
    words = page.get_by_label("Words")
    words.press_sequentially("parcel")
    expect(rows(page)).to_have_count(4)
    expect(words).to_be_focused()
    words.press_sequentially(" 2")
    expect(rows(page)).to_have_count(1)
    expect(words).to_be_focused()
    expect(page).to_have_url(re.compile(r"text=parcel\+2"))
    page.reload()
    expect(words).to_have_value("parcel 2")
    expect(rows(page)).to_have_count(1)
    words.fill("")
    page.get_by_label("User").fill("bob")
    expect(rows(page)).to_have_count(3)
    page.get_by_label("State").select_option("going")
    expect(rows(page)).to_have_count(3)
    page.get_by_label("State").select_option("failed")
    expect(rows(page)).to_have_count(0)
    page.get_by_label("State").select_option("")
    page.get_by_label("User").fill("")
    page.get_by_text("More filters").click()
    page.get_by_label("Label", exact=True).fill("desk=north")
    expect(rows(page)).to_have_count(4)
    page.get_by_label("Asked for").select_option("1h")
    expect(page).to_have_url(re.compile("since=1h"))
    expect(rows(page)).to_have_count(4)
    page.get_by_label("Asked for").select_option("range")
    page.get_by_label("From", exact=True).fill("2020-01-01T00:00")
    page.get_by_label("Until", exact=True).fill("2020-01-02T00:00")
    expect(rows(page)).to_have_count(0)
    page.reload()
    expect(page.get_by_label("From", exact=True)).to_have_value("2020-01-01T00:00")
    page.get_by_label("Asked for").select_option("")
    expect(rows(page)).to_have_count(4)
    pictures.at_all_widths(page, "runs-filtered")
    page.get_by_label("Cost at least").fill("much")
    expect(page.get_by_role("alert")).to_contain_text("min_cost")
    errors.forgive("422")


def test_columns_are_chosen_and_kept_in_the_browser_and_the_link(page: Page, gateway: Gateway) -> None:
    page.get_by_text("Columns", exact=True).click()
    for name in ("User", "Labels", "Session"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("checkbox", name="Step").uncheck()
    heads = page.locator(".runs thead th")
    expect(heads.filter(has_text="Step")).to_have_count(0)
    expect(page.locator(".c-labels").filter(has_text="desk=north").first).to_be_visible()
    link = page.url
    page.goto(f"{gateway.service.url}/#/overview")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(heads.filter(has_text="Labels")).to_have_count(1)
    expect(heads.filter(has_text="Step")).to_have_count(0)
    page.evaluate("localStorage.clear()")
    page.goto(f"{gateway.service.url}/#/runs")
    page.reload()
    expect(heads.filter(has_text="Step")).to_have_count(1)
    page.goto(link)
    expect(heads.filter(has_text="Labels")).to_have_count(1)
    page.locator(".c-user button").filter(has_text="bob").first.click()
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_label("User")).to_have_value("bob")
    page.evaluate("localStorage.setItem('cadre/columns', '{no json')")
    page.goto(f"{gateway.service.url}/#/runs")
    page.reload()
    expect(rows(page)).to_have_count(7)


def test_a_view_is_saved_as_a_link_opened_and_removed(page: Page, gateway: Gateway) -> None:
    page.get_by_label("User").fill("ann")
    expect(rows(page)).to_have_count(4)
    page.get_by_label("Order").select_option("cost")
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name="Save this view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Ann's dearest")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.goto(f"{gateway.service.url}/#/runs")
    page.reload()
    expect(rows(page)).to_have_count(7)
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("link", name="Ann's dearest").click()
    expect(rows(page)).to_have_count(4)
    expect(page.get_by_label("User")).to_have_value("ann")
    expect(page.get_by_label("Order")).to_have_value("cost")
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("button", name="Remove view Ann's dearest").click()
    expect(page.get_by_role("link", name="Ann's dearest")).to_have_count(0)
    page.reload()
    page.get_by_text("Views", exact=True).click()
    expect(page.get_by_text("There are none yet.")).to_be_visible()


def test_keys_walk_the_list_but_not_while_one_types(page: Page, gateway: Gateway) -> None:
    expect(rows(page)).to_have_count(7)
    page.keyboard.press("/")
    words = page.get_by_label("Words")
    expect(words).to_be_focused()
    page.keyboard.type("jk/x")
    expect(words).to_have_value("jk/x")
    expect(rows(page)).to_have_count(0)
    words.fill("")
    expect(rows(page)).to_have_count(7)
    words.blur()
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("k", 1), ("k", 0), ("k", 0)):
        page.keyboard.press(key)
        expect(rows(page).nth(at).locator(".c-task a")).to_be_focused()
    page.keyboard.press("x")
    expect(rows(page).first.get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Selection")).to_be_hidden()
    page.keyboard.press("j")
    task = rows(page).nth(1).locator(".c-task a").get_attribute("href")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(str(task))))


def test_new_runs_wait_while_somebody_reads(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    expect(rows(page)).to_have_count(7)
    rows(page).nth(2).locator("a").first.focus()
    before = tasks(page)
    place = rows(page).nth(2).bounding_box()
    for number in range(3):
        gateway.finished(gateway.submit("quick", f"Late parcel {number}.", user="late"))
    news = page.get_by_role("button", name="3 new runs")
    expect(news).to_be_visible()
    assert tasks(page) == before
    expect(rows(page).nth(2).locator("a").first).to_be_focused()
    pictures.take(page, "runs-news")
    assert rows(page).nth(2).bounding_box() == place
    news.click()
    expect(rows(page)).to_have_count(10)
    assert tasks(page) == ["Late parcel 2.", "Late parcel 1.", "Late parcel 0.", *before]
    expect(news).to_have_count(0)


def test_the_runs_of_a_user_are_selected_summed_up_and_cancelled(
    page: Page, gateway: Gateway, pictures: Pictures
) -> None:
    page.goto(f"{gateway.service.url}/#/runs?user=bob&state=going")
    expect(rows(page)).to_have_count(3)
    rows(page).first.get_by_role("checkbox").check()
    chosen = page.get_by_role("region", name="Selection")
    expect(chosen).to_contain_text("1 selected")
    chosen.get_by_role("button", name="Select all 3 that fit").click()
    expect(chosen).to_contain_text("3 selected")
    expect(chosen).to_contain_text("cost")
    runs = gateway.request("GET", "/v1/runs?user=bob").json()["runs"]
    tokens = sum(one["usage"]["input_tokens"] + one["usage"]["output_tokens"] for one in runs)
    assert tokens > 0
    expect(chosen).to_contain_text(f"{tokens} tokens")
    pictures.at_all_widths(page, "runs-selected")
    chosen.get_by_role("button", name="Cancel 3 runs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("bob has left")
    dialog.get_by_role("button", name="Cancel 3 runs").click()
    expect(dialog).to_have_count(0)

    def ended() -> bool:
        return {one["state"] for one in gateway.request("GET", "/v1/runs?user=bob").json()["runs"]} == {"cancelled"}

    eventually(ended, what="all runs of bob are cancelled")
    expect(rows(page)).to_have_count(0)

    page.goto(f"{gateway.service.url}/#/runs?user=ann")
    every = page.get_by_label("Select all that are shown")
    every.check()
    expect(chosen).to_contain_text("4 selected")
    every.uncheck()
    expect(chosen).to_be_hidden()
    for at in (0, 1):
        rows(page).nth(at).get_by_role("checkbox").check()
    chosen.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Two runs")).to_be_visible()
