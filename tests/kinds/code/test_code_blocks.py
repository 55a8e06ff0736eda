"""Agents that write code: a block goes to a sandbox, comes back with calls, and ends the step or the run."""

from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel, Send
from cadre.engine.timers import away_timer
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.run import ActionStep, Phase
from cadre.kinds.code.fold import state_of
from cadre.kinds.code.records import BlockFinished, BlockStarted, CodeStep
from cadre.kinds.code.section import CodeSpec
from cadre.prompting.prompts import Prompts
from cadre.protocol.code import CodeReply, CodeRequest
from cadre.protocol.messages import CodeFinished, CodeYielded, ErrorInfo, Record, Task, ToolCall
from cadre.spec.agent import Limits
from cadre.spec.kinds import sections
from kinds.code.build import (
    ANSWER_WITH_CODE,
    BLOCK,
    asks,
    begun,
    code_call,
    coder,
    decision,
    ended,
    replies,
    yielded,
)
from unit.loop.build import LOOK, SimulatedRun, cancel, kinds, only, report, result, sound, spec, task, timer

KID = asks("kid", task="Help.")
PICTURE = [{"$given": ["image", "blob:" + "0" * 64]}]


def test_a_block_goes_to_the_sandbox_with_all_that_it_needs() -> None:
    sim = begun(**sections(CodeSpec(imports=["pandas"], pool="big")))
    call = code_call(sim, since=2)
    assert (call.id, call.block, call.pool, call.agent) == ("r1:code:1:0", BLOCK, "big", "boss")
    assert call.code == "print(add(a=1, b=2))"
    assert call.inputs == {"limit": 3}
    assert {"pandas", "math"} <= set(call.imports)
    assert {one.name: one.kind for one in call.functions} == {"add": "tool", "look": "tool", "kid": "member"}
    assert call.exchanges == []
    assert call.snapshot is None


def test_an_example_of_two_steps() -> None:
    """The task: what is 15 multiplied by 7? The code of the first step prints it, that of the second gives the
    answer."""
    sim = coder().begin("What is 15 multiplied by 7?")
    sim.say(content="Thought: multiply.\n<code>\nprint(15 * 7)\n")
    events = sim.arrive(ended(logs="105\n", snapshot="blob:aa"))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]
    sim.say(content="Thought: done.\n<code>\nfinal_answer(105)\n")
    assert code_call(sim, since=4).snapshot == "blob:aa"
    events = sim.arrive(ended(block="r1:code:2", output=105, text="105", is_final_answer=True))
    assert kinds(events) == ["BlockFinished", "StepFinished", "RunFinished"]
    end = only(events, ev.RunFinished)
    assert (end.state, end.output, end.steps, end.usage.steps) == ("success", 105, 2, 2)
    assert [type(step).__name__ for step in sim.run.steps] == [
        "TaskStep",
        "ActionStep",
        "ActionStep",
        "AnswerStep",
    ]


def test_calls_of_the_code_go_the_way_of_all_calls() -> None:
    sim = begun()
    events = sim.arrive(yielded(asks("add", a=1, b=2), asks("kid", task="Help."), clock=[1.5]))
    assert kinds(events) == ["BlockYielded", "ToolCalled", "DelegateStarted"]
    sent = [command.message for command in sim.owed() if isinstance(command, Send)]
    assert [type(one) for one in sent] == [ToolCall, Task], "the sandbox owes nothing meanwhile"
    assert [one.id for one in sent] == ["r1_1_0", "r1_1_1:task"]
    assert kinds(sim.arrive(report("r1_1_1", "helped"))) == ["DelegateFinished"]
    assert kinds(sim.arrive(result("r1_1_0", 3))) == ["ToolAnswered"]
    call = code_call(sim, since=5)
    assert call.id == "r1:code:1:1"
    (exchange,) = call.exchanges
    assert exchange.calls == [asks("add", a=1, b=2), asks("kid", task="Help.")]
    assert exchange.replies == [CodeReply(value=3), CodeReply(value="helped")], "in the order of the calls"
    assert exchange.clock == [1.5]


def test_a_loop_of_calls_adds_an_exchange_each_time() -> None:
    sim = begun(limits=Limits(repeats=0))
    for n in range(3):
        sim.arrive(yielded(asks("add", a=n, b=1), exchange=n))
        sim.arrive(result(f"r1_1_{n}", n + 1))
    asked = code_call(sim)
    assert len(asked.exchanges) == 3
    assert asked.exchanges is not code_call(sim).exchanges, "what is on its way does not grow with the run"
    events = sim.arrive(ended(exchange=3, logs="1\n2\n3\n", text="3", output=3))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]


def test_a_call_that_cannot_be_made_raises_in_the_code() -> None:
    sim = begun()
    events = sim.arrive(yielded(asks("add", a="x", b=2), asks("nothing")))
    assert kinds(events) == ["BlockYielded", "CallRefused", "CallRefused"]
    wrong, unknown = replies(sim)
    assert "Wrong arguments" in (wrong.error or "")
    assert "Unknown tool" in (unknown.error or "")


def test_a_block_whose_sandbox_is_away_ends_and_leaves_the_variables() -> None:
    sim = begun()
    sim.arrive(ended(snapshot="blob:aa"))
    sim.say(content="Thought: more.\n<code>\nprint(2)\n")
    events = sim.arrive(timer(away_timer("r1:code:2", begun=False)))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]
    finished = only(events, BlockFinished)
    assert finished.error is not None
    assert (finished.error.type, finished.snapshot) == ("Away", "blob:aa")
    late = ended(block="r1:code:2", output=2, text="2", snapshot="blob:bb")
    assert kinds(sim.arrive(late)) == ["RecordIgnored"]
    sound(sim)


def test_a_block_that_waits_for_its_calls_does_not_hear_that_its_sandbox_is_away() -> None:
    sim = begun()
    sim.arrive(yielded(asks("add", a=1, b=2)))
    assert kinds(sim.arrive(timer(away_timer(BLOCK, begun=False)))) == ["RecordIgnored"]
    sound(sim)


@pytest.mark.parametrize(
    ("fields", "asked", "outcome", "event", "error"),
    [
        ({}, asks("add", a=1, b=2), result("r1_1_0", error=ErrorInfo("tool-failed", "boom")), "ToolAnswered", "boom"),
        ({}, KID, report("r1_1_0", state="error", error=ErrorInfo("tool-failed", "ill")), "DelegateFinished", "ill"),
        ({"approvals": {"kid": "always"}}, KID, decision("rejected", feedback="No."), "ApprovalDecided", "No."),
        ({"timeouts": {"kid": 30}}, KID, timer("call-r1_1_0"), "CallTimedOut", "no answer within 30 s"),
    ],
)  # fmt: skip
def test_a_call_that_fails_raises_in_the_code(
    fields: dict[str, Any], asked: CodeRequest, outcome: Record, event: str, error: str
) -> None:
    sim = begun(**fields)
    sim.arrive(yielded(asked))
    assert kinds(sim.arrive(outcome)) == [event]
    (reply,) = replies(sim)
    assert reply.value is None
    assert error in (reply.error or "")


@pytest.mark.parametrize(
    ("asked", "outcome", "reply"),
    [
        (
            asks("add", a=1, b=2),
            result("r1_1_0", "[1, …", blob="blob:x", blob_form="json"),
            CodeReply(value="[1, …", blob="blob:x", blob_form="json"),
        ),
        (
            asks("add", a=1, b=2),
            result("r1_1_0", error=ErrorInfo("tool-failed", "no such row", raised="KeyError")),
            CodeReply(error="no such row", raised="KeyError"),
        ),
        (KID, msgspec.structs.replace(report("r1_1_0", "A picture."), output=PICTURE), CodeReply(value=PICTURE)),
        (KID, msgspec.structs.replace(report("r1_1_0", "Words."), output=["words"]), CodeReply(value="Words.")),
    ],
)  # fmt: skip
def test_results_and_reports_reach_the_code_as_what_they_are(
    asked: CodeRequest, outcome: Record, reply: CodeReply
) -> None:
    sim = begun()
    sim.arrive(yielded(asked))
    sim.arrive(outcome)
    assert replies(sim) == [reply]


def test_an_approval_in_the_middle_of_a_loop() -> None:
    sim = begun(approvals={"add": "when: a > 10"})
    events = sim.arrive(yielded(asks("add", a=11, b=2)))
    assert kinds(events) == ["BlockYielded", "ApprovalRequested"]
    assert sim.owed() == [], "nobody works for the run while a person thinks"
    assert kinds(sim.arrive(decision("approved"))) == ["ApprovalDecided", "ToolCalled"]
    sim.arrive(result("r1_1_0", 13))
    assert replies(sim) == [CodeReply(value=13)]


def test_code_that_fails_is_an_observation_with_what_it_printed() -> None:
    sim = begun()
    error = ErrorInfo("code-failed", "Code execution failed at line '1 / 0' due to: ZeroDivisionError")
    events = sim.arrive(ended(error=error, logs="so far\n", snapshot="blob:bb"))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    assert isinstance(step.own, CodeStep)
    assert (step.error, "so far" in (step.own.observation or "")) == (error, True)
    assert state_of(sim.run).snapshot == "blob:bb"


def test_a_block_that_says_nothing_of_an_answer_has_given_none() -> None:
    stored = {"type": "code.finished", "block": BLOCK, "exchange": 0}
    assert not msgspec.convert(stored, BlockFinished).is_final_answer


@pytest.mark.parametrize("output", ["the answer", "<your final answer>", "…"])
def test_a_placeholder_is_no_answer(output: str) -> None:
    sim = begun()
    events = sim.arrive(ended(output=output, text=output, is_final_answer=True))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]
    finished = only(events, BlockFinished)
    assert (finished.is_final_answer, finished.output) == (False, None)
    assert finished.error is not None
    assert finished.error.code == "invalid-call"
    sim.say(content="Thought: now in words.\n<code>\nfinal_answer('the answer is 3')\n")
    events = sim.arrive(ended(block="r1:code:2", output="the answer is 3", is_final_answer=True))
    assert only(events, ev.RunFinished).output == "the answer is 3"
    sound(sim)


@pytest.mark.parametrize(
    "late",
    [
        yielded(asks("add", a=1, b=2), exchange=1),
        yielded(asks("add", a=1, b=2), block="r1:code:7"),
        ended(exchange=1),
        ended(block="r1:code:7"),
        yielded(),
    ],
)
def test_what_the_sandbox_does_not_owe_changes_nothing(late: CodeYielded | CodeFinished) -> None:
    sim = begun()
    assert kinds(sim.arrive(late)) == ["RecordIgnored"]


def test_a_second_sandbox_that_says_otherwise_is_too_late() -> None:
    sim = begun()
    sim.arrive(yielded(asks("add", a=1, b=2)))
    other = yielded(asks("add", a=5, b=5))
    assert kinds(sim.arrive(msgspec.structs.replace(other, id="other"))) == ["RecordIgnored"]
    assert kinds(sim.arrive(ended(), cause="z")) == ["RecordIgnored"]


def test_an_answer_without_code_is_read_with_help() -> None:
    sim = coder().begin()
    events = sim.say(content="The final answer is 42!")
    assert kinds(events) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    error = only(events, ev.StepFinished).error
    assert error.type == "AgentParsingError"
    assert "final_answer(" in error.message
    (command,) = sim.owed(since=2)
    assert isinstance(command, CallModel)


def test_cancelling_ends_the_block_and_its_calls() -> None:
    sim = begun()
    sim.arrive(yielded(asks("add", a=1, b=2)))
    sim.arrive(cancel())
    assert sim.run.phase is Phase.DONE
    assert state_of(sim.run).work is None
    assert len(sim.owed()) == 1, "the call is revoked"


def test_the_state_can_be_read_back_in_the_middle_of_a_block() -> None:
    sim = begun()
    sim.arrive(yielded(asks("add", a=1, b=2), asks("add", a=2, b=2)))
    sim.arrive(result("r1_1_1", 4))
    sim.run = msgspec.json.decode(msgspec.json.encode(sim.run), type=type(sim.run))
    sim.arrive(result("r1_1_0", 3))
    assert replies(sim) == [CodeReply(value=3), CodeReply(value=4)]


def test_names_that_are_none_in_python_are_translated() -> None:
    card = msgspec.structs.replace(LOOK, name="look-up")
    sim = SimulatedRun(
        spec(kind="code", tools=["look-up"], team=[]), Toolset(tools={"look-up": card}, members={})
    ).begin()
    sim.say(content=ANSWER_WITH_CODE)
    assert [one.name for one in code_call(sim).functions] == ["look_up"]
    events = sim.arrive(yielded(asks("look_up", at="x")))
    assert only(events, ev.ToolCalled).tool == "look-up"


def test_what_its_model_reads() -> None:
    prompts = Prompts.load("code")
    sim = begun()
    request = Transcript(prompts).request(sim.run, "act")
    assert request.tools == []
    assert (request.block, request.stop) == (("<code>", "</code>"), [])
    assert "def add(" in request.messages[0]["content"]
    sim.arrive(ended(logs="3\n", text="None", snapshot="blob:aa"))
    answer, observed = Transcript(prompts).request(sim.run, "act").messages[-2:]
    assert answer == {"role": "assistant", "content": ANSWER_WITH_CODE + "</code>"}
    assert observed["content"].startswith("Observation:\nExecution logs:\n3\n")
    sim.say(content="Hm.\n<code>\n1 / 0\n</code>")
    error = ErrorInfo("code-failed", "Code execution failed at line '1 / 0'")
    sim.arrive(ended(block="r1:code:2", logs="before\n", error=error))
    failed = Transcript(prompts).request(sim.run, "act").messages[-1]["content"]
    assert failed.index("before") < failed.index("execution failed")


def test_a_later_plan_reads_which_code_was_run() -> None:
    sim = coder(planning_interval=1).begin()
    sim.say(content="1. Print.")
    sim.say(content="Thought: print.\n<code>\nprint(3)\n")
    sim.arrive(ended(logs="3\n", text="None", snapshot="blob:aa"))
    messages = Transcript(Prompts.load("code")).request(sim.run, "plan").messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"].endswith("\n```python\nprint(3)\n```")
    assert "1. Print." not in str(messages)


def test_structured_mode_asks_for_json() -> None:
    sim = coder(**sections(CodeSpec(structured=True))).begin()
    request = Transcript(Prompts.load("structured_code")).request(sim.run, "act")
    assert request.schema is not None
    assert set(request.schema["properties"]) == {"thought", "code"}
    events = sim.say(content='{"thought": "add", "code": "print(1)"}')
    assert only(events, BlockStarted).code == "print(1)"


def test_a_run_of_code_is_decided_anew_as_it_was() -> None:
    sim = begun(approvals={"look": "always"}, limits=Limits(repeats=0))
    sim.arrive(yielded(asks("add", a=1, b=2), asks("nothing"), clock=[1.0]))
    sim.arrive(result("r1_1_0", 3))
    sim.arrive(yielded(asks("look", at="x"), exchange=1))
    sim.arrive(decision("approved", "r1_1_2"))
    sim.arrive(result("r1_1_2", "seen"))
    sim.arrive(ended(exchange=2, logs="3\n", snapshot="blob:aa"))
    sim.arrive(ended(exchange=2), cause="r1:code:1:2:finished:again")
    sim.say(content="<code>final_answer(3)</code>")
    sim.arrive(ended(block="r1:code:2", output=3, is_final_answer=True))
    assert sim.run.phase is Phase.DONE
    sound(sim)


def test_a_session_goes_on_with_the_variables_of_its_last_run() -> None:
    first = begun()
    first.arrive(ended(logs="3\n", snapshot="blob:aa"))
    first.say(content="<code>final_answer(3)</code>")
    first.arrive(ended(block="r1:code:2", output=3, is_final_answer=True, snapshot="blob:bb"))
    second = coder()
    second.arrive(task(inputs={"more": 1}), history=first.run.steps)
    assert given_to_the_code(second) == ("blob:bb", {"more": 1}), "its own are new to the code"
    second.arrive(ended(snapshot="blob:cc"))
    assert given_to_the_code(second) == ("blob:cc", {})


def lose_variables(sim: SimulatedRun) -> None:
    """The sandbox cannot restore what the block in work needs, and says that none is left."""
    error = ErrorInfo("code-failed", "The variables of earlier code could not be restored.")
    sim.arrive(ended(block=code_call(sim).block, error=error, snapshot=None))


def given_to_the_code(sim: SimulatedRun) -> tuple[str | None, dict[str, Any]]:
    """The snapshot and the variables that come with the next block."""
    sim.say(content=ANSWER_WITH_CODE)
    return code_call(sim).snapshot, code_call(sim).inputs


def test_variables_that_are_lost_are_not_asked_for_again() -> None:
    sim = begun()
    sim.arrive(ended(snapshot="blob:aa"))
    assert given_to_the_code(sim) == ("blob:aa", {}), "the task's own are the code's by now"
    lose_variables(sim)
    assert given_to_the_code(sim) == (None, {"limit": 3}), "what the task came with is given anew"


def test_variables_of_an_earlier_run_that_are_lost_leave_the_tasks_own() -> None:
    first = begun()
    first.arrive(ended(snapshot="blob:aa"))
    first.say(content="I have no block of code.")
    second = coder()
    second.arrive(task(inputs={"limit": 4}), history=first.run.steps)
    assert given_to_the_code(second) == ("blob:aa", {"limit": 4})
    lose_variables(second)
    assert given_to_the_code(second) == (None, {"limit": 4})


def test_a_session_does_not_go_on_with_variables_that_are_lost() -> None:
    first = begun()
    first.arrive(ended(snapshot="blob:aa"))
    first.say(content=ANSWER_WITH_CODE)
    lose_variables(first)
    first.say(content="I have no block of code.")
    second = coder()
    second.arrive(task(), history=first.run.steps)
    assert given_to_the_code(second) == (None, {})
