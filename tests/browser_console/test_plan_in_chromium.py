"""A plan in a real browser: its steps with their states, and edits of what has not begun."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Errors, Pictures
from harness.stack import Gateway, Stack

TOOLS = '''
from cadre import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def book(amount: int) -> str:
    """Book an amount."""
    return f"{amount} booked"
'''
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: planner}
spec:
  description: Works by a plan.
  kind: plan
  tools: [add, book]
  approvals: {book: always}
  plan:
    replans: 0
    steps:
      - {step: 1, action: book, args: {amount: 7}, needs: []}
      - {step: 2, action: add, args: {a: 1, b: 2}, needs: [1]}
      - {step: 3, action: add, args: {a: 5, b: 5}, needs: [1]}
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("stack")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "planner.yaml").write_text(AGENT)
    with Stack(folder) as stack:
        stack.agent(folder / "planner.yaml", start=False)
        stack.tools(folder / "tools.py", start=False)
        yield stack.open_gateway(1)


def test_a_plan_is_edited_in_place_while_a_step_waits(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    run = gateway.submit("planner", "Add up.")
    call = gateway.wait_for(run, "approval.requested")["event"]["call"]
    page.goto(f"{gateway.service.url}/#/run/{run}")
    plan = page.get_by_role("region", name="Plan")
    booked, sums, dropped = (plan.get_by_role("row").nth(row) for row in (1, 2, 3))
    expect(booked).to_contain_text("waiting")
    expect(booked.get_by_role("button")).to_have_count(0)

    sums.get_by_role("button", name="Change").click()
    field = page.get_by_role("dialog").get_by_label("The step as JSON")
    step = json.loads(field.input_value())
    assert step["args"] == {"a": 1, "b": 2}
    field.fill("{")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    field.fill(json.dumps(step | {"args": {"a": 1, "b": 20}}))
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(sums).to_contain_text("b=20")
    dropped.get_by_role("button", name="Drop").click()
    expect(plan.get_by_role("row")).to_have_count(3)
    plan.get_by_role("button", name="Add a step").click()
    more = {"action": "add", "args": {"a": 2, "b": 40}, "needs": [2]}
    page.get_by_role("dialog").get_by_label("The step as JSON").fill(json.dumps(more))
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(plan).to_contain_text("b=40")
    pictures.take(page, "plan")

    # Somebody else is quicker: the page says so and shows what is there now.
    sums.get_by_role("button", name="Change").click()
    version = gateway.request("GET", f"/v1/runs/{run}/plan").json()["version"]
    other = {"version": version, "operations": [{"op": "change", "step": 2, "args": {"a": 1, "b": 30}}]}
    assert gateway.request("PATCH", f"/v1/runs/{run}/plan", json=other).status_code == 200
    page.get_by_role("dialog").get_by_label("The step as JSON").fill(json.dumps(step | {"args": {"a": 9, "b": 9}}))
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="Not changed")).to_be_visible()
    expect(sums).to_contain_text("b=30")
    errors.forgive("409")

    assert gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "approved"}).status_code in (
        200,
        202,
    )
    expect(page.locator(".run-head .badge")).to_have_text("success")
    expect(plan.get_by_role("button")).to_have_count(0)
