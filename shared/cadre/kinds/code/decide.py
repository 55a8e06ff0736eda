"""The course of a step of code: begun, going on after its calls, ended."""

from __future__ import annotations

from cadre.engine.answer_checks import propose
from cadre.engine.calls.open_calls import open_calls
from cadre.engine.partial_result import findings_of
from cadre.engine.steps import after_step, finished
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.run import Run
from cadre.kinds.code.parse import read_code
from cadre.kinds.tool_calling.parse import ReadingError
from cadre.prompting.code_names import named_in_code
from cadre.protocol.messages import CodeFinished, CodeYielded, Usage
from cadre.protocol.topology import block_id


def begin_code(run: Run, reply: ModelReplied, arrival: Arrival, step: int) -> list[ev.AnyEvent]:
    """Hands the block that the model wrote to a sandbox."""
    assert run.spec is not None
    try:
        code = read_code(reply.content, run.spec.code)
    except ReadingError as error:
        return after_step(run, arrival, step, error=error.info)
    return [ev.BlockStarted(block=block_id(run.id, step), code=code)]


def is_awaited(run: Run, answer: CodeYielded | CodeFinished) -> bool:
    """Whether the sandbox owes this; a second sandbox's answer to the same question is not awaited any more."""
    code = run.code
    return (
        code is not None
        and code.since > 0
        and answer.block == code.block
        and answer.exchange == len(code.exchanges)
    )


def on_calls(run: Run, yielded: CodeYielded, arrival: Arrival) -> list[ev.AnyEvent]:
    """The calls of the block go the way of all calls: policy, budget, journal."""
    assert run.current is not None
    event = ev.BlockYielded(
        block=yielded.block,
        exchange=yielded.exchange,
        calls=yielded.calls,
        clock=yielded.clock,
        logs=yielded.logs,
        sandbox=yielded.sandbox,
        tier=yielded.tier,
    )
    cards = named_in_code([*run.tools.values(), *run.members.values()])
    calls = [
        ev.RequestedCall(cards[call.name].name if call.name in cards else call.name, call.arguments)
        for call in yielded.calls
    ]
    step, first = run.current.number, len(run.current.calls)
    opened, stuck = open_calls(run, arrival, calls, step, Usage(), first)
    if stuck is not None:
        return [event, finished(run, "error", output=findings_of(run), error=stuck)]
    return [event, *opened]


def on_end(run: Run, ended: CodeFinished, arrival: Arrival) -> list[ev.AnyEvent]:
    assert run.current is not None
    step = run.current.number
    event = ev.BlockFinished(
        block=ended.block,
        exchange=ended.exchange,
        output=ended.output,
        text=ended.text,
        is_final_answer=ended.is_final_answer,
        logs=ended.logs,
        error=ended.error,
        notes=ended.notes,
        snapshot=ended.snapshot,
        sandbox=ended.sandbox,
        tier=ended.tier,
        seconds=ended.seconds,
    )
    if ended.is_final_answer and ended.error is None:
        return [event, *propose(run, ended.output, arrival, step, made=len(run.current.calls))]
    return [event, *after_step(run, arrival, step, error=ended.error)]
