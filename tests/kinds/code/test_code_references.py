"""Tests of which blobs code may name: those that its run was given or has made, and no others whose hash it knows."""

from typing import Any

import pytest
from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.kinds.code.fold import state_of
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import UserMessage
from kinds.code.build import ANSWER_WITH_CODE, asks, begun, coder, ended, replies, yielded
from unit.loop.build import SimulatedRun, kinds, only, report, result, task


def blob(number: int) -> str:
    return f"blob:{number:064x}"


def file(number: int) -> dict[str, Any]:
    return {"$file": {"ref": blob(number), "media_type": "text/plain", "name": "", "size": 1}}


STRANGER = blob(99)


def _kid(value: Any) -> CodeRequest:
    return asks("kid", task="Look.", additional_args={"what": value})


@pytest.mark.parametrize(
    "value",
    [STRANGER, [f"see {STRANGER}"], file(99), {"$dict": {"$given": ["bytes", STRANGER]}}],
    ids=["text", "within a text", "file", "what only looks like bytes of its own"],
)
def test_a_blob_that_the_run_was_not_given_is_refused(value: Any) -> None:
    sim = begun()
    events = sim.arrive(yielded(_kid(value), asks("add", a=1, b=2)))
    assert kinds(events) == ["BlockYielded", "CallRefused", "ToolCalled"]
    assert str(STRANGER) in only(events, ev.CallRefused).error.message
    sim.arrive(result("r1_1_1", 3))
    assert [one.error is None for one in replies(sim)] == [False, True]
    events = sim.arrive(ended(exchange=1, output=value, text="x", is_final_answer=True))
    assert kinds(events)[:2] == ["BlockFinished", "StepFinished"]
    assert STRANGER not in str(sim.run.result)


def _passes(sim: SimulatedRun, value: Any, **fields: Any) -> None:
    exchange = len(state_of(sim.run).work.exchanges)  # type: ignore[union-attr]
    events = sim.arrive(yielded(_kid(value), exchange=exchange, **fields))
    assert "CallRefused" not in kinds(events)


def test_what_a_run_is_given_its_code_may_pass_on() -> None:
    sim = coder().begin(f"Read {blob(1)}.", inputs={"picture": file(2)})
    sim.arrive(UserMessage(id="u", tree="r1", run="r1", at=2.0, text=f"and {blob(3)}"))
    sim.say(content=ANSWER_WITH_CODE)
    sim.arrive(yielded(asks("add", a=1, b=2)))
    sim.arrive(replace(result("r1_1_0", {"file": file(4)}), blob=blob(5)))
    _passes(sim, [blob(1), file(2), blob(3), file(4), blob(5), blob(6)], references=[blob(6)])


def test_what_code_has_made_it_may_pass_on_later() -> None:
    sim = begun()
    _passes(sim, {"$given": ["bytes", blob(1)]})
    sim.arrive(report("r1_1_0", "ok"))
    _passes(sim, blob(1))
    sim.arrive(report("r1_1_1", "ok"))
    sim.arrive(ended(exchange=2, output={"$given": ["image", blob(2)]}, snapshot="blob:aa"))
    sim.say(content=ANSWER_WITH_CODE)
    events = sim.arrive(yielded(_kid(blob(2)), block="r1:code:2"))
    assert "CallRefused" not in kinds(events)


def test_a_run_that_goes_on_from_another_has_what_that_one_had() -> None:
    sim = coder().begin(inputs={"picture": file(2)})
    sim.say(content=ANSWER_WITH_CODE)
    sim.arrive(ended(snapshot="blob:aa"))
    later = coder()
    later.arrive(task(), history=sim.run.steps)
    later.say(content=ANSWER_WITH_CODE)
    _passes(later, file(2))
