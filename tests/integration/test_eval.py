"""`cadre eval`: the tasks of exported runs, run again over a real endpoint; tools answer from the journals."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cadre.cli.checks.eval import read_tasks
from cadre.cli.main import group
from cadre.errors import SpecError
from cadre.journal.arrivals import Toolset
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Decision, ErrorInfo, Origin, Signal, UserMessage
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.testing import SimulatedRun, call, result, running_model
from harness.kept_file import write_kept
from harness.texts import holds

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
    sim = SimulatedRun(
        AgentSpec(name="clerk", description="Orders things.", tools=["price", "order"]), Toolset(tools=CARDS)
    )
    sim.begin("Order a lamp.")
    sim.say(call("price", article="lamp"))
    sim.arrive(result("r1_1_0", 20.0, tool="price"))
    sim.say(call("order", article="lamp"))
    sim.arrive(result("r1_2_0", "ordered", tool="order"))
    sim.say(call("final_answer", answer="A lamp for 20 euros."))
    write_kept(sim, tmp_path / "kept" / "lamp.cadre")
    return tmp_path


Evaluate = Callable[..., Result]


@pytest.fixture
def evaluate(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Evaluates the kept run with a model that says what the script has."""

    def run(says: str, *options: str, paths: Sequence[Path] = (shop / "kept",)) -> Result:
        (shop / "script.yaml").write_text(says)
        with running_model("--script", shop / "script.yaml") as server:
            monkeypatch.setenv("CADRE_MODEL_URL", server.url)
            monkeypatch.setenv("CADRE_MODEL", "scripted")
            words = ["eval", *map(str, paths), "--team", str(shop), *options]
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


def test_another_call_of_a_read_only_tool_is_made_and_one_with_an_effect_is_not(evaluate: Evaluate, shop: Path) -> None:
    other: dict[str, Any] = {"article": "desk"}
    says = script(("price", other), ("order", other), ("final_answer", {"answer": "A desk."}))
    trial = found(evaluate(says, "-o", "json"))
    assert (shop / "calls.txt").read_text() == "price desk\n"
    assert (trial["beyond_history"], trial["same_answer"]) == (["order"], False)
    (shop / "calls.txt").unlink()
    trial = found(evaluate(says, "--tool", "price=history", "-o", "json"))
    assert (trial["beyond_history"], (shop / "calls.txt").exists()) == (["price", "order"], False)


def test_each_tool_has_its_policy(evaluate: Evaluate, shop: Path) -> None:
    says = script(*AS_BEFORE)
    trial = found(evaluate(says, "--tool", "*=live", "-o", "json"))
    assert (shop / "calls.txt").read_text() == "price lamp\n", "one with an effect is answered from the journal"
    assert (trial["beyond_history"], trial["same_answer"]) == ([], True)
    (shop / "calls.txt").unlink()
    trial = found(evaluate(says, "--tool", "*=history", "--tool", "order=refuse", "-o", "json"))
    assert (trial["beyond_history"], (shop / "calls.txt").exists()) == (["order"], False)


@pytest.mark.parametrize(("policy", "told"), [("order=live", "--tool order=live"), ("order=twice", "NAME=POLICY")])
def test_a_policy_that_none_may_be(shop: Path, policy: str, told: str) -> None:
    done = CliRunner().invoke(group, ["eval", str(shop / "kept"), "--team", str(shop), "--tool", policy])
    assert (done.exit_code, told in done.stderr) == (2, True), done.output


def test_a_policy_of_a_tool_that_nobody_knows_is_told(evaluate: Evaluate) -> None:
    done = evaluate(script(*AS_BEFORE), "--tool", "prise=refuse", "--tool", "price=refuse", "--tool", "*=live")
    assert "--tool prise:" in done.stderr
    assert done.stderr.count("--tool") == 1


def test_other_answers_are_counted_where_no_judge_is_asked(evaluate: Evaluate) -> None:
    done = evaluate(script(("final_answer", {"answer": "A desk."})))
    assert done.exit_code == 0
    assert holds(done.stdout, "1 run: 0", "1 with another, 0")
    held = "rules: [{reply: {hold: true, content: never}}]"
    without = evaluate(held, "--timeout", "1")
    assert "1 run: 0" in without.stdout, without.output


@pytest.mark.parametrize("text", ["", "[]", "tasks: []", "- "])
def test_a_file_without_tasks_is_told_how_one_is_written(shop: Path, text: str) -> None:
    (shop / "tasks.yaml").write_text(text)
    done = CliRunner().invoke(group, ["eval", str(shop / "tasks.yaml"), "--team", str(shop)])
    told = "- agent: NAME" if text != "- " else "[0]: Expected `object`"
    assert (done.exit_code, told in done.stderr) == (2, True), done.output


@pytest.mark.parametrize(("verdict", "code"), [("same", 0), ("better", 0), ("worse", 1)])
def test_a_judge_compares_another_answer_with_the_one_of_then(evaluate: Evaluate, verdict: str, code: int) -> None:
    says = script(*AS_BEFORE[:2], ("final_answer", {"answer": "A lamp."}), judge=verdict)
    done = evaluate(says, "--judge", "scripted")
    assert (done.exit_code, f"{verdict}: It lost the price." in done.stdout) == (code, True), done.output
    assert "1 run: 0" in done.stdout


def test_an_agent_of_ones_own_judges(evaluate: Evaluate, shop: Path) -> None:
    referee = CLERK.replace("clerk", "referee").replace("Orders things.", "Minds the price.")
    (shop / "referee.yaml").write_text(re.sub("  (tools|approvals):.*\n", "", referee) + "  instructions: Mind it.\n")
    verdict = "{tool_calls: [{name: final_answer, arguments: {answer: {why: No price., verdict: worse}}}]}"
    rule = f'  - match: {{system: "Mind it"}}\n    reply: {verdict}\n'
    says = script(*AS_BEFORE[:2], ("final_answer", {"answer": "A lamp."})).replace("rules:\n", f"rules:\n{rule}")
    done = evaluate(says, "--judge", str(shop / "referee.yaml"))
    assert (done.exit_code, "worse: No price." in done.stdout) == (1, True), done.output


def test_people_say_what_they_said_then(evaluate: Evaluate, shop: Path) -> None:
    spec = AgentSpec(name="clerk", description="Orders.", tools=["order"], approvals={"order": "always"})
    sim = SimulatedRun(spec, Toolset(tools=CARDS))
    sim.begin("Order a lamp.")
    sim.say(call("order", article="lamp"))
    word = Decision(id="d1", tree="r1", run="r1", at=2.0, call=sim.id(), verdict="rejected", feedback="We have lamps.")
    sim.arrive(word)
    sim.say(call("final_answer", answer="No lamp is needed."))
    write_kept(sim, shop / "kept" / "lamp.cadre")
    says = (
        script(("order", LAMP))
        + """
  - match: {turn: 1, last: "We have lamps"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: No lamp is needed.}}]}
"""
    )
    trial = found(evaluate(says, "-o", "json"))
    assert (trial["same_answer"], trial["now"]["calls"], trial["beyond_history"]) == (True, 0, [])


def test_what_people_told_the_run_is_told_again(evaluate: Evaluate, shop: Path) -> None:
    spec = AgentSpec(name="clerk", description="Orders things.", tools=["price", "order"])
    sim = SimulatedRun(spec, Toolset(tools=CARDS))
    sim.begin("Order a lamp.")
    sim.say(call("price", article="lamp"))
    sim.arrive(result("r1_1_0", 20.0, tool="price"))
    sim.arrive(UserMessage(id="m1", tree="r1", run="r1", at=2.0, text="In green, please.", sender="anna"))
    sim.say(call("order", article="lamp"))
    sim.arrive(result("r1_2_0", "ordered", tool="order"))
    sim.say(call("final_answer", answer="A green lamp."))
    write_kept(sim, shop / "kept" / "lamp.cadre")
    says = (
        script(*AS_BEFORE[:2])
        + """
  - match: {turn: 2, user: "In green, please"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: A green lamp.}}]}
  - match: {turn: 2}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: Any lamp.}}]}
"""
    )
    trial = found(evaluate(says, "-o", "json"))
    assert (trial["now"]["output"], trial["same_answer"]) == ("A green lamp.", True), trial


def test_a_signal_that_came_comes_again(evaluate: Evaluate, shop: Path) -> None:
    steps = {
        "paid": {"wait": {"signal": "paid"}, "next": "done"},
        "done": {"end": "paid {{ paid.payload.sum }}"},
    }
    clerk = yaml.safe_load(CLERK)
    clerk["spec"] = {
        "description": "Waits.",
        "kind": "workflow",
        "workflow": {"start": "paid", "steps": steps},
    }
    (shop / "clerk.yaml").write_text(yaml.safe_dump(clerk))
    sim = SimulatedRun(read_agent(shop / "clerk.yaml"))
    sim.begin("Wait for the money.")
    sim.arrive(Signal(id="s1", tree="r1", run="r1", at=2.0, name="paid", payload={"sum": 12}, sender="till"))
    assert sim.run.result is not None
    write_kept(sim, shop / "kept" / "lamp.cadre")
    trial = found(evaluate("rules: []", "-o", "json"))
    assert (trial["now"]["output"], trial["same_answer"]) == ("paid 12", True), trial


def test_a_run_recalls_what_it_recalled_then(evaluate: Evaluate, shop: Path) -> None:
    clerk = yaml.safe_load(CLERK)
    clerk["spec"] |= {"memory": {"recall": 3, "scope": "user", "reads": ["user"]}}
    (shop / "clerk.yaml").write_text(yaml.safe_dump(clerk))
    sim = SimulatedRun(read_agent(shop / "clerk.yaml"), Toolset(tools=CARDS))
    sim.begin("Order what Anna likes.", origin=Origin(user="anna"))
    assert sim.run.recalling is not None
    memory = {"text": "Anna likes green lamps.", "at": 1.0}
    sim.arrive(result(sim.run.recalling.call, {"hits": [memory]}, tool="recall"))
    sim.say(call("final_answer", answer="A green lamp."))
    write_kept(sim, shop / "kept" / "lamp.cadre")
    says = """
rules:
  - match: {user: "<note.*Anna likes green lamps"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: A green lamp.}}]}
  - reply: {tool_calls: [{name: final_answer, arguments: {answer: Any lamp.}}]}
"""
    trial = found(evaluate(says, "-o", "json"))
    assert (trial["now"]["output"], trial["same_answer"]) == ("A green lamp.", True), trial


def test_the_model_reads_an_error_of_then_word_for_word(evaluate: Evaluate, shop: Path) -> None:
    sim = SimulatedRun(AgentSpec(name="clerk", description="Tells.", tools=["price"]), Toolset(tools=CARDS))
    sim.begin("What is a lamp?")
    sim.say(call("price", article="lamp"))
    error = ErrorInfo("tool-failed", "Error executing tool 'price': nobody knows")
    sim.arrive(result("r1_1_0", tool="price", error=error))
    sim.say(call("final_answer", answer="Nobody knows."))
    write_kept(sim, shop / "kept" / "lamp.cadre")
    says = (
        script(("price", LAMP))
        + """
  - match: {turn: 1, last: "^(Error:\\\\s+)?Error executing tool 'price': nobody knows"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: Nobody knows.}}]}
"""
    )
    done = evaluate(says, "-o", "json")
    assert found(done)["same_answer"], done.stdout
    assert "Traceback" not in done.output


def test_what_cannot_be_tried_harms_nothing_else(evaluate: Evaluate, shop: Path) -> None:
    whole = (shop / "kept" / "lamp.cadre").read_bytes()
    (shop / "kept" / "broken.cadre").write_bytes(whole[: len(whole) // 2])
    done = evaluate(script(*AS_BEFORE))
    assert done.exit_code == 1
    assert holds(done.stdout, "2 runs: 1", "0 worse, 1")
    assert "broken: not tried" in done.stderr, "each is told as it ends"
    assert "lamp: success, same" in done.stderr


def test_tasks_that_somebody_has_written_down(evaluate: Evaluate, shop: Path) -> None:
    (shop / "tasks.yaml").write_text("""
- {name: known, agent: clerk, task: Order a lamp., answer: A lamp for 20 euros.,
   calls: [{tool: order, arguments: {article: lamp}, output: ordered}]}
- {name: open, agent: clerk, task: Order a lamp., calls: [{tool: order, arguments: {article: lamp}, error: none left}]}
- {agent: nobody, task: Order a lamp.}
""")
    done = evaluate(script(*AS_BEFORE), "-o", "json", paths=[shop / "tasks.yaml"])
    known, unknown, nobody = json.loads(done.stdout)
    assert (known["trial"]["same_answer"], known["is_worse"], known["trial"]["now"]["calls"]) == (
        True,
        False,
        2,
    )
    assert (unknown["trial"]["same_answer"], unknown["trial"]["before"], unknown["is_worse"]) == (
        None,
        None,
        False,
    )
    assert (nobody["name"], "agent nobody" in nobody["problem"], done.exit_code) == (
        "tasks-3",
        True,
        1,
    )
    assert (shop / "calls.txt").read_text() == "price lamp\n" * 2, "the one tool that is read-only"
    (shop / "tasks.yaml").write_text("- {agent: clerk, tusk: x}")
    with pytest.raises(SpecError, match=r"tasks\.yaml"):
        read_tasks(shop / "tasks.yaml")


def test_a_run_that_does_not_succeed_any_more_is_worse(evaluate: Evaluate) -> None:
    says = "rules:\n  - reply: {tool_calls: [{name: nobody, arguments: {}}]}"
    done = evaluate(says, "--model", "other")
    assert done.exit_code == 1
    assert "success -> " in done.stdout


def test_without_an_endpoint(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CADRE_MODEL_URL", raising=False)
    done = CliRunner().invoke(group, ["eval", str(shop / "kept"), "--team", str(shop)])
    assert (done.exit_code, "CADRE_MODEL_URL" in done.stderr) == (2, True)
