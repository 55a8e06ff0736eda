"""The waterfall of a run in a real browser: its width, its part of the time, jumps, search, and links to rows."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser_console.observed import Pictures, answer_as_a_gateway
from harness.patience import eventually
from harness.stack import Gateway, Stack

FOLDER = Path(__file__).parent
TEAM = FOLDER / "shop"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "chief.yaml", start=False)
        stack.agent(TEAM / "clerk.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway()
        gateway.wait_offered(2)
        yield gateway


@pytest.fixture(scope="module")
def run(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run whose clerk looks up in vain, pays back, and waits in between for a person."""
    books = tmp_path_factory.mktemp("shop") / "books"
    run = gateway.submit("chief", f"Order 0 came broken, have clerk: refund {books} 0 500")
    call = gateway.wait_for(run, "approval.requested")["event"]["call"]
    gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "approved"})
    gateway.finished(run)
    return run


def selected(page: Page) -> Locator:
    return page.get_by_role("treeitem", selected=True)


def texts(page: Page) -> list[str]:
    return [*page.locator(".tick").all_inner_texts()]


AXIS = "[...document.querySelectorAll('.tick')].map((one) => one.textContent + one.style.left).join()"


def wait_for_another_axis(page: Page, before: str) -> None:
    eventually(lambda: page.evaluate(AXIS) != before, what="the axis has other labels")


BOXES = "[...document.querySelectorAll('.tick')].map((one) => one.getBoundingClientRect().toJSON())"


def overlap(page: Page) -> bool:
    """Return whether two labels of the axis lie over each other, at one moment: the axis may be drawn again."""
    boxes = page.evaluate(BOXES)
    places = sorted((box["x"], box["width"]) for box in boxes)
    return any(x + width > after for (x, width), (after, _) in pairwise(places))


def test_rows_are_jumped_to_and_found(page: Page, gateway: Gateway, run: str) -> None:
    page.goto(f"{gateway.service.url}/#/run/{run}")
    expect(page.get_by_role("treeitem").filter(has_text="pay_back").first).to_be_visible()
    page.get_by_role("button", name="Next error").click()
    expect(selected(page)).to_contain_text("look_up")
    expect(page.locator(".detail .alert")).to_contain_text("there is no order 0")
    page.get_by_role("tree").focus()
    page.keyboard.press("Home")
    expect(selected(page)).to_have_attribute("data-key", f"run:{run}")
    page.keyboard.press("l")
    expect(selected(page)).to_contain_text("Step 1")
    page.keyboard.press("l")
    expect(selected(page)).to_contain_text("clerk")

    # What is folded away is found as well.
    page.get_by_role("tree").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem").filter(has_text="pay_back")).to_have_count(0)
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search the tree")
    expect(search).to_be_focused()
    search.press_sequentially("pay_back amount")
    expect(selected(page)).to_contain_text("pay_back")
    expect(page.get_by_role("status").filter(has_text="of")).to_contain_text("1 of")
    search.fill("nothing of the kind")
    expect(page.get_by_role("status").filter(has_text="not found")).to_be_visible()


def test_a_time_is_zoomed_into_and_moved(page: Page, gateway: Gateway, run: str, pictures: Pictures) -> None:
    page.goto(f"{gateway.service.url}/#/run/{run}?at=call:{run}_1_0_1_0")
    expect(selected(page)).to_contain_text("look_up")
    whole = texts(page)
    assert len(whole) > 1
    pictures.at_all_widths(page, "waterfall")
    for width in (1440, 1024, 700, 390):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator(".tick").first).to_be_visible()
        eventually(lambda: not overlap(page), what="labels lie apart", state=lambda: texts(page))
    page.set_viewport_size({"width": 1280, "height": 820})
    expect(page.locator(".tick")).to_have_text(whole)

    drawn = page.evaluate(AXIS)
    page.get_by_role("button", name="Show less time").click()
    wait_for_another_axis(page, drawn)
    zoomed = page.evaluate(AXIS)
    page.keyboard.press(",")
    wait_for_another_axis(page, zoomed)
    page.keyboard.press("0")
    expect(page.locator(".tick")).to_have_text(whole)

    drawn = page.evaluate(AXIS)
    # By the pointer: a time is chosen on the axis, moved with the wheel, and left by a double click.
    box = page.locator(".ticks").bounding_box()
    assert box is not None
    x, y = box["x"], box["y"] + box["height"] / 2
    page.mouse.move(x + box["width"] * 0.5, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * 0.75, y, steps=4)
    page.mouse.up()
    wait_for_another_axis(page, drawn)
    zoomed = page.evaluate(AXIS)
    assert not overlap(page)
    page.mouse.move(x + 10, y + 100)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Shift")
    wait_for_another_axis(page, zoomed)
    page.locator(".ticks").dblclick()
    expect(page.locator(".tick")).to_have_text(whole)
    page.mouse.move(x + 10, y + 100)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    wait_for_another_axis(page, drawn)


def test_the_widths_are_kept_by_the_browser(page: Page, gateway: Gateway, run: str) -> None:
    page.goto(f"{gateway.service.url}/#/run/{run}")
    for name in ("Width of the names", "Width of the tree"):
        line = page.get_by_role("separator", name=name)
        usual = int(line.get_attribute("aria-valuenow") or 0)
        box = line.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 4, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] - 96, box["y"] + 200, steps=4)
        page.mouse.up()
        dragged = int(line.get_attribute("aria-valuenow") or 0)
        assert dragged < usual
        moved = line.bounding_box()
        assert moved is not None
        assert abs(moved["x"] - (box["x"] - 100)) < 12
        line.focus()
        page.keyboard.press("ArrowRight")
        expect(line).to_have_attribute("aria-valuenow", str(dragged + 2))
        page.reload()
        expect(line).to_have_attribute("aria-valuenow", str(dragged + 2))
        line.dblclick()
        expect(line).to_have_attribute("aria-valuenow", str(usual))


def test_a_link_to_a_row_is_copied_and_opens_it(page: Page, gateway: Gateway, run: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{gateway.service.url}/#/run/{run}")
    page.get_by_role("treeitem").filter(has_text="look_up").last.click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#toasts")).to_contain_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    expect(selected(page)).to_contain_text("look_up")
    expect(page.locator(".detail h2")).to_have_text("look_up")

    # A call of a member is the member's run; without the right to the clipboard the link is shown.
    page.context.clear_permissions()
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.goto("about:blank")
    page.goto(f"{gateway.service.url}/#/run/{run}?at=call:{run}_1_0")
    expect(selected(page)).to_have_attribute("data-key", f"run:{run}_1_0")
    page.keyboard.press("c")
    expect(page.get_by_role("dialog").get_by_label("Copy it from here")).to_have_value(
        f"{page.url.split('?')[0]}?at=run%3A{run}_1_0"
    )


def test_a_link_scrolls_to_its_row_in_a_long_run(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 820})
    page.route("**/*", answer_as_a_gateway)
    page.add_init_script("const RUNS = 1, SECONDS = 1;" + (FOLDER / "large_run.js").read_text())
    page.goto("http://console.test/#/run/a1?at=step%3Aa1%3A2000")
    expect(selected(page)).to_be_in_viewport()
    expect(selected(page)).to_contain_text("Step 2000")
    expect(page.locator(".detail h2")).to_have_text("Step 2000")
    page.close()
