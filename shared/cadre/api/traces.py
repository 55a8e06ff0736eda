"""The trace of a run, as the HTTP API shows it."""

import msgspec

from cadre.telemetry.tracing.spans import SpanRecord


class TraceSpan(SpanRecord, frozen=True, kw_only=True):
    """A span in its place."""

    depth: int


class TraceTree(msgspec.Struct, kw_only=True):
    """The trace of a run and of all runs below it."""

    id: str
    trace: str
    spans: list[TraceSpan]
    """Parents before their children, siblings by time. Of a page: those parents that are on it."""
    next: int | msgspec.UnsetType | None = msgspec.UNSET
    """With `limit`: `after` of the next page; None on the last one."""
