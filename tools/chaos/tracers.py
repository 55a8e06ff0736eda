"""The tracers among a chaos's victims, and what their receiver does to them."""

from harness.otlp_receiver import OtlpReceiver
from harness.stack import Stack

TRACERS = ("tracer-1", "tracer-2")

FAILED_AT_FIRST = 3
"""Requests that the receiver answers with an error."""


def add_tracers(stack: Stack, receiver: OtlpReceiver) -> None:
    """Not started yet."""
    receiver.fail(FAILED_AT_FIRST)
    for name in TRACERS:
        stack.add(
            name,
            "cadre_tracer",
            start=False,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_EXPORTER_OTLP_TIMEOUT="3",
        )
