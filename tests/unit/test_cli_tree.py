"""The tree and the lines of a followed run, drawn from the rows that a gateway sends."""

import pytest

from cadre.journal import events as ev
from cadre.kinds.goals.records import GoalThought
from cadre.kinds.plan.records import PlanMade, PlanStepFinished, PlanStepStarted
from cadre.kinds.plan.section import PlanStep
from cadre.kinds.solution.records import FormRefused, ProposedCall, SolutionProposed
from cadre.kinds.task_queue.records import QueueChanged, QueueTaskDone
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.usage import TokenUsage
from cadre_scripted_model import MODEL_ID
from harness.texts import holds
from unit.sent_rows import Sent, accepted

ROOT, CHILD = "r", "r_1_0"


def answered(run: str, at: float, tokens: int, model: str = "") -> tuple[str, float, ev.AnyEvent]:
    usage = TokenUsage(input_tokens=tokens, output_tokens=1)
    return run, at, ev.ModelAnswered(step=1, usage=usage, model=model)


BEGUN = accepted(ROOT, 990, "find out")
ASKED = (ROOT, 990.0, ev.ModelCalled(step=1))
DELEGATED = [
    BEGUN,
    ASKED,
    answered(ROOT, 991, 100),
    (ROOT, 991.0, ev.DelegateStarted(call=CHILD, member="researcher", task="look up")),
    accepted(CHILD, 992, "look up", "researcher"),
]


def test_a_run_is_thinking_while_its_model_is_asked() -> None:
    root = Sent(BEGUN, ASKED).run(ROOT)
    assert root.facts is not None
    assert (root.state, root.words, root.facts.step, root.facts.max_steps) == ("open", "thinking", 1, 5)


def test_a_second_try_of_a_model_call_is_told() -> None:
    sent = Sent(BEGUN, (ROOT, 991, ev.ModelCalled(step=1, purpose="plan", attempt=2)))
    assert sent.run(ROOT).words == "planning, try 2"


def test_a_model_that_is_asked_in_anothers_place_is_told_with_the_reason() -> None:
    instead = ev.ModelCalled(step=1, attempt=2, fallback=1, model="small", reason="bad key")
    assert Sent(BEGUN, (ROOT, 991, instead)).texts[-1] == "manager: step 1: asks small instead: bad key"


def test_a_child_run_hangs_below_its_manager_in_place_of_the_call() -> None:
    sent = Sent(*DELEGATED)
    assert sent.tree.root is not None
    assert sent.tree.root.run == ROOT
    lines = sent.drawn().splitlines()
    assert "manager" in lines[0]
    assert "── ● researcher" in lines[1]
    assert len(lines) == 2


def test_tokens_of_a_run_are_those_of_everything_below_it() -> None:
    tree = Sent(*DELEGATED, answered(CHILD, 993, 40)).tree
    assert tree.tokens(CHILD) == 41
    assert tree.tokens(ROOT) == 142


def test_a_run_whose_id_only_begins_alike_is_not_below() -> None:
    assert Sent(*DELEGATED, answered("r_1_01", 993, 7)).tree.tokens(CHILD) == 0


def test_a_tool_call_gets_its_result_and_time() -> None:
    call = "r_1_0_2_0"
    sent = Sent(
        *DELEGATED,
        (CHILD, 993, ev.ToolCalled(call=call, tool="search", arguments={"query": "moon"})),
        (CHILD, 994, ev.ToolAnswered(call=call, tool="search", output=["a"], seconds=0.5)),
    )
    row = sent.call(call)
    assert (row.parent, row.state, row.result) == (f"step:{CHILD}:2", "ok", '["a"]')
    assert '✓ search 0.5s (query="moon") → ["a"]' in sent.drawn()


def test_a_failed_tool_call_shows_its_error() -> None:
    error = ErrorInfo("tool-failed", "no such table")
    sent = Sent(
        BEGUN,
        ASKED,
        (ROOT, 993, ev.ToolCalled(call="r_1_0", tool="search", arguments={})),
        (ROOT, 994, ev.ToolAnswered(call="r_1_0", tool="search", error=error)),
    )
    assert sent.call("r_1_0").state == "failed"
    assert "✗ search 0ms () → no such table" in sent.drawn()


def test_a_refused_call_is_failed_from_the_start() -> None:
    error = ErrorInfo("not-found", "unknown")
    row = Sent(BEGUN, ASKED, (ROOT, 993, ev.CallRefused(call="r_1_0", name="nope", error=error))).call("r_1_0")
    assert (row.state, row.error) == ("failed", f"{error.type}: unknown")


def test_a_member_that_failed_is_a_failed_call() -> None:
    report = ev.DelegateFinished(call=CHILD, member="researcher", state="error")
    assert Sent(*DELEGATED, (ROOT, 995, report)).call(CHILD).state == "failed"


def test_the_same_call_told_twice_stands_once() -> None:
    assert [row.key for row in Sent(*DELEGATED, DELEGATED[3]).tree.of_run(ROOT)] == [f"call:{CHILD}"]


def test_deltas_are_shown_until_the_answer_is_there() -> None:
    sent = Sent(BEGUN, ASKED)
    for text in ("I think", " so"):
        sent.tree.take("delta", {"run": ROOT, "text": text})
    assert sent.tree.writing == {ROOT: "I think so"}
    assert "I think so" in sent.drawn()
    sent.add(*answered(ROOT, 991, 1))
    assert sent.tree.writing == {}


def test_a_delta_behind_the_end_changes_nothing() -> None:
    ended = Sent(BEGUN, (ROOT, 999, ev.RunFinished(state="success", output="42")))
    ended.tree.take("delta", {"run": ROOT, "text": "late"})
    assert ended.tree.writing == {}


def test_waiting_for_the_model_says_why_and_how_long() -> None:
    deferred = ev.ModelDeferred(step=1, attempt=1, until=997, reason="rate limited")
    root = Sent(BEGUN, ASKED, (ROOT, 992, deferred)).run(ROOT)
    assert root.state == "waiting"
    assert holds(root.words, "5 s", "rate limited")


def test_missing_services_are_named_until_the_offer_changes_again() -> None:
    sent = Sent(BEGUN, (ROOT, 990, ev.ToolsetChanged(tools=[], members=[], missing=["critic"])))
    assert "no agent critic: start it with `cadre agent FILE`" in sent.drawn()
    sent.add(ROOT, 991, ev.ToolsetChanged(tools=[], members=[]))
    assert "critic" not in sent.drawn()


def test_the_error_of_a_step_is_told_and_gone_with_the_end() -> None:
    error = ErrorInfo("unreadable-answer", "no call")
    sent = Sent(BEGUN, ASKED, (ROOT, 991, ev.StepFinished(step=1, error=error)))
    assert f"last step: {error.type}: no call" in sent.drawn()
    sent.add(ROOT, 999, ev.RunFinished(state="success", output=1))
    assert "no call" not in sent.drawn()


def test_a_finished_run_stops_its_clock() -> None:
    sent = Sent(BEGUN, (ROOT, 993, ev.RunFinished(state="success", output="42")))
    assert sent.run(ROOT).result == "42"
    assert "✓ manager" in sent.drawn(now=5_000)
    assert "3.0s" in sent.drawn(now=5_000)


def test_other_events_and_the_end_change_nothing() -> None:
    sent = Sent(*DELEGATED)
    before = dict(sent.tree.rows)
    sent.tree.take("end", {"run": ROOT, "state": "success"})
    sent.tree.take("weather", {"run": ROOT})
    assert sent.tree.rows == before


def test_long_histories_are_cut_to_the_latest_calls() -> None:
    calls = [(ROOT, 991.0, ev.ToolCalled(call=f"r_{i}_0", tool=f"tool{i}", arguments={})) for i in range(1, 10)]
    done = [(ROOT, 992.0, ev.ToolAnswered(call=f"r_{i}_0", tool=f"tool{i}", output=i)) for i in range(1, 10)]
    text = Sent(BEGUN, *calls, *done).drawn()
    assert "… 3 earlier" in text
    assert "tool3" not in text
    assert "tool4" in text


def test_calls_stand_in_the_order_in_which_they_were_made_however_they_came() -> None:
    made = [f"r_1_{i}" for i in range(12)]
    calls = [(ROOT, 991.0, ev.ToolCalled(call=call, tool="t", arguments={})) for call in made]
    sent = Sent(BEGUN, *calls)
    for key in [f"call:{call}" for call in made[:6]]:
        sent.tree.rows[key] = sent.tree.rows.pop(key)
    assert [row.key for row in sent.tree.of_run(ROOT)] == [f"call:{call}" for call in made]


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    sent = Sent(accepted(ROOT, 990, "look \x1b[2J\x07 here"))
    assert "\x1b" not in sent.drawn()
    assert "\x1b" not in "".join(sent.texts)


def test_lines_are_indented_by_depth_and_leave_out_what_says_nothing() -> None:
    assert Sent(*DELEGATED, (CHILD, 995, ev.RunFinished(state="success", output="x"))).texts == [
        "manager: begins: find out",
        "manager: step 1: asks the model",
        "manager: asks researcher: look up",
        "  researcher: begins",
        "  researcher: ends: success (0 tokens, 3.0s)",
    ]


def test_a_tree_knows_whether_the_scripted_model_had_a_part_in_it() -> None:
    asked = (CHILD, 993.0, ev.ModelCalled(step=1))
    assert Sent(*DELEGATED, asked, answered(CHILD, 994, 1, MODEL_ID)).tree.scripted
    assert not Sent(*DELEGATED, asked, answered(CHILD, 994, 1, "m-1")).tree.scripted


def test_a_plan_is_drawn_with_what_became_of_its_steps() -> None:
    steps = [PlanStep(step=1, task="Look."), PlanStep(step=2, task="Sum up.", needs=[1])]
    sent = Sent(
        BEGUN,
        ASKED,
        (ROOT, 991, PlanMade(step=1, origin="model", steps=steps)),
        (ROOT, 992, PlanStepStarted(step=1)),
        (ROOT, 993, PlanStepFinished(step=1)),
        (ROOT, 993, PlanStepStarted(step=2)),
    )
    assert "☑ 1 execute Look." in sent.drawn()
    assert "… 2 execute Sum up. (needs 1)" in sent.drawn()
    sent.add(ROOT, 994, PlanMade(step=2, origin="edit", steps=[PlanStep(step=3, task="Else.")]))
    assert "☐ 3 execute Else." in sent.drawn()


KIND_EVENTS = [
    (GoalThought(step=1, text="look first"), ["thinks: look first"]),
    (
        QueueChanged(step=1, reason="create", pending=["read it", "sum it"], added=["sum it"]),
        ["queue, create: 2 pending", "1. read it", "2. sum it (new)"],
    ),
    (QueueTaskDone(step=2, task="read it", result="7 lines"), ["done: read it: 7 lines"]),
    (QueueTaskDone(step=2, task="read it", failed=True), ["failed: read it"]),
    (
        SolutionProposed(
            step=1,
            calls=[
                ProposedCall(name="judge", arguments={"receipt": "R-7"}, implicit=True, outcome="sound"),
                ProposedCall(name="pay", arguments={"amount": 41.5}),
            ],
        ),
        ['proposes 1: pay {"amount":41.5}', 'says of itself: judge {"receipt":"R-7"} -> sound'],
    ),
    (FormRefused(form="object", reason="no schemas"), ["from now on: object"]),
]


@pytest.mark.parametrize(("event", "told"), KIND_EVENTS)
def test_what_a_kind_tells_is_drawn(event: ev.AnyEvent, told: list[str]) -> None:
    sent = Sent(accepted(ROOT, 990, "t"), (ROOT, 991, event))
    for text in told:
        assert text in sent.drawn()
        assert text in sent.texts[-1]
