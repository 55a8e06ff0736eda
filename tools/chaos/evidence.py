"""The evidence that is left when the chaos is over: all that the verdict may look at."""

from typing import Literal, NamedTuple

import msgspec

from cadre.ports import Stored
from cadre.protocol.messages import CodeCall, ErrorInfo
from chaos.executions import Line
from chaos.load import Order
from chaos.strikes import Strike
from harness.otlp_receiver import Span


class Delivered(NamedTuple):
    """A record in some run's inbox."""

    run: str
    id: str
    seq: int


class EffectMessage(NamedTuple):
    """The content of a call's effect subject: a claim, or the result of one."""

    type: Literal["effect_claim", "effect_result"] | str
    executor: str
    """That claimed the call."""
    at: float
    claimed_at: float
    error: ErrorInfo | None


class Consumer(NamedTuple):
    stream: str
    name: str
    pending: int
    """Messages not delivered yet."""
    unacked: int


class Evidence(msgspec.Struct, kw_only=True):
    orders: list[Order] = []
    journals: dict[str, list[Stored]] = {}
    """Entries by run, in the order of their stream."""
    inbox: list[Delivered] = []
    effects: dict[str, list[EffectMessage]] = {}
    """By call id, in the order of their stream."""
    code: list[CodeCall] = []
    """Every question that a sandbox was asked, all exchanges in it."""
    executions: list[Line] = []
    spans: list[Span] | None = None
    """Spans sent to a receiver of traces, each time; None where there was no receiver."""
    consumers: list[Consumer] = []
    dead: list[str] = []
    """The dead letters."""
    timers: list[str] = []
    """Subjects of the timers that are still set."""
    strikes: list[Strike] = []
    troubles: list[str] = []
    """Faults seen while it happened."""
