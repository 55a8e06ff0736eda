"""Ids of traces and spans, derived from runs and places in them: whoever computes one gets the same."""

from __future__ import annotations

import functools
import hashlib

from cadre.protocol.messages import Addressed, CodeCall, Report, Task, ToolCall, ToolResult
from cadre.protocol.topology import tree_of


@functools.lru_cache(maxsize=4096)
def trace_id(tree: str) -> str:
    """32 hex digits. Never the run's own id: what that is made of would break sampling by ratio."""
    return hashlib.sha256(b"trace\0" + tree.encode()).hexdigest()[:32]


def span_id(run: str, *path: object) -> str:
    """16 hex digits."""
    return hashlib.sha256("\0".join(["span", run, *map(str, path)]).encode()).hexdigest()[:16]


def root_span(tree: str) -> str:
    return span_id(tree, "root")


def agent_span(run: str) -> str:
    return span_id(run, "agent")


def call_span(call: str) -> str:
    """Of a call, as its run sees it; the call of a team member is named as the child run."""
    return span_id(call, "call")


def block_span(block: str) -> str:
    """Of a block of code."""
    return span_id(block, "block")


def traceparent(tree: str, span: str) -> str:
    """W3C, always sampled: runs are few and dear."""
    return f"00-{trace_id(tree)}-{span}-01"


def traceparent_of_run(run: str) -> str:
    """Of the span that stands for the whole run."""
    tree = tree_of(run)
    return traceparent(tree, root_span(tree) if run == tree else agent_span(run))


def traceparent_of(message: Addressed) -> str:
    """Of the span that a message is sent from. It is in the journal's trace whatever becomes of the sender, so
    that whoever receives the message may hang spans of its own below it."""
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
