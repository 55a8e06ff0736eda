"""`cadre eval`: the tasks of exported runs, run again over a real endpoint; tools answer from the journals."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from cadre.cli.main import group
from cadre.journal.arrivals import Offer
from cadre.protocol.cards import ToolCard
from cadre.spec.agent import AgentSpec
from cadre.testing import Course, call, result, running_model

TOOLS = '''
from pathlib import Path

from cadre import tool

CALLS = Path(__file__).with_name("calls.txt")


def note(what: str) -> None:
    with CALLS.open("a") as file:
        file.write(what + "\\n")


@tool(read_only=True)
def price(article: str) -> float:
    """Tell what an article costs."""
    note(f"price {article}")
    return 7.0


@tool
def order(article: str) -> str:
    """Order an article."""
    note(f"order {article}")
    return "ordered"
'''
CLERK = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Orders things.
  tools: [price, order]
  approvals: {order: always}
"""
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: shop}
spec: {agents: [clerk.yaml], tools: [shop.py]}
"""
ARTICLE = {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}
CARDS = {
    name: ToolCard(name=name, description=f"{name}.", input_schema=ARTICLE, read_only=name == "price")
    for name in ("price", "order")
}
JUDGED = """
  - match: {system: "You compare two answers"}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: {why: It lost the price., verdict: VERDICT}}}]
"""


def script(*calls: tuple[str, dict[str, Any]], judge: str = "") -> str:
    """A model that makes these calls, one after the other, and judges so."""
    rules = ["rules:"]
    if judge:
        rules.append(JUDGED.replace("VERDICT", judge))
    for number, (name, arguments) in enumerate(calls):
        made = json.dumps([{"name": name, "arguments": arguments}])
        rules.append(f"  - match: {{turn: {number}}}\n    reply: {{tool_calls: {made}}}")
    return "\n".join(rules)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A team, and in its folder `kept` a run that asked a price and ordered a lamp."""
    for name, text in (("shop.py", TOOLS), ("clerk.yaml", CLERK), ("team.yaml", TEAM)):
        (tmp_path / name).write_text(text)
    course = Course(
        AgentSpec(name="clerk", description="Orders things.", tools=["price", "order"]), Offer(tools=CARDS)
    )
    course.begin("Order a lamp.")
    course.say(call("price", article="lamp"))
    course.arrive(result("r1_1_0", 20.0, tool="price"))
    course.say(call("order", article="lamp"))
    course.arrive(result("r1_2_0", "ordered", tool="order"))
    course.say(call("final_answer", answer="A lamp for 20 euros."))
    lines: list[dict[str, Any]] = [{"format": "cadre-run", "tree": "r1"}]
    lines += [
        {"line": "entry", "seq": n, "entry": msgspec.to_builtins(entry)}
        for n, entry in enumerate(course.journal(), start=1)
    ]
    (tmp_path / "kept").mkdir()
    text = "\n".join(json.dumps(line) for line in [*lines, {"line": "end"}])
    (tmp_path / "kept" / "lamp.cadre").write_bytes(gzip.compress(text.encode()))
    return tmp_path


Evaluate = Callable[..., Result]


@pytest.fixture
def evaluate(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Evaluates the kept run with a model that says what the script has."""

    def run(says: str, *options: str) -> Result:
        (shop / "script.yaml").write_text(says)
        with running_model("--script", shop / "script.yaml") as server:
            monkeypatch.setenv("CADRE_MODEL_URL", server.url)
            monkeypatch.setenv("CADRE_MODEL", "scripted")
            words = ["eval", str(shop / "kept"), "--team", str(shop), *options]
            return CliRunner().invoke(group, words, catch_exceptions=False)

    return run


LAMP: dict[str, Any] = {"article": "lamp"}
AS_BEFORE = (("price", LAMP), ("order", LAMP), ("final_answer", {"answer": "A lamp for 20 euros."}))


def found(done: Result) -> dict[str, Any]:
    (one,) = json.loads(done.stdout)
    trial: dict[str, Any] = one["trial"]
    return trial


def test_the_same_answer_without_any_effect(evaluate: Evaluate, shop: Path) -> None:
    done = evaluate(script(*AS_BEFORE), "-o", "json")
    trial = found(done)
    assert (done.exit_code, trial["same_answer"], trial["now"]["state"]) == (0, True, "success"), done.output
    assert (trial["now"]["calls"], trial["now"]["steps"]) == (2, 3)
    assert trial["now"]["tokens"] > 0
    assert not (shop / "calls.txt").exists(), "both calls are answered from the journal"


def test_another_call_of_a_read_only_tool_is_made_and_one_with_an_effect_is_not(
    evaluate: Evaluate, shop: Path
) -> None:
    other: dict[str, Any] = {"article": "desk"}
    says = script(("price", other), ("order", other), ("final_answer", {"answer": "A desk."}))
    trial = found(evaluate(says, "-o", "json"))
    assert (shop / "calls.txt").read_text() == "price desk\n"
    assert (trial["beyond_history"], trial["same_answer"]) == (["order"], False)
    (shop / "calls.txt").unlink()
    trial = found(evaluate(says, "--no-live", "-o", "json"))
    assert (trial["beyond_history"], (shop / "calls.txt").exists()) == (["price", "order"], False)


@pytest.mark.parametrize(("verdict", "code"), [("same", 0), ("better", 0), ("worse", 1)])
def test_a_judge_compares_another_answer_with_the_one_of_then(
    evaluate: Evaluate, verdict: str, code: int
) -> None:
    says = script(*AS_BEFORE[:2], ("final_answer", {"answer": "A lamp."}), judge=verdict)
    done = evaluate(says, "--judge", "scripted")
    assert (done.exit_code, f"{verdict}: It lost the price." in done.stdout) == (code, True), done.output
    assert "1 runs: 0 with the same answer" in done.stdout


def test_a_run_that_does_not_succeed_any_more_is_worse(evaluate: Evaluate) -> None:
    says = "rules:\n  - reply: {tool_calls: [{name: nobody, arguments: {}}]}"
    done = evaluate(says, "--model", "other")
    assert done.exit_code == 1
    assert "success -> " in done.stdout


def test_without_an_endpoint(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CADRE_MODEL_URL", raising=False)
    done = CliRunner().invoke(group, ["eval", str(shop / "kept"), "--team", str(shop)])
    assert (done.exit_code, "CADRE_MODEL_URL" in done.stderr) == (2, True)
