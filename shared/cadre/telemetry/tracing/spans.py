"""Spans as data, before they are exported in any form."""

import re
from typing import Literal

import msgspec

SpanKind = Literal["INTERNAL", "CLIENT", "PRODUCER", "CONSUMER"]
Status = Literal["UNSET", "OK", "ERROR"]
Value = str | bool | int | float | list[str]

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


class SpanLink(msgspec.Struct, frozen=True):
    """A link to a span of any trace; both ids in hex."""

    trace: str
    span: str


class Moment(msgspec.Struct, frozen=True):
    """A span event: something that happened within a span."""

    name: str
    at: int
    """Unix nanoseconds."""
    attributes: dict[str, Value] = {}


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One span. Ids are in hex, times in Unix nanoseconds."""

    trace: str
    span: str
    parent: str | None = None
    name: str
    kind: SpanKind = "INTERNAL"
    start: int
    end: int
    attributes: dict[str, Value] = {}
    links: list[SpanLink] = []
    moments: list[Moment] = []
    status: Status = "UNSET"
    message: str = ""
    """The reason of an ERROR."""
    service: str
    """The agent, tool or sandbox that did the work."""
    instance: str = ""
    """The replica of that service, where it is known."""
    version: str = ""
    """The version of that service, where it is known."""
    run: str
    open: bool = False
    """The span has not ended: it is shown by our own views and never exported."""


def nanoseconds(at: float) -> int:
    """Unix seconds, as a journal has them, in nanoseconds; a float of today is precise to microseconds only."""
    return round(at * 1e6) * 1000


def link_to(traceparent: str | None) -> list[SpanLink]:
    """The link to the span of a W3C traceparent in a list; empty when there is no valid one."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return [SpanLink(found[1], found[2])] if found else []
