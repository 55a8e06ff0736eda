"""`plan.execute`: agents of other kinds carry their plans out as steps, each in their own way."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cadre.cli.team.up import graph
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.kinds.plan.records import PlanMade
from cadre.kinds.plan.section import EXECUTING_KINDS, PlanSpec
from cadre.prompting.prompts import prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import KindDeclaration, declared_kinds, sections
from cadre.telemetry.tracing.page import trace_of
from kinds.code.build import asks, code_call, ended, yielded
from kinds.plan.build import (
    ADD,
    LOOK,
    begun,
    child_of,
    done,
    edit,
    failed,
    plan,
    purpose,
    reported,
    state,
    states,
    tasks,
    text,
)
from unit.loop.build import SimulatedRun, call, only, result, sound

STEPS: tuple[Any, ...] = (
    {"step": 1, **ADD},
    {"step": 2, **LOOK, "needs": []},
    {"step": 3, "task": "Tell {{ step_1 }} and {{ step_2 }}."},
)


def executing(kind: str, *steps: Any, **section: Any) -> SimulatedRun:
    return begun(*steps, fields={"kind": kind}, execute=True, **section)


@pytest.mark.parametrize("kind", EXECUTING_KINDS)
def test_its_plan_becomes_steps(kind: str) -> None:
    sim = executing(kind)
    assert purpose(sim) == "make_plan"
    asked = text(sim)
    assert "- add: Adds." in asked
    assert "- kid: Helps." in asked
    assert "Nothing is to be done yet" in asked
    assert "final_answer" not in asked
    assert only(sim.say(content=plan(*STEPS)), PlanMade).origin == "model"
    assert states(sim) == {1: "running", 2: "running", 3: "pending"}
    edit(sim, {"op": "change", "step": 3, "task": "Shout {{ step_1 }} and {{ step_2 }}."})
    done(sim, 1, 3)
    failed(sim, 2)
    assert purpose(sim) == "replan"
    sim.say(content=plan({"step": 4, "task": "Tell {{ step_1 }}."}))
    (sent,) = tasks(sim)
    assert (sent.agent, sent.inputs) == ("boss", {"step_1": 3})
    assert state(sim).version == 3
    entries = [*sim.journal()]
    assert "make_plan" in {span.name for span in trace_of(entries, now=0.0)}
    sound(sim)


@pytest.mark.parametrize(
    ("kind", "of_steps"), [("tool_calling", "tool_calling"), ("code", "code"), ("plan", "tool_calling")]
)
def test_a_run_names_the_kind_that_decides_it(kind: str, of_steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = begun({"task": "Add up."}, fields={"kind": kind}, execute=kind != "plan")
    child = child_of(sim, tasks(sim)[0])
    for one, decided_by in ((sim, "plan"), (child, of_steps)):
        accepted = only(one.journal()[0].events, ev.RunAccepted)
        assert (accepted.spec.kind, accepted.decided_by, one.run.decided_by) == (kind, decided_by, decided_by)
        assert {entry.kind for entry in one.journal()} == {decided_by}
    # Anyone who reads the runs takes it from them.
    for declared in {kind, of_steps, "plan"}:
        monkeypatch.setitem(declared_kinds(), declared, decided_elsewhere(declared_kinds()[declared]))
    sound(child)
    sound(sim)
    entries = [*sim.journal(), *child.journal()]
    assert {span.name for span in trace_of(entries, now=0.0)} >= {"make_plan"}


def decided_elsewhere(declared: KindDeclaration) -> KindDeclaration:
    return declared._replace(facts=lambda spec: declared.facts(spec)._replace(kind="remote"))


@pytest.mark.parametrize("kind", [*EXECUTING_KINDS, "plan"])
def test_a_step_is_read_with_the_whole_task_and_the_plan_and_no_member_s_form(kind: str) -> None:
    steps = ({"step": 1, **ADD}, {"step": 2, "task": "Tell {{ step_1 }}.", "needs": [1]})
    sim = begun(*steps, task="Shout the sum.", fields={"kind": kind}, execute=kind != "plan")
    done(sim, 1, 3)
    child = child_of(sim, tasks(sim)[0])
    asked = text(child)
    assert "Shout the sum." in asked
    assert "step 1 (add)" in asked
    assert asked.rindex("Tell 3.") > asked.index("step 2 (execute, needs 1)") > asked.index("step 1 (add)")
    form = prompts_for(sim.spec).managed_task("boss", "")
    assert not {line for line in form.splitlines() if line.startswith("### ")} & {*asked.splitlines()}
    sound(child)


def test_what_a_step_reads_of_the_task_counts_in_its_context() -> None:
    weights = []
    for words in (10, 1000):
        sim = begun(ADD, {"task": "Tell."}, task="Shout. " * words)
        done(sim, 1, 3)
        weights.append(child_of(sim, tasks(sim)[0]).run.tokens)
    assert weights[1] - weights[0] > 990


@pytest.mark.parametrize("planning", [False, True])
def test_a_step_that_is_the_whole_task_is_read_as_it_was_given(planning: bool) -> None:
    """No task is a template, so what it says of templates is no error either."""
    sim = begun(task="Explain {{ nope }}.", fields={"kind": "plan"}, planning=planning, tries=1)
    if planning:
        sim.say(content="No.")
    (sent,) = tasks(sim)
    assert sent.task == "Explain {{ nope }}."
    child = child_of(sim, sent)
    asked = text(child)
    assert asked.count("Explain {{ nope }}.") == 1
    assert asked.endswith("New task:\nExplain {{ nope }}.")


def test_an_agent_that_calls_tools_carries_a_step_out_by_calls() -> None:
    sim = executing("tool_calling", {"task": "Add up."})
    child = child_of(sim, tasks(sim)[0])
    assert "A step is settled by acting" not in text(child)
    child.say(call("add", a=1, b=2))
    child.arrive(result(child.id(), 3))
    child.say(call("final_answer", answer="three"))
    sim.arrive(reported(child))
    assert sim.run.result is not None
    assert sim.run.result.output == "three"
    sound(child)
    sound(sim)


def test_an_agent_that_writes_code_carries_a_step_out_in_code() -> None:
    sim = executing("code", {"task": "Add up."}, result="{{ result | int + 1 }}")
    child = child_of(sim, tasks(sim)[0])
    assert "<code>" in text(child)
    child.say(content="Thought: add.\n<code>\nfinal_answer(add(a=1, b=2))\n")
    block = code_call(child).block
    place: dict[str, Any] = {"tree": "r1", "run": child.run.id}
    child.arrive(yielded(asks("add", a=1, b=2), block=block, **place))
    child.arrive(result(child.run.open_calls()[0].id, 3))
    child.arrive(ended(1, block=block, output=3, text="3", is_final_answer=True, **place))
    sim.arrive(reported(child))
    assert sim.run.result is not None
    assert sim.run.result.output == 4
    sound(child)
    sound(sim)


def test_without_a_plan_the_task_is_the_only_step() -> None:
    sim = executing("tool_calling", planning=False)
    assert [one.task for one in tasks(sim)] == ["Do it."]


@pytest.mark.parametrize(
    ("fields", "section", "why"),
    [
        ({"kind": "goals"}, {"execute": True}, "plan: .*kind plan"),
        ({"kind": "code"}, {"replans": 1}, "write execute: true"),
        ({"planning_interval": 2, "kind": "code"}, {"execute": True}, "planning_interval"),
        ({"kind": "code"}, {"execute": True, "role": "A clerk."}, "write `instructions`"),
        ({"kind": "code"}, {"execute": True, "most": 0}, r"plan.most"),
        ({"kind": "plan"}, {"execute": True}, "do anyway"),
    ],
)
def test_a_section_that_cannot_hold_is_refused(fields: dict[str, Any], section: dict[str, Any], why: str) -> None:
    written = sections(msgspec.convert(section, PlanSpec))
    with pytest.raises(SpecError, match=why):
        AgentSpec(name="a", description="A.", **written, **fields)


def test_it_is_drawn_as_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\n"
        "spec: {description: Works., kind: code, plan: {execute: true}}\n"
    )
    drawn = CliRunner().invoke(graph, [str(file)], standalone_mode=False).output
    assert '["make_plan"]' in drawn
