"""A run is started by a form from what its agent takes, with files and bounds, and once more with changes."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack

AGENT = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: booker}
spec:
  description: Books rooms.
  instructions: You book rooms.
  input_schema:
    type: object
    properties:
      city: {type: string}
      nights: {type: integer, description: How long.}
      breakfast: {type: boolean}
    required: [city, nights]
"""
SCRIPT = """\
rules:
  - name: books
    match: {}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: Booked.}}]}
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("team")
    (folder / "booker.yaml").write_text(AGENT)
    (folder / "script.yaml").write_text(SCRIPT)
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(folder / "script.yaml")
        stack.agent(folder / "booker.yaml", start=False)
        yield stack.open_gateway(1)


def test_a_run_by_a_form_and_again_with_changes(page: Page, gateway: Gateway, pictures: Pictures) -> None:
    page.get_by_role("button", name="New run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("Book it.")
    dialog.get_by_label("city").fill("Bern")
    nights = dialog.get_by_label("nights")
    nights.fill("lots")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nights")
    assert "lots" in nights.evaluate("element => element.validationMessage")
    nights.fill("3")
    dialog.get_by_label("breakfast").check()
    dialog.get_by_label("Files").set_input_files(
        [{"name": "wishes.txt", "mimeType": "text/plain", "buffer": b"A quiet room."}]
    )
    dialog.get_by_text("More").click()
    dialog.get_by_label("Deadline").fill("10m")
    dialog.get_by_label("Tokens at most").fill("100000")
    dialog.get_by_label("Cost at most").fill("dear")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("dear")
    dialog.get_by_label("Cost at most").fill("")
    pictures.take(page, "new-run")
    dialog.get_by_role("button", name="Start").click()
    expect(page.get_by_role("treeitem").filter(has_text="booker").first).to_be_visible()
    run = page.url.rpartition("/")[2].partition("?")[0]
    task = begun(gateway, run)
    assert task["inputs"] == {"city": "Bern", "nights": 3, "breakfast": True}
    assert task["budget"] == {"tokens": 100000}
    assert task["deadline"] > task["at"]
    assert gateway.request("GET", f"/v1/runs/{run}/files/wishes.txt").content == b"A quiet room."

    gateway.finished(run)
    page.get_by_role("button", name="Again").click()
    expect(dialog.get_by_label("city")).to_have_value("Bern")
    dialog.get_by_label("nights").fill("4")
    dialog.get_by_role("button", name="Start").click()
    page.wait_for_url(lambda url: "/run/" in url and run not in url)
    again = page.url.rpartition("/")[2].partition("?")[0]
    assert begun(gateway, again)["inputs"] == {"city": "Bern", "nights": 4, "breakfast": True}


def begun(gateway: Gateway, run: str) -> dict[str, Any]:
    """The task with which the run began."""
    gateway.finished(run)
    events = gateway.request("GET", f"/v1/runs/{run}/entries/1").json()["events"]
    task: dict[str, Any] = next(event for event in events if event["type"] == "run.accepted")["task"]
    return task
