"""Tests of what people, models and tools wrote is in no span, unless somebody asked for it."""

import msgspec
import pytest

from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import Decision, ErrorInfo
from cadre.protocol.usage import Usage
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import MAX_CHARS
from cadre.telemetry.tracing.page import trace_of
from kinds.code.build import coder, ended, yielded
from unit.loop.build import SimulatedRun, call, report, result, spec

CANARY = "canary-7c1e"


def calling() -> SimulatedRun:
    """Every place where somebody can write something holds the canary."""
    sim = SimulatedRun(spec(approvals={"look": "always"}, instructions=CANARY))
    sim.begin(CANARY, inputs={"it": CANARY})
    sim.fail(CANARY, status=503)
    sim.wake()
    usage = Usage(input_tokens=1)
    sim.say(call("look", at=CANARY), call("kid", task=CANARY), call("add", a=1, b=2), content=CANARY, usage=usage)
    sim.arrive(Decision(id="d", tree="r1", run="r1", at=1.0, call="r1_1_0", verdict="rejected", feedback=CANARY))
    sim.arrive(report("r1_1_1", CANARY, state="error", error=ErrorInfo("tool-failed", CANARY)))
    sim.arrive(result("r1_1_2", CANARY, error=ErrorInfo("tool-failed", CANARY), executor="e"))
    sim.say(call(CANARY, x=1))
    sim.say(call("final_answer", answer=CANARY))
    return sim


def coding() -> SimulatedRun:
    sim = coder().begin(CANARY)
    sim.say(content=f"Thought.\n<code>\nprint('{CANARY}')\n")
    sim.arrive(yielded(CodeRequest("look", {"at": CANARY}), logs=CANARY))
    sim.arrive(result("r1_1_0", CANARY))
    sim.arrive(ended(1, logs=CANARY, text=CANARY, output=CANARY, is_final_answer=True))
    return sim


@pytest.mark.parametrize("sim", [calling(), coding()], ids=["calls", "code"])
def test_nothing_that_somebody_wrote_is_in_a_span(sim: SimulatedRun) -> None:
    for span in trace_of(sim.journal(), now=0.0):
        text = msgspec.json.encode(span).decode()
        # A model may name what it calls as it likes: the name of a call is what it is about.
        assert CANARY not in text.replace(f"execute_tool {CANARY}", "").replace(
            f'"{names.TOOL}":"{CANARY}"', ""
        ).replace(f'"{names.OI_TOOL}":"{CANARY}"', "")


@pytest.mark.parametrize("sim", [calling(), coding()], ids=["calls", "code"])
def test_it_is_there_for_those_who_ask(sim: SimulatedRun) -> None:
    spans = trace_of(sim.journal(), now=0.0, content=True)
    held = {key for span in spans for key, value in span.attributes.items() if CANARY in str(value)}
    assert {names.INPUT_VALUE, names.OUTPUT_VALUE, names.OUTPUT_MESSAGES} <= held
    assert {names.TOOL_ARGUMENTS, names.TOOL_RESULT} <= held
    root = next(span for span in spans if span.parent is None)
    assert (root.attributes[names.INPUT_VALUE], root.attributes[names.OUTPUT_VALUE]) == (CANARY, CANARY)


def test_long_content_is_cut() -> None:
    sim = SimulatedRun().begin("x" * (2 * MAX_CHARS))
    sim.say(call("final_answer", answer="y" * (2 * MAX_CHARS)))
    spans = trace_of(sim.journal(), now=0.0, content=True)
    sizes = [len(str(value)) for span in spans for value in span.attributes.values()]
    assert max(sizes) == MAX_CHARS
