"""Ids of traces and spans, and which trees are sampled: both follow from ids of runs and calls, so that every process
comes to the same."""

import functools
import hashlib
import re

from cadre.protocol.messages import CodeCall, Task, ToolCall
from cadre.protocol.topology import tree_of
from cadre.settings import TracingSettings

TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
"""A W3C traceparent: its trace, span and flags."""

_SAMPLED = 0x01


@functools.lru_cache(maxsize=4096)
def _hash(place: str) -> str:
    """Return the place's hash, as sampling by ratio needs ids that are evenly spread; it is kept, because a process
    asks for the same ids again and again: of what it sends, and of each line that it logs."""
    return hashlib.sha256(place.encode()).hexdigest()


def trace_id(tree: str) -> str:
    """The trace of a tree, 32 hex digits."""
    return _hash(f"trace\0{tree}")[:32]


def span_id(run: str, *path: object) -> str:
    """The span at a place within a run, 16 hex digits."""
    return _hash("\0".join(["span", run, *map(str, path)]))[:16]


def root_span(tree: str) -> str:
    """The span of a whole tree."""
    return span_id(tree, "root")


def agent_span(run: str) -> str:
    """The span of one agent's run."""
    return span_id(run, "agent")


def call_span(call: str) -> str:
    """The span of a call on the caller's side; the call of a team member has the id of the child run."""
    return span_id(call, "call")


def block_span(block: str) -> str:
    """The span of a block of code."""
    return span_id(block, "block")


def traceparent(tree: str, span: str, *, sampled: bool = True) -> str:
    """Return the W3C traceparent of a span, with the flag of its tree."""
    return f"00-{trace_id(tree)}-{span}-{_SAMPLED if sampled else 0:02x}"


def sampled(traceparent: str | None) -> bool | None:
    """Return whether the sender of a W3C traceparent has sampled it; None when there is no valid one."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return bool(int(found[3], 16) & _SAMPLED) if found else None


def traceparent_of_run(run: str, *, sampled: bool = True) -> str:
    """Return the traceparent of the span that stands for the whole run, with the flag of its tree."""
    tree = tree_of(run)
    return traceparent(tree, root_span(tree) if run == tree else agent_span(run), sampled=sampled)


def traceparent_of(message: Task | ToolCall | CodeCall) -> str:
    """Return the traceparent of the span that work is sent from, with the flag of its tree. The journal exports that
    span even if the sender dies, so a receiver may make it the parent of its spans."""
    match message:
        case ToolCall():
            span = call_span(message.id)
        case CodeCall():
            span = block_span(message.block)
        case Task():
            # The call of its manager, or the whole tree.
            span = call_span(message.run) if message.run != message.tree else root_span(message.tree)
    return traceparent(message.tree, span, sampled=sampled(message.trace) is not False)


_PARENT_BASED = "parentbased_"


def samples(settings: TracingSettings, tree: str, asked: str | None) -> bool:
    """Return whether a tree is sampled; `asked` is the `traceparent` of its request, if it had one."""
    sampler = settings.sampler
    if sampler.startswith(_PARENT_BASED):
        if (wanted := sampled(asked)) is not None:
            return wanted
        sampler = sampler.removeprefix(_PARENT_BASED)
    if sampler == "traceidratio":
        # As OpenTelemetry's own sampler does it: by the lower 64 bits.
        return int(trace_id(tree)[16:], 16) < round(settings.sampler_ratio * 2**64)
    return sampler == "always_on"


def handed_down(settings: TracingSettings, tree: str, asked: str | None) -> str | None:
    """Return the `trace` of a root task and, by it, of all below it: what the tree is linked to, if it is sampled, and
    a `traceparent` that is not sampled if the tree is not."""
    if samples(settings, tree, asked):
        return asked if sampled(asked) else None
    if found := TRACEPARENT.fullmatch(asked or ""):
        return f"00-{found[1]}-{found[2]}-00"
    return traceparent(tree, root_span(tree), sampled=False)
