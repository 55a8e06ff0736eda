"""A workflow in a real browser: its graph with the state of each step, and the signal that it waits for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[2] / "teams" / "purchases"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    patient = (
        (TEAM / "buyer.yaml").read_text().replace("signal: objection, seconds: 1,", "signal: objection, seconds: 1h,")
    )
    assert "seconds: 1h" in patient
    (folder / "buyer.yaml").write_text(patient)
    with Stack(folder) as stack:
        stack.model(TEAM / "script.yaml")
        stack.environment["PURCHASES_DB"] = str(folder / "purchases.sqlite")
        stack.agent(folder / "buyer.yaml", start=False)
        stack.tools(TEAM / "office.py", start=False)
        stack.open_gateway()
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    gateway = Gateway(stack.services["gateway"])
    gateway.wait_offered(1)
    return gateway


def test_a_workflow_is_drawn_and_its_signal_sent(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    run = gateway.submit("buyer", "Purchase P-3.")
    gateway.wait_for(run, "wait.started")
    page.goto(f"{gateway.service.url}/#/run/{run}")
    drawing = page.get_by_role("img", name="Workflow: ")
    expect(drawing).to_have_accessible_name("Workflow: request done, checks done, objection waits")
    expect(drawing.locator(".step")).to_have_count(17)
    expect(drawing.locator(".way.taken")).to_have_count(2)
    page.get_by_text("As a list").click()
    expect(page.get_by_role("listitem").filter(has_text="objection wait")).to_contain_text("expired: amount")
    pictures.take(page, "workflow")

    page.get_by_role("button", name="Send signal objection").click()
    page.get_by_role("dialog").get_by_label("Payload").fill('"we have one in the cellar"')
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.locator(".run-head .badge")).to_have_text("success")
    expect(drawing.locator(".step.ok").filter(has_text="withdrawn")).to_be_visible()
    assert gateway.finished(run)["output"] == "withdrawn: we have one in the cellar"
