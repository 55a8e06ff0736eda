"""Ids of traces and spans, derived from ids of runs and calls: every process computes the same ones."""

import functools
import hashlib

from cadre.protocol.messages import Addressed, CodeCall, Report, Task, TimerFired, ToolCall, ToolResult
from cadre.protocol.topology import tree_of


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


def traceparent(tree: str, span: str) -> str:
    """The W3C traceparent of a span, always sampled: runs are few and expensive."""
    return f"00-{trace_id(tree)}-{span}-01"


def traceparent_of_run(run: str) -> str:
    """The traceparent of the span that stands for the whole run."""
    tree = tree_of(run)
    return traceparent(tree, root_span(tree) if run == tree else agent_span(run))


def traceparent_of(message: Addressed | TimerFired) -> str:
    """The traceparent of the span that a message is sent from. The journal exports that span even if the sender dies,
    so a receiver may make it the parent of its spans."""
    match message:
        case ToolCall():
            span = call_span(message.id)
        case ToolResult():
            span = call_span(message.call)
        case CodeCall():
            span = block_span(message.block)
        case Task():
            # The call of its manager, or the whole tree.
            span = call_span(message.run) if message.run != message.tree else root_span(message.tree)
        case Report():
            span = agent_span(message.child)
        case _:
            span = agent_span(message.run)
    return traceparent(message.tree, span)
