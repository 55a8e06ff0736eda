"""The request loop, story by story: what is proposed, what is carried out, what the model reads, how it ends."""

from typing import Any

import msgspec
import pytest

from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.kinds.solution.records import ImplicitActivity, SolutionProposed, SolutionSpec, SolutionState
from cadre.protocol.messages import ToolCall
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from kinds.solution.build import ADD, KID, LOOK, asked, decides, last_read, proposes, solver
from unit.loop.build import call, kinds, only, report, result, sent, sound, timer

JUDGE = SolutionSpec(
    implicit={
        "judge": ImplicitActivity(
            description="Judges a receipt.",
            arguments={
                "type": "object",
                "properties": {"receipt": {"type": "string"}},
                "required": ["receipt"],
                "additionalProperties": False,
            },
            outcome={"type": "string", "enum": ["sound", "odd"]},
        )
    }
)
JUDGED = {"name": "judge", "arguments": {"receipt": "R1"}, "outcome": "odd"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_calls_are_proposed_made_and_read_until_none_is_left() -> None:
    sim = solver().begin()
    assert kinds(proposes(sim, LOOK, ADD)) == [
        "ModelAnswered",
        "SolutionProposed",
        "ToolCalled",
        "ToolCalled",
    ]
    assert [one.tool for one in sent(sim, ToolCall)] == ["look", "add"]
    assert kinds(sim.arrive(result(sim.id(0), "blue", tool="look"))) == ["ToolAnswered"]
    ended = sim.arrive(result(sim.id(1), 3))
    assert kinds(ended) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    assert last_read(sim) == "Observation:\nlook: blue\n\nadd: 3"
    end = proposes(sim, output="Blue, and 3.")
    assert kinds(end) == ["ModelAnswered", "SolutionProposed", "StepFinished", "RunFinished"]
    assert only(end, ev.RunFinished).output == "Blue, and 3."
    sound(sim)


def test_a_proposal_is_journaled_before_anything_runs() -> None:
    sim = solver().begin()
    noted = only(proposes(sim, LOOK, output="so far"), SolutionProposed)
    assert (noted.step, noted.output, [one.name for one in noted.calls]) == (1, "so far", ["look"])
    entry = sim.journal()[-1]
    assert (entry.kind, entry.kind_version) == ("solution", 1)
    kept = [type(event).__name__ for event in entry.events]
    assert kept.index("SolutionProposed") < kept.index("ToolCalled")


def test_a_member_is_called_like_a_tool() -> None:
    sim = solver().begin()
    assert only(proposes(sim, KID), ev.DelegateStarted).task == "Help."
    sim.arrive(report(sim.id(0), text="Helped."))
    assert last_read(sim) == "Observation:\nkid: Helped."
    sound(sim)


def test_an_implicit_call_carries_its_outcome_and_nothing_runs() -> None:
    sim = solver(JUDGE).begin()
    events = proposes(sim, JUDGED)
    assert kinds(events) == ["ModelAnswered", "SolutionProposed", "StepFinished", "ModelCalled"]
    (noted,) = only(events, SolutionProposed).calls
    assert (noted.implicit, noted.outcome) == (True, "odd")
    assert last_read(sim) == "Observation:\njudge: odd"
    proposes(sim, {**JUDGED, "arguments": {"receipt": "R2"}}, LOOK)
    sim.arrive(result(sim.id(0), "blue", tool="look"))
    assert last_read(sim) == "Observation:\njudge: odd\n\nlook: blue"
    sound(sim)


@pytest.mark.parametrize(
    ("call_", "why"),
    [
        ({**JUDGED, "outcome": None}, "outcome"),
        ({**JUDGED, "outcome": "fine"}, "outcome of 'judge' does not fit"),
        ({**JUDGED, "arguments": {}}, "arguments of 'judge' do not fit"),
    ],
)
def test_an_implicit_call_that_does_not_fit_is_told(call_: dict[str, Any], why: str) -> None:
    sim = solver(JUDGE).begin()
    assert kinds(proposes(sim, call_)) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    assert why in last_read(sim)
    sound(sim)


def test_an_output_that_does_not_fit_is_told_a_bounded_number_of_times() -> None:
    sim = solver(SolutionSpec(tries=2), output_schema=NUMBER).begin()
    assert kinds(proposes(sim, output="many"))[-2:] == ["StepFinished", "ModelCalled"]
    assert "output schema" in last_read(sim)
    end = only(proposes(sim, output="lots"), ev.RunFinished)
    assert end.state == "error"
    assert end.error is not None
    assert end.error.code == "not-passed"
    sound(sim)


def test_a_sound_solution_makes_the_tries_whole_again() -> None:
    sim = solver(SolutionSpec(tries=2), output_schema=NUMBER).begin()
    proposes(sim, output="many")
    proposes(sim, LOOK)
    sim.arrive(result(sim.id(0), "blue", tool="look"))
    proposes(sim, output="many")
    assert only(proposes(sim, output={"n": 1}), ev.RunFinished).output == {"n": 1}
    sound(sim)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("I shall look at the sky.", '"solution"'),
        ('{"solution": {"calls": [{"name": "look", "arguments": {"at": "s', "no end"),
        ('{"solution": {"calls": ["look"], "output": null}}', "Call 1 of your solution: The tool call"),
        ('{"solution": {"calls": 3, "output": null}}', "a list"),
        ('{"solution": {"calls": [], "output": null}}', "neither calls nor"),
    ],
)
def test_what_is_no_solution_is_told(content: str, why: str) -> None:
    sim = solver().begin()
    assert kinds(sim.say(content=content)) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    assert why in last_read(sim)
    sound(sim)


@pytest.mark.parametrize(
    "content",
    [
        """{'solution': {'calls': [{'name': 'look', 'arguments': {'at': 'sky'}}], 'output': None}}""",
        """```json\n{"calls": [{"name": "look", "arguments": {"at": "sky"},}]}\n```""",
        """I propose: {"solution": {"calls": {"tool": "look", "args": {"at": "sky"}}}}""",
        """{"calls": [{"function": {"name": "look", "arguments": "{\\"at\\": \\"sky\\"}"}}], "output": null""",
        """<think>Or {"calls": []}?</think>{"calls": [{"name": "look", "arguments": {"at": "sky"}, "outcome": 1}]}""",
    ],
)
def test_what_is_almost_right_is_taken_as_it_was_meant(content: str) -> None:
    sim = solver().begin()
    events = sim.say(content=content)
    assert only(events, ev.ToolCalled).arguments == {"at": "sky"}
    assert not only(events, SolutionProposed).calls[0].implicit
    sound(sim)


def test_native_calls_and_final_answer_are_understood_too() -> None:
    sim = solver().begin()
    assert only(sim.say(call("look", at="sky")), ev.ToolCalled).tool == "look"
    sim.arrive(result(sim.id(0), "blue", tool="look"))
    assert [message["role"] for message in asked(sim).messages][-2:] == ["assistant", "user"]
    end = proposes(sim, {"name": "final_answer", "arguments": {"answer": "blue"}})
    assert only(end, ev.RunFinished).output == "blue"
    sound(sim)


def test_calls_that_cannot_be_made_are_refused_each_on_its_own() -> None:
    sim = solver().begin()
    events = proposes(sim, {"name": "nobody", "arguments": {}}, LOOK)
    assert kinds(events)[-2:] == ["CallRefused", "ToolCalled"]
    sim.arrive(result(sim.id(1), "blue", tool="look"))
    assert "'nobody'" in last_read(sim)
    sound(sim)


def test_one_call_is_held_and_corrected_and_the_model_reads_that() -> None:
    sim = solver(approvals={"add": "when: a > 0"}).begin()
    assert kinds(proposes(sim, LOOK, ADD))[-2:] == ["ToolCalled", "ApprovalRequested"]
    sim.arrive(result(sim.id(0), "blue", tool="look"))
    corrected = decides(sim, "corrected", sim.id(1), arguments={"a": 9, "b": 2}, feedback="Nine.")
    assert only(corrected, ev.ToolCalled).arguments == {"a": 9, "b": 2}
    sim.arrive(result(sim.id(1), 11))
    read = last_read(sim)
    assert '{"name":"add","arguments":{"a":9,"b":2}}' in read
    assert "Nine." in read
    sound(sim)


def test_the_whole_of_a_solution_waits_for_a_person() -> None:
    sim = solver(SolutionSpec(approve="always"), approvals={"*": "always"}).begin()
    events = proposes(sim, LOOK, ADD, output="soon")
    held = only(events, ev.ApprovalRequested)
    assert kinds(events) == ["ModelAnswered", "SolutionProposed", "ApprovalRequested"]
    assert (held.kind, held.name, held.arguments) == (
        "question",
        "solution",
        {"calls": [LOOK, ADD], "output": "soon"},
    )
    assert sim.owed() == []
    made = decides(sim, "approved", feedback="Go on.")
    assert kinds(made) == ["ApprovalDecided", "ToolCalled", "ToolCalled"]
    for index, tool in ((1, "look"), (2, "add")):
        sim.arrive(result(sim.id(index), 3, tool=tool))
    review, *outcomes = last_read(sim).split("\n\n")
    assert "Go on." in review
    assert outcomes == ["look: 3", "add: 3"]
    sound(sim)


def test_a_rejected_solution_is_told_and_no_miss() -> None:
    sim = solver(SolutionSpec(approve="always", tries=1)).begin()
    proposes(sim, LOOK)
    events = decides(sim, "rejected", feedback="Look elsewhere.")
    assert kinds(events) == ["ApprovalDecided", "StepFinished", "ModelCalled"]
    refused = only(events, ev.StepFinished).error
    assert refused is not None
    assert refused.code == "rejected"
    assert "Look elsewhere." in last_read(sim)
    proposes(sim, {**LOOK, "arguments": {"at": "sea"}})
    decides(sim, "approved", "r1_2_0")
    sim.arrive(result(sim.id(1), "grey", tool="look"))
    proposes(sim, output="grey")
    assert sim.run.result is not None
    sound(sim)


@pytest.mark.parametrize(
    ("at_expiry", "follows"),
    [
        ("reject", ["ApprovalDecided", "StepFinished", "ModelCalled"]),
        ("approve", ["ApprovalDecided", "ToolCalled"]),
        ("end", ["ApprovalDecided", "StepFinished", "RunFinished"]),
    ],
)
def test_a_policy_says_what_follows_when_nobody_decides(at_expiry: Any, follows: list[str]) -> None:
    sim = solver(SolutionSpec(approve="always", at_expiry=at_expiry), approval_seconds=60.0).begin()
    assert only(proposes(sim, LOOK), ev.ApprovalRequested).expires_at == 160.0
    sim.at = 160.0
    assert kinds(sim.arrive(timer("approval-r1_1_0"))) == follows
    sound(sim)


@pytest.mark.parametrize(
    ("policy", "calls", "output", "held"),
    [
        ("when: 'add' in names", [LOOK], None, False),
        ("when: 'add' in names", [LOOK, ADD], None, True),
        ("when: calls | length > 1", [LOOK, ADD], None, True),
        ("when: not calls and output | length > 3", [], "far too long", True),
        ("when: output.n > 1", [LOOK], None, True),
        ("always", [], "done", False),
    ],
)
def test_a_policy_is_about_the_whole_solution(policy: str, calls: list[Any], output: Any, held: bool) -> None:
    sim = solver(SolutionSpec(approve=policy)).begin()
    assert ("ApprovalRequested" in kinds(proposes(sim, *calls, output=output))) is held


def test_an_answer_itself_may_wait_for_a_person() -> None:
    sim = solver(SolutionSpec(approve="when: not calls")).begin()
    proposes(sim, output="42")
    assert kinds(decides(sim, "approved")) == ["ApprovalDecided", "StepFinished", "RunFinished"]
    sound(sim)


def test_the_form_of_the_request_is_learned_from_refusals() -> None:
    sim = solver().begin()
    assert asked(sim).schema is not None
    events = sim.fail("status 400: response_format is not supported", final=True, about_form=True)
    assert kinds(events) == ["FormRefused", "ModelCalled"]
    request = asked(sim)
    assert (request.schema, request.json_object) == (None, True)
    assert "must be JSON that fits this schema" in request.messages[0]["content"]
    sim.fail("Unknown parameter response_format", final=True, about_form=True)
    request = asked(sim)
    assert (request.schema, request.json_object) == (None, False)
    assert "must be JSON that fits this schema" in request.messages[0]["content"]
    assert isinstance(sim.run.own, SolutionState)
    assert sim.run.own.form == "prompt"
    proposes(sim, output="done")
    sound(sim)


def test_other_refusals_end_the_run() -> None:
    sim = solver().begin()
    assert only(sim.fail("status 401: no key", final=True), ev.RunFinished).state == "error"
    sim = solver(model=ModelSpec(structured="schema")).begin()
    assert only(sim.fail("response_format is unknown", final=True), ev.RunFinished).state == "error"


def test_an_answer_that_was_cut_off_does_nothing() -> None:
    sim = solver().begin()
    cut = '{"solution": {"calls": [{"name": "look", "arguments": {"at": "sky"}}'
    events = sim.arrive(ModelReplied(attempt=1, content=cut, finish_reason="length"))
    assert kinds(events) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    whole = msgspec.json.encode({"calls": [LOOK]}).decode()
    sim.arrive(ModelReplied(attempt=1, content=whole, finish_reason="length"))
    assert [one.tool for one in sent(sim, ToolCall)] == ["look"]


def test_when_the_steps_are_used_up_a_last_answer_is_asked_for() -> None:
    sim = solver(limits=Limits(max_steps=1), output_schema=NUMBER).begin()
    proposes(sim, LOOK)
    sim.arrive(result(sim.id(0), "blue", tool="look"))
    request = asked(sim)
    assert request.schema is not None
    assert "answer" in request.schema["properties"]
    end = only(sim.say(content='{"answer": {"n": 3}}'), ev.RunFinished)
    assert (end.state, end.output) == ("max_steps_error", {"n": 3})
    sound(sim)
