"""The spans of a block of code: the block itself, and what each sandbox did between two of its waits."""

import json
from typing import Any

from cadre.protocol.messages import ErrorInfo
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from kinds.code.build import ANSWER_WITH_CODE, BLOCK, asks, begun, coder, decision, ended, yielded
from unit.loop.build import SimulatedRun, result
from unit.tracing.test_span_projection import seconds


def later(sim: SimulatedRun, by: float, *arguments: Any) -> None:
    sim.at += by
    sim.arrive(*arguments)


def spans_of(sim: SimulatedRun) -> tuple[SpanRecord, list[SpanRecord], list[SpanRecord]]:
    """The block, the turns of sandboxes, and the calls of tools."""
    spans = trace_of(sim.journal(), now=0.0, content=True)
    (block,) = [span for span in spans if span.name == "execute_tool python"]
    turns = [span for span in spans if span.service == "sandbox"]
    return block, turns, [span for span in spans if span.name == "execute_tool add"]


def test_a_block_of_code_and_the_calls_that_it_made() -> None:
    sim = coder().begin()
    sim.at += 1
    sim.say(content=ANSWER_WITH_CODE)
    later(sim, 1, yielded(asks("add", a=1, b=2), sandbox="box-1", tier="ns"))
    later(sim, 5, result("r1_1_0", 3, executor="here-7", started_at=1.0))
    error = ErrorInfo("code-failed", "it broke")
    later(sim, 1, ended(1, error=error, sandbox="box-2", snapshot="blob:aa"))
    block, turns, (tool,) = spans_of(sim)
    assert (seconds(block), block.status) == ((101.0, 108.0), "ERROR")
    assert [(seconds(turn), turn.instance) for turn in turns] == [
        ((101.0, 102.0), "box-1"),
        ((107.0, 108.0), "box-2"),
    ], "what the sandbox did, without its wait for the call"
    sent = {span.span: span.parent for span in trace_of(sim.journal(), now=0.0) if span.kind == "PRODUCER"}
    assert {tool.parent, *(sent[str(turn.parent)] for turn in turns)} == {block.span}
    assert block.attributes[names.TOOL_CALL] == BLOCK
    code = str(block.attributes[names.INPUT_VALUE])
    assert code in ANSWER_WITH_CODE
    assert json.loads(str(block.attributes[names.TOOL_ARGUMENTS])) == {"code": code}, "an object, as of any tool"
    assert not {names.TOOL_RESULT, names.OUTPUT_VALUE} & set(block.attributes), "it printed and gave nothing"


def test_a_sandbox_waits_for_a_person_too() -> None:
    sim = begun(approvals={"add": "always"})
    later(sim, 1, yielded(asks("add", a=1, b=2)))
    later(sim, 600, decision("rejected"))
    later(sim, 1, ended(1, text="None"))
    block, turns, _ = spans_of(sim)
    assert [seconds(turn) for turn in turns] == [(100.0, 101.0), (701.0, 702.0)]
    assert (block.attributes[names.TOOL_RESULT], block.attributes[names.OUTPUT_VALUE]) == ("None", "None")
