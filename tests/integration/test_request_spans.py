"""Spans of a process's own requests: they wait in its queue while their receiver is away."""

import asyncio
from collections.abc import Iterator

import pytest

from cadre.adapters.otlp import LiveSpans
from cadre.settings import TracingSettings
from harness.otlp_receiver import OtlpReceiver
from harness.patience import patience


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


def spans_to(receiver: OtlpReceiver) -> LiveSpans:
    settings = TracingSettings(
        endpoint=f"{receiver.url}/v1/traces", timeout=1.0, attributes={"service.namespace": "shop"}
    )
    return LiveSpans(settings, "gateway", "g-1")


async def test_spans_of_requests_arrive_when_the_receiver_is_back(receiver: OtlpReceiver) -> None:
    receiver.fail(2, status=500)
    live = spans_to(receiver)
    tracer = live.provider.get_tracer("test")
    for n in range(600):  # more than a batch
        tracer.start_span(f"GET /{n}").end()
    await asyncio.to_thread(receiver.until, lambda: receiver.refused == 2, "two tries")
    await asyncio.to_thread(receiver.until, lambda: len(receiver.spans) == 600, "all spans")
    assert {span.resource["service.namespace"] for span in receiver.spans} == {"shop"}
    await live.shut_down(patience())


async def test_spans_that_the_receiver_refuses_hold_up_no_others(receiver: OtlpReceiver) -> None:
    receiver.fail(1, status=400)
    live = spans_to(receiver)
    tracer = live.provider.get_tracer("test")
    tracer.start_span("refused").end()
    await asyncio.to_thread(receiver.until, lambda: receiver.refused == 1, "the refusal")
    tracer.start_span("taken").end()
    await asyncio.to_thread(receiver.until, lambda: bool(receiver.spans), "the next span")
    assert [span.name for span in receiver.spans] == ["taken"]
    await live.shut_down(patience())


async def test_a_receiver_that_is_away_does_not_hold_up_the_end(receiver: OtlpReceiver) -> None:
    receiver.stop()
    live = spans_to(receiver)
    live.provider.get_tracer("test").start_span("lost").end()
    await asyncio.wait_for(live.shut_down(patience()), patience())
