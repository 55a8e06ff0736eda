"""The trace of a whole tree of runs from its journals, in reading order, and as one self-contained HTML page without
scripts or external resources."""

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cadre.journal.entry import Entry
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord


class TreeTrace:
    """The spans of the runs of a tree, as far as their entries were taken in."""

    def __init__(self, *, content: bool = False) -> None:
        self.spans: list[SpanRecord] = []
        """Those that have ended."""
        self._content = content
        self._runs: dict[str, Projection] = {}

    def take(self, entries: Iterable[Entry]) -> None:
        """Take in entries in the order of their stream."""
        for entry in entries:
            run = self._runs.get(entry.run)
            if run is None:
                run = self._runs[entry.run] = Projection(entry.tree, entry.run, content=self._content)
            self.spans += run.apply(entry)

    def until(self, now: float) -> list[SpanRecord]:
        """All spans; those still open end at `now` (Unix seconds)."""
        return self.spans + [span for run in self._runs.values() for span in run.unfinished(now)]


def trace_of(entries: Iterable[Entry], *, now: float, content: bool = False) -> list[SpanRecord]:
    """The spans of all runs whose entries are given, including those still open at `now` (Unix seconds)."""
    trace = TreeTrace(content=content)
    trace.take(entries)
    return trace.until(now)


class Placed(NamedTuple):
    """A span and its depth in the tree."""

    depth: int
    span: SpanRecord


def in_order(spans: Iterable[SpanRecord]) -> Iterator[Placed]:
    """Yield parents before their children, and siblings by time; a span without its parent counts as a root.

    The sending of a call is left out: to a reader it is the call itself.
    """
    known = {span.span: span for span in spans}
    sent = {span.span: span.parent for span in known.values() if span.kind == "PRODUCER"}
    below: dict[str | None, list[SpanRecord]] = {}
    for span in known.values():
        if span.span not in sent:
            parent = sent.get(span.parent or "", span.parent)
            below.setdefault(parent if parent in known else None, []).append(span)
    waiting = [Placed(0, span) for span in _later_first(below.get(None, []))]
    while waiting:
        placed = waiting.pop()
        yield placed
        waiting += [Placed(placed.depth + 1, one) for one in _later_first(below.get(placed.span.span, []))]


def _later_first(spans: list[SpanRecord]) -> list[SpanRecord]:
    return sorted(spans, key=lambda span: (span.start, -span.end, span.span), reverse=True)


_COLOURS = {
    "AGENT": "#6c5ce7",
    "LLM": "#d9730d",
    "TOOL": "#0b7285",
    "RETRIEVER": "#2b8a3e",
    "GUARDRAIL": "#c2255c",
    "CHAIN": "#8b98a5",
}
_MAX_SUMMARY_CHARS = 300
_STYLE = """
:root { color-scheme: light dark; }
body { font: 13px/1.5 system-ui, sans-serif; margin: 1.5rem; overflow-wrap: anywhere; }
h1 { font-size: 1.1rem; margin: 0 0 .25rem; } p { margin: 0 0 1rem; opacity: .75; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th:nth-child(1) { width: 40%; } th:nth-child(2) { width: 9rem; } th:nth-child(3), th:nth-child(4) { width: 6.5rem; }
td, th { padding: .15rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
td.d { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.t i { display: block; height: .9rem; border-radius: 2px; min-width: 2px; }
.e { color: #c92a2a; } .o { opacity: .55; } details > div { white-space: pre-wrap;
  font-family: ui-monospace, monospace; font-size: 11px; opacity: .85; max-width: 70rem; }
summary { cursor: pointer; list-style-position: outside; }
@media (max-width: 45rem) { body { margin: .5rem; } th:nth-child(1) { width: auto; } th:nth-child(4) { width: 4.5rem; }
  th:nth-child(2), th:nth-child(3), td:nth-child(2), td:nth-child(3), th:nth-child(5), td.t { display: none; } }
"""


def page(spans: Sequence[SpanRecord], title: str) -> str:
    """The HTML document. All text from spans is escaped."""
    begin = min((span.start for span in spans), default=0)
    length = max(max((span.end for span in spans), default=0) - begin, 1)
    rows = "\n".join(_row(placed, begin, length) for placed in in_order(spans))
    trace = html.escape(spans[0].trace) if spans else ""
    name = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head>\n<body><h1>{name}</h1>"
        f"<p>trace {trace}, {len(spans)} spans, {duration(length)}</p>\n"
        "<table><thead><tr><th>span</th><th>service</th><th>tokens</th><th>time</th><th></th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></body></html>\n"
    )


def duration(nanoseconds: int) -> str:
    """A duration for people: 40 ms, 1.24 s, 3 min 05 s, 2 h 10 min."""
    seconds = nanoseconds / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def tokens(span: SpanRecord) -> str:
    """The input and output tokens of a model call; empty for any other span."""
    input_tokens = span.attributes.get(names.INPUT_TOKENS)
    return "" if input_tokens is None else f"{input_tokens} + {span.attributes.get(names.OUTPUT_TOKENS, 0)}"


def _row(placed: Placed, begin: int, length: int) -> str:
    depth, span = placed
    left = (span.start - begin) / length * 100
    width = (span.end - span.start) / length * 100
    kind = str(span.attributes.get(names.KIND, ""))
    colour = "#c92a2a" if span.status == "ERROR" else _COLOURS.get(kind, _COLOURS["CHAIN"])
    marks = (" e" if span.status == "ERROR" else "") + (" o" if span.open else "")
    message = span.message if len(span.message) <= _MAX_SUMMARY_CHARS else f"{span.message[:_MAX_SUMMARY_CHARS]}…"
    why = f" <b>{html.escape(message)}</b>" if message else ""
    going_on = " (open)" if span.open else ""
    attributes = "\n".join(f"{key} = {value}" for key, value in span.attributes.items())
    if message != span.message:
        attributes = f"{span.message}\n\n{attributes}"
    return (
        f'<tr class="{marks.strip()}"><td class="n" style="padding-left:min({0.5 + depth * 1.1:.1f}rem,25vw)">'
        "<details><summary>"
        f"{html.escape(span.name)}{going_on}{why}</summary><div>{html.escape(attributes)}</div></details></td>"
        f"<td>{html.escape(span.service)}</td><td class='d'>{tokens(span)}</td>"
        f'<td class="d">{duration(span.end - span.start)}</td>'
        f'<td class="t"><i style="margin-left:{min(left, 99.8):.2f}%;width:{width:.2f}%;background:{colour}">'
        "</i></td></tr>"
    )
