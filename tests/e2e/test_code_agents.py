"""Agents that write code, over the bus: state between steps, calls out of the code, sandboxes that die."""

from pathlib import Path

import pytest

from harness.patience import eventually
from harness.people import decide, done, events_of, observed, waiting
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "coding"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.add("sandbox", "cadre_sandbox", start=False)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "book"


def steps(task: str, *blocks: str) -> str:
    """A task whose model writes these blocks, one per step."""
    return "===".join([task, *(f"Thought: next.\n<code>\n{block}\n</code>" for block in blocks)])


def test_code_calls_tools_and_members(gateway: Gateway) -> None:
    code = (
        "page = web_look(url='x')\n"
        "one, two = gather(add.later(a=1, b=2), adder.later(task='member adds 30 and 12'))\n"
        "final_answer([page['title'], one, two])"
    )
    run = gateway.submit("coder", steps("Do it.", code))
    result = gateway.finished(run)
    assert result["state"] == "success"
    title, one, two = result["output"]
    assert (title, one) == ("the page x", 3)
    assert "42" in two
    assert [child["agent"] for child in result["children"]] == ["adder"]


def test_what_a_member_returns_is_what_code_has_and_returns(gateway: Gateway) -> None:
    """Bytes go from one run's code through the store to another's, by report, variable and final answer."""
    code = "got = packer(task='member packs')\nprint(got['about'])\nfinal_answer([got['raw'] + b'def'])"
    run = gateway.submit("coder", steps("Pack.", code))
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert "['three', 'letters']" in observed(gateway.run(run, full="true"))
    ((form, ref),) = [item["$given"] for item in result["output"]]
    assert form == "bytes"
    code = "final_answer([again[0].decode(), type(again[0]).__name__])"
    other = gateway.submit("coder", steps("Unpack.", code), inputs={"again": result["output"]})
    assert gateway.finished(other)["output"] == ["abcdef", "bytes"]
    assert ref in str(gateway.run(other, full="true")["memory"]), "the model reads of it by reference"


def test_what_json_lacks_and_what_is_large_come_back_as_they_were(gateway: Gateway) -> None:
    odd = "{(1, 'a'): [float('nan'), 2j]}"
    output = gateway.answer("coder", steps("Odd.", f"final_answer([{odd}, list(range(300_000))])"))
    form, ref = output["$given"]
    assert form == "json"
    code = f"final_answer([repr(again[0]) == repr({odd}), len(again[1])])"
    other = gateway.submit("coder", steps("Again.", code), inputs={"again": output})
    assert gateway.finished(other)["output"] == [True, 300_000]
    assert ref in str(gateway.run(other, full="true")["memory"])


def test_functions_and_variables_live_on(gateway: Gateway) -> None:
    task = steps(
        "Go on.",
        "def double(x):\n    return 2 * x\nlimit = given + 1",
        "numbers = [double(n) for n in range(limit)]",
        "final_answer(sum(numbers))",
    )
    assert gateway.answer("coder", task, inputs={"given": 3}) == 12


def test_errors_are_read_and_repaired(gateway: Gateway) -> None:
    task = steps("Try.", "print('before')\n1 / 0", "import os", "final_answer('done')")
    run = gateway.submit("coder", task)
    assert gateway.finished(run)["output"] == "done"
    told = observed(gateway.run(run, full="true"))
    assert "before" in told
    assert "ZeroDivisionError" in told
    assert "1 / 0" in told
    assert "os" in told


def test_an_endless_loop_is_stopped(gateway: Gateway) -> None:
    run = gateway.submit("coder", steps("Loop.", "while True:\n    pass", "final_answer('out')"))
    assert gateway.finished(run)["output"] == "out"
    assert "6 s" in observed(gateway.run(run, full="true"))


def test_an_approval_in_the_middle_of_a_loop_with_every_sandbox_stopped(
    gateway: Gateway, stack: Stack, book: Path
) -> None:
    code = f"for amount in (50, 500, 60):\n    print(spend(file='{book}', amount=amount))\nfinal_answer('paid')"
    run = gateway.submit("coder", steps("Pay.", code))
    (call,) = waiting(gateway, run)
    assert call["arguments"]["amount"] == 500
    stack.services["sandbox"].kill()
    assert done(book) == ["50"]
    assert decide(gateway, call["call"], "approved").status_code == 200
    eventually(lambda: done(book) == ["50", "500"], what="the approved call was made")
    stack.services["sandbox"].start()
    assert gateway.finished(run)["output"] == "paid"
    assert done(book) == ["50", "500", "60"], "no call was made again by the replay"


@pytest.mark.parametrize("victim", ["sandbox", "coder", "tools"])
def test_a_service_killed_while_code_waits_for_a_tool(gateway: Gateway, stack: Stack, book: Path, victim: str) -> None:
    call = "slow" if victim != "tools" else "add"
    code = (
        f"spend(file='{book}.spent', amount=1)\nwords = {call}(file='{book}')\nfinal_answer(words)"
        if call == "slow"
        else f"spend(file='{book}.spent', amount=1)\nfinal_answer(str(add(a=1, b=1)))"
    )
    run = gateway.submit("coder", steps("Work.", "base = [1, 2, 3]", code))
    if call == "slow":
        eventually(lambda: done(book) != [], what="the tool is at work")
    stack.services[victim].kill()
    Path(f"{book}.go").touch()
    stack.services[victim].start()
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert result["output"] == ("slow is done" if call == "slow" else "2")
    assert done(Path(f"{book}.spent")) == ["1"]


def test_a_sandbox_killed_between_steps_is_restored_elsewhere(gateway: Gateway, stack: Stack, book: Path) -> None:
    task = steps(
        "Work.",
        "class Counter:\n    def __init__(self):\n        self.n = 41\ncounter = Counter()",
        f"slow(file='{book}')\ncounter.n += 1",
        "final_answer(counter.n)",
    )
    run = gateway.submit("coder", task)
    eventually(lambda: done(book) != [], what="the tool is at work")
    stack.services["sandbox"].kill()
    stack.add("sandbox-2", "cadre_sandbox")
    Path(f"{book}.go").touch()
    assert gateway.finished(run)["output"] == 42
    stack.services["sandbox"].start()


def test_cancel_stops_code(gateway: Gateway) -> None:
    run = gateway.submit("coder", steps("Wait.", "import time\ntime.sleep(1.8)", "final_answer(1)"))
    gateway.wait_for(run, "code.started")
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={})
    assert gateway.finished(run, within=30)["state"] == "cancelled"
    assert events_of(gateway, run, "code.finished") == []
