"""`cadre eval` and `cadre test` of runs whose queue or plan people edited, and of runs with such runs below them: what
people did is done again, or it is reported."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cadre.cli.main import group
from cadre.engine.kind import kind_of
from cadre.engine.toolset import card_of
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Decision, Edit, Signal, UserMessage
from cadre.spec.agent_file import read_agent
from cadre.testing import SimulatedRun, call, report, result, running_model
from cadre.testing.kept_run import kept_run
from harness.kept_file import write_kept
from kinds.goals.build import answer

TOOLS = '''
from cadre import tool


@tool(read_only=True)
def price(article: str) -> float:
    """Tell what an article costs."""
    return 7.0
'''
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: shop}
spec: {agents: [boss.yaml, clerk.yaml], tools: [shop.py]}
"""
BOSS = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: boss}
spec: {description: Has prices told., instructions: You are the boss., tools: [price], team: [clerk]}
"""
QUEUE = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Tells prices.
  kind: task_queue
  task_queue: {goals: [Every price is known.], create: false, prioritize: false}
  tools: [price]
"""
PLAN = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Tells prices.
  kind: plan
  plan:
    approve_plan: true
    steps:
      - {step: 1, action: price, args: {article: lamp}}
      - {step: 2, action: price, args: {article: desk}, needs: [1]}
  tools: [price]
"""
WAITER = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Waits.
  kind: workflow
  workflow:
    start: paid
    steps: {paid: {wait: {signal: paid}, next: done}, done: {end: "paid {{ paid.payload.sum }}"}}
"""
PRICE = ToolCard(
    name="price",
    description="Tell what an article costs.",
    input_schema={"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]},
    read_only=True,
)
_NUMBERS = itertools.count()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in (
        ("shop.py", TOOLS),
        ("team.yaml", TEAM),
        ("boss.yaml", BOSS),
        ("clerk.yaml", QUEUE),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


def begun(shop: Path, agent: str = QUEUE, run: str = "r1") -> SimulatedRun:
    (shop / "clerk.yaml").write_text(agent)
    sim = SimulatedRun(read_agent(shop / "clerk.yaml"), Toolset(tools={"price": PRICE}), run)
    return sim.begin("What do they cost?")


def edit(sim: SimulatedRun, *operations: dict[str, Any]) -> None:
    there = kind_of(sim.run).editable(sim.run)
    assert there is not None
    record = Edit(
        id=f"e{next(_NUMBERS)}",
        tree="r1",
        run=sim.run.id,
        at=2.0,
        sender="ann",
        base=there.version,
        operations=[*operations],
    )
    events = sim.arrive(record)
    assert isinstance(events[0], ev.EditApplied), events


def priced(sim: SimulatedRun, sum_: float) -> None:
    sim.arrive(result(sim.run.open_calls()[0].id, sum_, tool="price"))


def edited_queue(shop: Path, run: str = "r1") -> SimulatedRun:
    """Ann drops the desk and has a sofa in its place, while the price of the lamp is looked up."""
    sim = begun(shop, run=run)
    sim.say(content='["price a lamp", "price a desk", "price a chair"]')
    sim.say(content=answer("price", article="lamp"))
    edit(sim, {"op": "drop", "task": "price a desk"}, {"op": "add", "task": "price a sofa", "at": 0})
    priced(sim, 20.0)
    sim.say(content=answer("price", article="sofa"))
    priced(sim, 90.0)
    sim.say(content=answer("price", article="chair"))
    priced(sim, 30.0)
    sim.say(content="A lamp, a sofa and a chair.")
    assert sim.run.result is not None
    write_kept(sim, shop / "kept" / "prices.cadre")
    return sim


def delegated(shop: Path, clerk: SimulatedRun) -> None:
    """The boss has had the clerk do this, and answers with what it said."""
    spec = read_agent(shop / "boss.yaml")
    boss = SimulatedRun(spec, Toolset(tools={"price": PRICE}, members={"clerk": card_of(clerk.spec)}))
    boss.begin("What do they cost?")
    boss.say(call("clerk", task="What do they cost?"))
    assert clerk.run.result is not None
    boss.arrive(report("r1_1_0", str(clerk.run.result.output), agent="clerk"))
    boss.say(call("final_answer", answer=clerk.run.result.output))
    write_kept(boss, shop / "kept" / "prices.cadre", clerk)


def boss_says(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Rules of a boss that makes these calls, one after the other, and answers with what the clerk said."""
    said = "{{ tool_results[-1].splitlines()[-1] }}"
    made = [*calls, {"name": "final_answer", "arguments": {"answer": said}}]
    return [
        {"match": {"system": "You are the boss", "turn": turn}, "reply": {"tool_calls": [one]}}
        for turn, one in enumerate(made)
    ]


ASKS = {"name": "clerk", "arguments": {"task": "What do they cost?"}}
LOOKS = {"name": "price", "arguments": {"article": "lamp"}}


def script(*articles: str, boss: Sequence[dict[str, Any]] = ()) -> str:
    """A model that makes these tasks and does whichever it is given; its answer reports what it has done."""
    tasks = json.dumps([f"price a {article}" for article in articles])
    rules = [*boss, {"match": {"turn": 0, "user": "JSON array"}, "reply": {"content": tasks}}]
    for one in ("lamp", "desk", "sofa", "chair"):
        match = {"user": f"Current task: price a {one}"}
        rules.append({"match": match, "reply": {"content": answer("price", article=one)}})
    rules.append({"match": {"user": "price a desk: "}, "reply": {"content": "A desk too."}})
    rules.append({"match": {}, "reply": {"content": "A lamp, a sofa and a chair."}})
    return json.dumps({"rules": rules})


def evaluated(shop: Path, says_: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, dict[str, Any]]:
    (shop / "script.yaml").write_text(says_)
    with running_model("--script", shop / "script.yaml") as server:
        monkeypatch.setenv("CADRE_MODEL_URL", server.url)
        monkeypatch.setenv("CADRE_MODEL", "scripted")
        words = ["eval", str(shop / "kept"), "--team", str(shop), "-o", "json", "--timeout", "60"]
        done = CliRunner().invoke(group, words, catch_exceptions=False)
    (one,) = json.loads(done.stdout)
    found: dict[str, Any] = one
    return done, found


def test_an_edit_of_the_queue_is_made_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited_queue(shop)
    done, found = evaluated(shop, script("lamp", "desk", "chair"), monkeypatch)
    assert (found["trial"]["now"]["output"], found["trial"]["same_answer"], done.exit_code) == (
        "A lamp, a sofa and a chair.",
        True,
        0,
    ), found
    assert found["trial"]["now"]["calls"] == 3


def test_an_edit_that_cannot_be_made_of_another_queue_is_told(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited_queue(shop)
    done, found = evaluated(shop, script("lamp", "chair"), monkeypatch)
    assert (done.exit_code, found["trial"]) == (1, None)
    assert 'ann edited then [{"op":"drop","task":"price a desk"}' in found["problem"]
    assert found["problem"].endswith("'price a desk'")


def test_a_run_that_ends_before_the_edit_is_told(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = begun(shop)
    sim.say(content='["price a lamp", "price a desk"]')
    sim.say(content=answer("price", article="lamp"))
    priced(sim, 20.0)
    sim.say(content=answer("price", article="desk"))
    edit(sim, {"op": "add", "task": "price a chair"})
    priced(sim, 50.0)
    sim.say(content=answer("price", article="chair"))
    priced(sim, 30.0)
    sim.say(content="All of them.")
    assert sim.run.result is not None
    write_kept(sim, shop / "kept" / "prices.cadre")
    done, found = evaluated(shop, script("lamp"), monkeypatch)
    assert (done.exit_code, found["trial"]) == (1, None)
    assert 'ann edited then [{"op":"add","task":"price a chair"' in found["problem"]


def test_an_edit_of_a_plan_is_made_before_the_word_that_it_waited_for(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = begun(shop, PLAN)
    (call,) = sim.run.open_calls()
    edit(sim, {"op": "change", "step": 2, "args": {"article": "sofa"}})
    (call,) = sim.run.open_calls()
    sim.arrive(Decision(id="d1", tree="r1", run="r1", at=2.0, call=call.id, verdict="approved", sender="ann"))
    priced(sim, 20.0)
    priced(sim, 90.0)
    assert sim.run.result is not None
    assert sim.run.result.output == 90.0
    write_kept(sim, shop / "kept" / "prices.cadre")
    done, found = evaluated(shop, "rules: []", monkeypatch)
    assert (found["trial"]["now"]["output"], found["trial"]["same_answer"], done.exit_code) == (90.0, True, 0)


def test_a_message_between_two_iterations_is_said_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is due while nothing comes to rest: the run's process has the next call of the model in hand."""
    sim = begun(shop)
    sim.say(content='["price a lamp"]')
    sim.arrive(UserMessage(id="m1", tree="r1", run="r1", at=2.0, text="Be quick.", sender="ann"))
    sim.say(content=answer("price", article="lamp"))
    priced(sim, 20.0)
    sim.say(content="A lamp, a sofa and a chair.")
    assert sim.run.result is not None
    write_kept(sim, shop / "kept" / "prices.cadre")
    done, found = evaluated(shop, script("lamp"), monkeypatch)
    assert (found["trial"]["now"]["error"], found["trial"]["same_answer"], done.exit_code) == ("", True, 0)


def test_an_edit_of_a_members_queue_is_made_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same delegation, though it comes a step later now."""
    delegated(shop, edited_queue(shop, "r1_1_0"))
    done, found = evaluated(shop, script("lamp", "desk", "chair", boss=boss_says(LOOKS, ASKS)), monkeypatch)
    assert (found["problem"], done.exit_code) == ("", 0), found
    assert (found["trial"]["same_answer"], found["trial"]["now"]["calls"]) == (True, 4), found


def test_an_edit_of_work_that_is_not_delegated_again_is_told(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delegated(shop, edited_queue(shop, "r1_1_0"))
    done, found = evaluated(shop, script("lamp", boss=boss_says(LOOKS)), monkeypatch)
    assert (done.exit_code, found["trial"]) == (1, None)
    assert "ann edited the work of clerk then [" in found["problem"]


def test_a_signal_to_a_member_comes_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = begun(shop, WAITER, "r1_1_0")
    sim.arrive(Signal(id="s1", tree="r1", run="r1_1_0", at=2.0, name="paid", payload={"sum": 12}, sender="till"))
    delegated(shop, sim)
    done, found = evaluated(shop, script(boss=boss_says(ASKS)), monkeypatch)
    assert (found["trial"]["now"]["output"], done.exit_code) == ("paid 12", 0), found


def test_what_was_done_to_a_run_that_nobody_began_is_no_case(shop: Path) -> None:
    sim = edited_queue(shop)
    below = Entry(
        arrived=ArrivalRecord("Task"),
        run="r1_1_0",
        agent="clerk",
        n=1,
        cause="e",
        at=1.0,
        events=[ev.EditApplied(base=1, operations=[])],
    )
    with pytest.raises(ValueError, match="r1_1_0"):
        kept_run("r1", {"r1": sim.journal(), "r1_1_0": [below]}, {}, {})


def test_cadre_test_decides_edits_again_too(shop: Path) -> None:
    edited_queue(shop)

    def tried() -> Result:
        return CliRunner().invoke(group, ["test", str(shop / "kept"), "--team", str(shop)])

    assert "1 kept, 1 decided as before, 0 not" in tried().stdout
    # With the one of ann there would be a task too many by the files of now.
    (shop / "clerk.yaml").write_text(QUEUE.replace("create: false", "create: false, most: 3"))
    otherwise = tried()
    assert otherwise.exit_code == 1
    assert "journaled edit.applied, queue.edited" in otherwise.stdout
    assert "now       edit.refused" in otherwise.stdout
