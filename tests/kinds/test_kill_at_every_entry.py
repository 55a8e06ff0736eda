"""For each kind one run: a process dies behind each single record that it stores, and before each. The answer is the
same, so are the effects and the trace."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from cadre import tool
from cadre.client.errors import RunFailed
from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.kinds.code.section import CodeSpec
from cadre.kinds.goals.records import GoalsSpec
from cadre.kinds.plan.section import PlanSpec
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.code import CodeLimits
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from cadre.telemetry.tracing.page import trace_of
from cadre.testing import Team, TeamRunWaits, answer, call, crash_points
from kinds.goals.build import answer as iteration

KEPT: Counter[str] = Counter()
"""The effects of a play."""


@tool(idempotent=True)
async def keep(what: str) -> str:
    """Keep something, under its name."""
    KEPT[what] = 1
    return f"kept {what}"


@tool(read_only=True)
async def look(at: str) -> str:
    """Look at something."""
    return f"a fine {at}"


@tool(read_only=True)
async def stumble() -> str:
    """Fail."""
    raise ValueError("a stone in the way")


Replies = list[str | RequestedCall | list[RequestedCall]]


class Play(NamedTuple):
    """One run of a kind."""

    agent: AgentSpec
    model: Replies | Callable[[ModelRequest], str | RequestedCall]
    answer: Any
    kept: frozenset[str]


def agent(kind: str, *section: Any, **fields: Any) -> AgentSpec:
    tools = ["keep", "look", "stumble"]
    return AgentSpec(name="worker", description="Works.", kind=kind, tools=tools, **sections(*section), **fields)


def solution(output: Any, *calls: tuple[str, dict[str, Any]]) -> str:
    made = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return json.dumps({"solution": {"calls": made, "output": output}})


def works_on_goals(request: ModelRequest) -> str:
    text = str(request.messages)
    if "Somebody works on these goals" in text:
        return "Finish."
    if "Tool keep returned" not in text:
        return iteration("keep", what="one")
    if "Finish." not in text:
        return iteration("think", task_description="And now?")
    return iteration("finish", response="kept")


def works_through_its_queue(request: ModelRequest) -> str:
    text = str(request.messages)
    if "You break goals down" in text:
        return '["one", "two"]'
    if (current := re.search(r"Current task: (\w+)", text)) is not None:
        return iteration("keep", what=current[1])
    if "Put the tasks that wait" in text:
        return '["three", "two"]'
    if "The task done last" in text:
        return "[]" if "three" in text else '["three"]'
    return "All is kept."


def works_by_plan(request: ModelRequest) -> str | RequestedCall:
    """Plans a failure, and plans again; steps that are its own it does by a call."""
    text = str(request.messages)
    if "Nothing is to be done yet" in text:
        kept = [{"step": n, "action": "keep", "args": {"what": w}, "needs": []} for n, w in ((1, "one"), (2, "two"))]
        return json.dumps({"steps": [*kept, {"step": 3, "action": "stumble", "needs": [1]}]})
    if "Plan anew" in text:
        return json.dumps({"steps": [{"step": 4, "task": "Keep three, with {{ step_1 }}.", "needs": [1, 2]}]})
    return answer("all three") if "kept three" in text else call("keep", what="three")


STEPS: dict[str, Any] = {
    "first": {"tool": {"name": "keep", "arguments": {"what": "first"}}, "undo": "unfirst", "next": "asked"},
    "asked": {"ask": {"prompt": "Which items?", "schema": {"type": "array"}}, "next": "fan"},
    "fan": {"each": {"items": "{{ asked }}", "step": "one", "parallel": 2}, "next": "both"},
    "one": {"tool": {"name": "keep", "arguments": {"what": "item {{ item }}"}}},
    "both": {"parallel": {"branches": {"left": "lefty", "right": "righty"}}, "next": "pause"},
    "lefty": {"wait": "2h", "next": "left_look"},
    "left_look": {"tool": {"name": "look", "arguments": {"at": "lake"}}},
    "righty": {"tool": {"name": "keep", "arguments": {"what": "right"}}, "undo": "unfirst"},
    "pause": {"wait": "30d", "next": "sign"},
    "sign": {"approve": {"question": "Go on?", "seconds": "90d"}, "next": "way"},
    "way": {"choose": [{"if": "both.left == 'a fine lake'", "next": "bad"}, {"if": "1 > 2", "next": "done"}]},
    "bad": {"tool": "stumble", "attempts": {"most": 2, "pause": "10s"}, "on_error": "done"},
    "unfirst": {"tool": {"name": "keep", "arguments": {"what": "undone {{ undone.step }}"}}},
    "done": {"end": {"output": "{{ fan }} and {{ both.left }}, after {{ error.step }}"}},
}
FAILING: dict[str, Any] = {
    "first": {"tool": {"name": "keep", "arguments": {"what": "first"}}, "undo": "unfirst", "next": "sides"},
    "sides": {"parallel": {"branches": {"left": "lefty", "right": "righty"}}, "next": "done"},
    "lefty": {"tool": {"name": "keep", "arguments": {"what": "left"}}, "undo": "unfirst", "next": "bad"},
    "bad": {"tool": "stumble"},
    "righty": {"wait": "2h"},
    "unfirst": {"tool": {"name": "keep", "arguments": {"what": "undone {{ undone.step }}"}}},
    "done": {"end": "well"},
}

LATE: dict[str, Any] = {
    "first": {"tool": {"name": "keep", "arguments": {"what": "first"}}, "undo": "unfirst", "next": "left"},
    "left": {"tool": {"name": "keep", "arguments": {"what": "left"}}, "undo": "unfirst", "next": "pause"},
    "pause": {"wait": "2h"},
    "unfirst": {"tool": {"name": "keep", "arguments": {"what": "undone {{ undone.step }}"}}},
}

PLAYS = {
    "tool_calling": Play(
        agent("tool_calling"),
        [[call("keep", what="one"), call("look", at="hill")], call("keep", what="two"), answer("both")],
        "both",
        frozenset({"one", "two"}),
    ),
    "code": Play(
        agent(
            "code", CodeSpec(limits=CodeLimits(seconds=86_400.0))
        ),  # the team's clock is moved on while the jail starts
        ["Thought: One.\n<code>\nkeep(what='one')\nfinal_answer(look(at='hill'))\n</code>"],
        "a fine hill",
        frozenset({"one"}),
    ),
    "goals": Play(agent("goals", GoalsSpec(goals=["Keep one."])), works_on_goals, "kept", frozenset({"one"})),
    "task_queue": Play(
        agent("task_queue", TaskQueueSpec(goals=["Keep all."])),
        works_through_its_queue,
        "All is kept.",
        frozenset({"one", "two", "three"}),
    ),
    "solution": Play(
        agent("solution"),
        [
            solution(None, ("keep", {"what": "one"}), ("look", {"at": "hill"})),
            solution("kept"),
        ],
        "kept",
        frozenset({"one"}),
    ),
    "plan": Play(
        agent("plan", PlanSpec(approve_plan=True)),
        works_by_plan,
        "all three",
        frozenset({"one", "two", "three"}),
    ),
    "tool_calling with plan.execute": Play(
        agent("tool_calling", PlanSpec(execute=True), approvals={"keep": "when: what == 'two'"}),
        works_by_plan,
        "all three",
        frozenset({"one", "two", "three"}),
    ),
    "workflow": Play(
        agent("workflow", msgspec.convert({"start": "first", "steps": STEPS}, WorkflowSpec)),
        ["[1, 2]"],
        "['kept item 1', 'kept item 2'] and a fine lake, after bad",
        frozenset({"first", "item 1", "item 2", "right"}),
    ),
}
"""Each kind's."""


async def played(team: Team, **fields: Any) -> Any:
    """The run's answer; a person says yes to anything that is asked."""
    run = await team.start("worker", "Do it.", **fields)
    while True:
        try:
            return await run.result()
        except TeamRunWaits:
            await run.approve()


def spans_of(team: Team) -> set[tuple[str, str, str]]:
    """The trace, without what only reports attempts that died."""
    entries = [entry for run in team.run_ids() for entry in team.journal(run)]
    return {
        (span.trace, span.span, span.name) for span in trace_of(entries, now=0.0) if not span.name.startswith("chat")
    }


def team_of(play: Play) -> Team:
    KEPT.clear()
    return Team([play.agent], [keep, look, stumble], play.model)


KINDS_AND_SIDES = [(kind, side) for kind in PLAYS for side in ("behind", "before")]
KINDS_AND_SIDES.remove(("code", "before"))  # its jail takes long to start


@pytest.mark.timeout(600)  # each death of a sandbox has a jail start again
@pytest.mark.parametrize(("kind", "side"), KINDS_AND_SIDES)
async def test_a_death_at_any_entry_changes_nothing(kind: str, side: str) -> None:
    play, expected, deaths = PLAYS[kind], set[tuple[str, str, str]](), Counter[str]()
    async for outcome in crash_points(lambda: team_of(play), played, before=side == "before"):
        where = f"{outcome.killed} at {outcome.after}"
        assert outcome.value == play.answer, where
        assert set(KEPT) == play.kept, where
        expected = expected or spans_of(outcome.team)
        assert spans_of(outcome.team) == expected, where
        deaths.update(outcome.team.kills)
        assert outcome.team.leftovers() == [], where
    assert deaths["worker"] > 2
    assert deaths["tools"] > 0


@pytest.mark.parametrize(
    ("steps", "seconds", "why", "undone"),
    [(FAILING, 86_400.0, "a stone in the way", "lefty"), (LATE, 3_600.0, "deadline has passed", "left")],
)
async def test_what_a_workflow_did_is_undone_whatever_dies(
    steps: dict[str, Any], seconds: float, why: str, undone: str
) -> None:
    section = msgspec.convert({"start": "first", "steps": steps}, WorkflowSpec)
    play = Play(agent("workflow", section), [], None, frozenset())

    async def fails(team: Team) -> str:
        with pytest.raises(RunFailed) as failed:
            await played(team, deadline=seconds)
        return str(failed.value)

    async for outcome in crash_points(lambda: team_of(play), fails):
        assert why in outcome.value
        assert "not undone" not in outcome.value
        assert set(KEPT) == {"first", "left", f"undone {undone}", "undone first"}
