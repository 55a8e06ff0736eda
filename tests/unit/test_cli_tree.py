"""The reducer of the live tree and its two ways of being shown, fed with hand-written events."""

from typing import Any

import pytest
from rich.console import Console

from cadre.cli.run_view import tree_lines
from cadre.cli.run_view.run_tree import RunTree, apply
from cadre.cli.run_view.tree_view import draw
from cadre_scripted_model import MODEL_ID

ROOT, CHILD = "r", "r_1_0"
NOW = 1_000.0


def data(run: str, at: float, **event: Any) -> dict[str, Any]:
    parent, agent = (ROOT, "researcher") if run == CHILD else (None, "manager")
    return {"run": run, "parent": parent, "agent": agent, "at": at, "event": event}


def accepted(run: str, at: float, task: str) -> tuple[str, dict[str, Any]]:
    agent = "manager" if run == ROOT else "researcher"
    return "run.accepted", data(
        run, at, task={"agent": agent, "task": task}, spec={"limits": {"max_steps": 5}}
    )


def fold(*events: tuple[str, dict[str, Any]]) -> RunTree:
    tree = RunTree()
    for name, content in events:
        tree = apply(tree, name, content)
    return tree


def drawn(tree: RunTree, now: float = NOW) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(draw(tree, now))
    return capture.get()


def answered(run: str, at: float, tokens: int) -> tuple[str, dict[str, Any]]:
    return "model.answered", data(
        run, at, purpose="act", step=1, usage={"input_tokens": tokens, "output_tokens": 1}
    )


DELEGATED = [
    accepted(ROOT, 990, "find out"),
    ("model.called", data(ROOT, 990, purpose="act", step=1, attempt=1)),
    answered(ROOT, 991, 100),
    ("delegate.started", data(ROOT, 991, call=CHILD, member="researcher", task="look up")),
    accepted(CHILD, 992, "look up"),
]


def test_a_run_is_thinking_while_its_model_is_asked() -> None:
    root = fold(*DELEGATED[:2]).nodes[ROOT]
    assert (root.state, root.doing, root.step, root.max_steps) == ("running", "thinking", 1, 5)


def test_a_second_try_of_a_model_call_is_told() -> None:
    tree = fold(DELEGATED[0], ("model.called", data(ROOT, 991, purpose="plan", step=1, attempt=2)))
    assert tree.nodes[ROOT].doing == "planning, try 2"


def test_a_model_that_is_asked_in_anothers_place_is_told_with_the_reason() -> None:
    instead = data(ROOT, 991, purpose="act", step=1, attempt=2, fallback=1, model="small", reason="bad key")
    tree = fold(DELEGATED[0], ("model.called", instead))
    line = tree_lines.event_line(tree, "model.called", instead)
    assert line is not None
    assert line.endswith("manager: step 1: asks small instead: bad key")


def test_a_child_run_hangs_below_its_manager_in_place_of_the_call() -> None:
    tree = fold(*DELEGATED)
    assert tree.root is not None
    assert tree.root.run == ROOT
    lines = drawn(tree).splitlines()
    assert "manager" in lines[0]
    assert "── ● researcher" in lines[1]
    assert len(lines) == 2


def test_tokens_of_a_run_are_those_of_everything_below_it() -> None:
    tree = fold(*DELEGATED, answered(CHILD, 993, 40))
    assert tree.tokens(CHILD) == 41
    assert tree.tokens(ROOT) == 142


def test_a_run_whose_id_only_begins_alike_is_not_below() -> None:
    other = data(CHILD, 993, usage={"input_tokens": 7}) | {"run": "r_1_01"}
    assert fold(*DELEGATED, ("model.answered", other)).tokens(CHILD) == 0


def test_a_tool_call_gets_its_result_and_time() -> None:
    tree = fold(
        *DELEGATED,
        ("tool.called", data(CHILD, 993, call="r_1_0_2_0", tool="search", arguments={"query": "moon"})),
        ("tool.answered", data(CHILD, 994, call="r_1_0_2_0", tool="search", output=["a"], seconds=0.5)),
    )
    [call] = tree.nodes[CHILD].calls
    assert (call.step, call.state, call.result, call.seconds) == (2, "ok", ["a"], 0.5)
    assert '✓ search 0.5s {"query": "moon"} → ["a"]' in drawn(tree)


def test_a_failed_tool_call_shows_its_error() -> None:
    error = {"code": "tool-failed", "type": "AgentToolExecutionError", "message": "no such table"}
    tree = fold(
        *DELEGATED[:2],
        ("tool.called", data(ROOT, 993, call="r_1_0", tool="search", arguments={})),
        ("tool.answered", data(ROOT, 994, call="r_1_0", tool="search", error=error)),
    )
    assert tree.nodes[ROOT].calls[0].state == "failed"
    assert "✗ search {} → no such table" in drawn(tree)


def test_a_refused_call_is_failed_from_the_start() -> None:
    refused = data(ROOT, 993, call="r_1_0", name="nope", error={"type": "E", "message": "unknown"})
    [call] = fold(*DELEGATED[:2], ("call.refused", refused)).nodes[ROOT].calls
    assert (call.kind, call.state, call.result) == ("refused", "failed", "E: unknown")


def test_a_member_that_failed_is_a_failed_call() -> None:
    report = data(ROOT, 995, call=CHILD, member="researcher", state="error", error=None)
    assert fold(*DELEGATED, ("delegate.finished", report)).nodes[ROOT].calls[0].state == "failed"


def test_the_same_call_told_twice_stands_once() -> None:
    tree = fold(*DELEGATED, DELEGATED[3])
    assert len(tree.nodes[ROOT].calls) == 1


def test_deltas_are_shown_until_the_answer_is_there() -> None:
    delta = {"run": ROOT, "agent": "manager", "step": 1, "attempt": 1, "text": "I think", "seq": 0}
    writing = fold(*DELEGATED[:2], ("delta", delta), ("delta", delta | {"text": " so"}))
    assert writing.nodes[ROOT].writing == "I think so"
    assert apply(writing, *answered(ROOT, 991, 1)).nodes[ROOT].writing == ""


def test_a_delta_behind_the_end_changes_nothing() -> None:
    ended = fold(DELEGATED[0], ("run.finished", data(ROOT, 999, state="success", output="42")))
    assert apply(ended, "delta", {"run": ROOT, "agent": "manager", "text": "late"}).nodes[ROOT].writing == ""


def test_waiting_for_the_model_says_why_and_how_long() -> None:
    deferred = data(ROOT, 992, step=1, attempt=1, until=997, reason="rate limited")
    root = fold(*DELEGATED[:2], ("model.deferred", deferred)).nodes[ROOT]
    assert (root.state, root.doing) == ("waiting", "waiting 5 s for the model: rate limited")


def test_missing_services_are_named_until_the_offer_changes_again() -> None:
    lacking = fold(DELEGATED[0], ("offer.changed", data(ROOT, 990, tools=[], members=[], missing=["critic"])))
    assert "no agent critic: start it with `cadre agent FILE`" in drawn(lacking)
    whole = apply(lacking, "offer.changed", data(ROOT, 991, tools=[], members=[], missing=[]))
    assert "critic" not in drawn(whole)


def test_the_error_of_a_step_is_told_and_gone_with_the_end() -> None:
    failed = fold(
        *DELEGATED[:2],
        (
            "step.finished",
            data(
                ROOT,
                991,
                step=1,
                error={"code": "unreadable-answer", "type": "AgentParsingError", "message": "no call"},
            ),
        ),
    )
    assert "last step: AgentParsingError: no call" in drawn(failed)
    ended = apply(failed, "run.finished", data(ROOT, 999, state="success", output=1))
    assert "no call" not in drawn(ended)


def test_a_finished_run_stops_its_clock() -> None:
    tree = fold(*DELEGATED[:1], ("run.finished", data(ROOT, 993, state="success", output="42")))
    assert tree.nodes[ROOT].output == "42"
    assert "✓ manager" in drawn(tree, now=5_000)
    assert "3.0s" in drawn(tree, now=5_000)


def test_unknown_events_and_the_end_change_nothing() -> None:
    tree = fold(*DELEGATED)
    assert apply(tree, "end", {"run": ROOT, "state": "success"}) is tree
    assert apply(tree, "weather.changed", data(ROOT, 999)) is tree


def test_long_histories_are_cut_to_the_latest_calls() -> None:
    calls = [
        ("tool.called", data(ROOT, 991, call=f"r_{i}_0", tool=f"tool{i}", arguments={})) for i in range(1, 10)
    ]
    done = [("tool.answered", data(ROOT, 992, call=f"r_{i}_0", output=i)) for i in range(1, 10)]
    text = drawn(fold(DELEGATED[0], *calls, *done))
    assert "… 3 earlier" in text
    assert "tool3" not in text
    assert "tool4" in text


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    tree = fold(accepted(ROOT, 990, "look \x1b[2J\x07 here"))
    assert "\x1b" not in drawn(tree)
    line = tree_lines.event_line(tree, *accepted(ROOT, 990, "look \x1b[2J here"))
    assert line is not None
    assert "\x1b" not in line


def test_lines_are_indented_by_depth_and_leave_out_what_says_nothing() -> None:
    events = [*DELEGATED, ("run.finished", data(CHILD, 995, state="success", output="x"))]
    tree = fold(*events)
    lines = [
        line for name, content in events if (line := tree_lines.event_line(tree, name, content)) is not None
    ]
    assert [line.partition(" ")[2] for line in lines] == [
        "manager: begins: find out",
        "manager: step 1: asks the model",
        "manager: asks researcher: look up",
        "  researcher: begins",
        "  researcher: ends: success (0 tokens, 3.0s)",
    ]


def test_a_tree_knows_whether_the_scripted_model_had_a_part_in_it() -> None:
    answered = ("model.answered", data(CHILD, 994, step=1, model=MODEL_ID, usage={}))
    assert fold(*DELEGATED, answered).scripted
    assert not fold(*DELEGATED, ("model.answered", data(CHILD, 994, step=1, model="m-1", usage={}))).scripted


KIND_EVENTS = [
    ("goals.thought", {"step": 1, "text": "look first", "speak": ""}, ["thinks: look first"]),
    (
        "queue.changed",
        {"step": 1, "reason": "create", "pending": ["read it", "sum it"], "added": ["sum it"]},
        ["queue, create: 2 pending", "1. read it", "2. sum it (new)"],
    ),
    ("queue.task_done", {"step": 2, "task": "read it", "result": "7 lines"}, ["done: read it: 7 lines"]),
    ("queue.task_done", {"step": 2, "task": "read it", "result": "", "failed": True}, ["failed: read it"]),
    (
        "solution.proposed",
        {
            "step": 1,
            "calls": [
                {"name": "judge", "arguments": {"receipt": "R-7"}, "implicit": True, "outcome": "sound"},
                {"name": "pay", "arguments": {"amount": 41.5}},
            ],
        },
        ['proposes 1: pay {"amount":41.5}', 'says of itself: judge {"receipt":"R-7"} -> sound'],
    ),
    ("solution.form_refused", {"form": "object", "reason": "no schemas"}, ["from now on: object"]),
]


@pytest.mark.parametrize(("name", "event", "told"), KIND_EVENTS)
def test_what_a_kind_tells_is_drawn(name: str, event: dict[str, Any], told: list[str]) -> None:
    content = data(ROOT, 991, **event)
    tree = fold(accepted(ROOT, 990, "t"), (name, content))
    shown, line = drawn(tree), tree_lines.event_line(tree, name, content)
    for text in told:
        assert text in shown
        assert text in str(line)
