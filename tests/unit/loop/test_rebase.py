"""Kept runs decided by what their agents' files say now."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.journal import events as ev
from cadre.kinds.plan.section import PlanSpec
from cadre.loop.rebase import CannotRebase, TeamFiles, rebase
from cadre.loop.redecide import Journaled, Replay, redecide
from cadre.loop.tool_changes import tool_changes
from cadre.protocol.cards import ToolCard
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections
from journals import kept
from unit.loop.build import ADD, ANSWER, KID, LOOK, SimulatedRun, Toolset, call, report, result, spec, task
from unit.loop.test_loop_properties import Chance
from unit.loop.test_redecide import busy_run


def journal_of(sim: SimulatedRun) -> list[Journaled]:
    return [Journaled(n, entry) for n, entry in enumerate(sim.journal(), start=1)]


def decided(sim: SimulatedRun, now: AgentSpec, *tools: Any) -> Replay:
    return redecide([rebase(journal_of(sim), TeamFiles({now.name: now}, list(tools)))], decisions_only=True)


def lines(replay: Replay) -> str:
    return "\n".join(line for one in replay.divergences for line in one.lines)


def simple() -> SimulatedRun:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2), call("kid", task="help"))
    sim.arrive(result(sim.id(0), 3))
    sim.arrive(report(sim.id(1), "helped"))
    sim.say(ANSWER)
    return sim


def test_with_the_files_that_it_began_with_a_run_goes_as_it_did() -> None:
    for sim in (simple(), busy_run()):
        for tools in ((), (ADD, LOOK)):
            replay = decided(sim, spec(), *tools)
            assert (replay.divergences, replay.undecided) == ([], [])
            assert replay.decided == len(sim.journal())


@settings(max_examples=60)
@given(st.data())
def test_whatever_happened_to_a_run_it_goes_as_it_did(data: st.DataObject) -> None:
    chance = Chance(data)
    for _ in range(data.draw(st.integers(1, 30))):
        chance.step()
    sim = chance.sim
    if isinstance(sim.journal()[0].events[0], ev.RunAccepted):
        assert decided(sim, sim.spec).divergences == []


def test_kept_runs_of_every_kind_go_as_they_did() -> None:
    """Those of the simulation, whose offers are not in the order of a registry: texts that list names may differ."""
    kinds, tried = set(), 0
    for version in kept.VERSIONS:
        for name in kept.names(version):
            for journal in kept.journals(version, name):
                first = journal[0].entry.events[0]
                if not isinstance(first, ev.RunAccepted):
                    continue
                try:
                    rebased = rebase(journal, TeamFiles({first.spec.name: first.spec}, []))
                except CannotRebase:
                    continue
                replay = redecide([rebased], decisions_only=True)
                kinds.add(first.spec.kind)
                tried += 1
                assert not replay.undecided
                assert all("now [" not in line for line in _without_lists(replay)), replay.divergences
    assert kinds >= {"tool_calling", "code", "goals", "task_queue", "solution", "plan", "workflow"}
    assert tried > 300


def _without_lists(replay: Replay) -> list[str]:
    """The lines that do not tell of a text which lists names."""
    found = [line for one in replay.divergences for line in one.lines]
    return [f"now [{line}]" for line in found if "one of" not in line and "is not running" not in line]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"approvals": {"add": "always"}}, "approval.requested"),
        ({"tools": ["look"]}, "Unknown tool 'add'"),
        ({"team": []}, "Unknown tool 'kid'"),
        ({"limits": Limits(max_steps=1)}, 'journaled "act", now "final"'),
        (
            {"limits": Limits(budget=Budget(steps=1))},
            'delegate.started.budget: journaled null, now {"steps":1}',
        ),
        ({"output_schema": {"type": "object"}}, "now       model.answered, call.refused"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_changed_files_are_told_where_they_count(fields: dict[str, Any], told: str) -> None:
    replay = decided(simple(), spec(**fields), ADD, LOOK)
    assert len(replay.divergences) == 1, "of each run the first"
    assert told in lines(replay), lines(replay)


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "Be brief."},
        {"description": "Does it."},
        {"limits": Limits(max_steps=7)},
        {"tools": ["add"]},
    ],
    ids=str,
)
def test_files_that_change_no_decision(fields: dict[str, Any]) -> None:
    assert decided(simple(), spec(**fields), ADD, LOOK).divergences == []


def test_a_condition_in_other_words_changes_no_decision_while_the_same_follows() -> None:
    sim = SimulatedRun(spec(approvals={"add": "when: a > 0"})).begin()
    sim.say(call("add", a=1, b=2))
    assert decided(sim, spec(approvals={"add": "when: a >= 1"})).divergences == []
    assert "tool.called" in lines(decided(sim, spec(approvals={"add": "when: a > 1"})))


def test_a_tool_with_another_schema_refuses_what_it_took() -> None:
    strict = ADD.__class__(
        name="add",
        description="Adds.",
        input_schema={**ADD.input_schema, "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    )
    assert "call.refused" in lines(decided(simple(), spec(), strict, LOOK))


def test_what_was_not_running_then_is_not_running_now() -> None:
    sim = SimulatedRun(toolset=Toolset(tools={"look": LOOK}, members={"kid": KID}, missing=["add"])).begin()
    sim.say(call("add", a=1, b=2))
    sim.say(ANSWER)
    assert decided(sim, spec(), ADD, LOOK).divergences == []


SEARCH = ToolCard(name="query_resources", description="Searches.", input_schema={"type": "object"})


def test_a_run_with_files_may_search_them_as_it_did() -> None:
    sim = SimulatedRun(
        toolset=Toolset(tools={"add": ADD, "look": LOOK, "query_resources": SEARCH}, members={"kid": KID})
    )
    sim.arrive(task(has_files=True))
    sim.say(call("query_resources", query="x"))
    sim.arrive(result(sim.id(0), "found", tool="query_resources"))
    sim.say(ANSWER)
    assert decided(sim, spec(), ADD, LOOK).divergences == []
    assert changes(sim, spec(), [ADD, LOOK, SEARCH], has_all_tools=True) == []


def changes(
    sim: SimulatedRun, now: AgentSpec, tools: list[ToolCard], *, has_all_tools: bool = False
) -> list[tuple[str, str, int, list[str]]]:
    team = TeamFiles({now.name: now}, tools, has_all_tools)
    return [(one.tool, one.change, one.calls, [*one.refused]) for one in tool_changes(journal_of(sim), team)]


def test_tools_are_told_that_are_not_offered_as_they_were() -> None:
    sim = SimulatedRun(toolset=Toolset(tools={"add": ADD, "look": LOOK}, members={"kid": KID})).begin()
    sim.say(call("add", a=1, b=2), call("add", a=1, b=20))
    first, second = sim.id(0), sim.id(1)
    sim.arrive(result(first, 3))
    sim.arrive(result(second, 21))
    sim.say(ANSWER)
    small = {**ADD.input_schema, "properties": {"a": {"type": "integer"}, "b": {"maximum": 9}}}
    strict = msgspec.structs.replace(ADD, input_schema=small)
    deleted = ToolCard(name="delete", description="Deletes.", input_schema={"type": "object"})
    later = spec(tools=["add", "delete"])
    assert changes(sim, later, [strict, LOOK, deleted]) == [
        ("add", "changed", 2, [second]),
        ("delete", "new", 0, []),
        ("look", "gone", 0, []),
    ]
    # What other services offered is as it was, unless all that there is is known.
    assert changes(sim, spec(), []) == []
    assert changes(sim, spec(), [LOOK], has_all_tools=True) == [("add", "gone", 2, [first, second])]
    gone = redecide([rebase(journal_of(sim), TeamFiles({"boss": spec()}, [LOOK], True))], decisions_only=True)
    assert "Unknown tool 'add'" in lines(gone)
    # What neither a model reads nor an agent decides by is no change.
    relabelled = msgspec.structs.replace(ADD, labels={"team": "b"}, version="2")
    assert changes(sim, spec(), [relabelled, LOOK], has_all_tools=True) == []


@pytest.mark.parametrize(
    ("agents", "why"),
    [
        ({}, r"\bboss\b"),
        ({"boss": spec(kind="solution")}, "is solution now"),
        ({"boss": spec(**sections(PlanSpec(execute=True)))}, r"\btool_calling\b.*\bplan\b"),
    ],
    ids=["unknown", "another kind", "decided by another kind"],
)
def test_files_that_say_nothing_of_a_run(agents: dict[str, AgentSpec], why: str) -> None:
    with pytest.raises(CannotRebase, match=why):
        rebase(journal_of(simple()), TeamFiles(agents, []))
