"""Members with schemas, over the bus: a call that does not fit begins no run, one that fits is made once, no matter who
is killed, and code has the value itself."""

from pathlib import Path

import pytest

from harness.patience import eventually
from harness.people import done, error_codes
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "typed"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.add("sandbox", "cadre_sandbox", start=False)


def begun(file: Path) -> None:
    eventually(lambda: bool(done(file)), what="the room is being booked")


@pytest.mark.parametrize("victim", ["lead", "clerk", "gateway"])
def test_a_manager_mends_its_call_and_has_it_made_once(
    stack: Stack, gateway: Gateway, victim: str, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("lead", f"book {file}")
    begun(file)
    stack.services[victim].kill()
    stack.services[victim].start()
    result = gateway.finished(run)
    assert (result["state"], len(done(file))) == ("success", 1)
    assert '{"total":240}' in result["output"]
    assert [child["agent"] for child in result["children"]] == ["clerk"]
    assert "invalid-call" in error_codes(result)


@pytest.mark.parametrize("victim", ["coder", "sandbox", "clerk"])
def test_code_goes_on_with_the_value(stack: Stack, gateway: Gateway, victim: str, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    code = f"got = clerk(task='Book.', file='{file}', nights=2)\nfinal_answer([got['total'] + 1, type(got).__name__])"
    run = gateway.submit("coder", f"Book.===Thought: book.\n<code>\n{code}\n</code>")
    begun(file)
    stack.services[victim].kill()
    stack.services[victim].start()
    result = gateway.finished(run)
    assert (result["state"], result["output"]) == ("success", [241, "dict"])
    assert len(done(file)) == 1


def test_the_schemas_are_shown(gateway: Gateway) -> None:
    agents = {one["name"]: one for one in gateway.request("GET", "/v1/agents").json()["agents"]}
    assert agents["clerk"]["input_schema"]["required"] == ["file", "nights"]
    assert agents["clerk"]["output_schema"]["required"] == ["total"]
    assert {name: one["problems"] for name, one in agents.items() if one["problems"]} == {}
