"""Ids of spans: derived, spread evenly, and those that travel in headers are those of the journal's trace."""

import uuid

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from cadre.engine.commands import Send
from cadre.protocol.messages import Task, ToolCall
from cadre.telemetry.tracing.ids import (
    call_span,
    root_span,
    sampled,
    span_id,
    trace_id,
    traceparent_of,
    traceparent_of_run,
)
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import link_to
from unit.loop.build import SimulatedRun, call, report, result


def test_ids_are_the_same_for_ever() -> None:
    """Exported traces, and links to them, outlive the version that made them."""
    assert trace_id("a1") == "eb6105039eda999e371252577a9b56f3"
    assert root_span("a1") == "427d079a4eeb9a88"
    assert span_id("a1", "step", 1) == "5ca8ef818c3cac98"


def test_places_do_not_run_into_each_other() -> None:
    assert span_id("a1", "step", 11) != span_id("a1", "step1", 1)
    assert len({trace_id(f"{n:x}") for n in range(1000)}) == 1000


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_sampling_by_ratio_takes_its_share_of_trees(rate: float) -> None:
    """The id of a tree itself would not do: the bits that are asked for are the same in every UUID."""
    sampler = TraceIdRatioBased(rate)
    ids = [int(trace_id(uuid.UUID(int=n, version=4).hex), 16) for n in range(4000)]
    taken = sum(sampler.should_sample(None, one, "x").decision is Decision.RECORD_AND_SAMPLE for one in ids)
    assert abs(taken / len(ids) - rate) < 0.03


def test_what_travels_in_headers_is_a_span_of_the_journal() -> None:
    """Anyone who hangs its own spans below a header must find its parent in the trace, no matter what became of the
    call."""
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2), call("kid", task="help"))
    sent = [command.message for command in sim.owed() if isinstance(command, Send)]
    sim.arrive(result(sim.id(0), 3))
    sim.arrive(report(sim.id(1), "done"))
    sim.say(call("final_answer", answer="42"))
    known = {span.span for span in trace_of(sim.journal(), now=0.0)}
    assert len(sent) == 2
    for message in sent:
        assert isinstance(message, Task | ToolCall)
        (link,) = link_to(traceparent_of(message))
        assert link.trace == trace_id("r1")
        assert link.span in known
    (root,) = link_to(traceparent_of_run("r1"))
    assert root.span in known


def test_what_travels_says_that_its_tree_is_not_sampled() -> None:
    sim = SimulatedRun().begin(trace=f"00-{'a' * 32}-{'b' * 16}-00")
    sim.say(call("add", a=1, b=2), call("kid", task="help"))
    sent = [command.message for command in sim.owed() if isinstance(command, Send)]
    assert [type(message) for message in sent] == [ToolCall, Task]
    for message in sent:
        assert isinstance(message, Task | ToolCall)
        assert traceparent_of(message).startswith(f"00-{trace_id('r1')}-")
        assert sampled(traceparent_of(message)) is False


def test_the_task_of_a_child_is_sent_from_its_call() -> None:
    task = Task(id="r1_1_0:task", tree="r1", run="r1_1_0", at=1.0, agent="kid", task="help")
    assert call_span("r1_1_0") in traceparent_of(task)
