"""A finished span as data, complete and in one order: what a trace is made of before any exporter sees it."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

SpanKind = Literal["INTERNAL", "CLIENT", "CONSUMER"]
Status = Literal["UNSET", "OK", "ERROR"]
Value = str | bool | int | float | list[str]

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


class Link(msgspec.Struct, frozen=True):
    """To a span of any trace, in hex."""

    trace: str
    span: str


class Moment(msgspec.Struct, frozen=True):
    """Something that happened within a span."""

    name: str
    at: int
    """Unix nanoseconds."""
    attributes: dict[str, Value] = {}


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ids are hex, times Unix nanoseconds."""

    trace: str
    span: str
    parent: str | None = None
    name: str
    kind: SpanKind = "INTERNAL"
    start: int
    end: int
    attributes: dict[str, Value] = {}
    links: list[Link] = []
    moments: list[Moment] = []
    status: Status = "UNSET"
    message: str = ""
    """Why, of an ERROR."""
    service: str
    """The agent, tool or sandbox that did the work."""
    instance: str = ""
    """Which replica of it, where that is known."""
    run: str
    open: bool = False
    """Not finished: shown by our own views, and never exported."""


def nanoseconds(at: float) -> int:
    """Of Unix seconds as a journal has them: a float of today tells microseconds apart, no less."""
    return round(at * 1e6) * 1000


def link_to(traceparent: str | None) -> list[Link]:
    """A link to the span that a W3C traceparent names; [] when it names none."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return [Link(found[1], found[2])] if found else []
