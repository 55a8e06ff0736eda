"""The invariants (nothing lost, nothing twice, nothing stuck), over evidence alone."""

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from cadre.protocol.topology import tree_of
from chaos import blocks, effects, journals, traces
from chaos.evidence import Evidence
from chaos.expected import answer_of, runs_of
from chaos.load import Order

T = TypeVar("T")


def violations(evidence: Evidence) -> list[str]:
    """Return what must not be, a line each; [] when every invariant held."""
    return [
        *evidence.troubles,
        *_lost_runs(evidence),
        *_wrong_answers(evidence),
        *_event_streams(evidence),
        *journals.violations(evidence),
        *blocks.violations(evidence),
        *effects.violations(evidence),
        *traces.violations(evidence),
        *_records(evidence),
        *_left_over(evidence),
    ]


def _lost_runs(evidence: Evidence) -> Iterator[str]:
    """Every run that was accepted is there with all its members' runs, and no other."""
    wanted = {run for order in evidence.orders for run in runs_of(order.run, order.number) if order.run}
    for run in sorted(wanted - set(evidence.journals)):
        yield f"run {run} was lost: it has no journal"
    for run in sorted(set(evidence.journals) - wanted):
        yield f"run {run} was begun, and nobody asked for it"
    for run, times in _repeated([order.run for order in evidence.orders if order.run]):
        yield f"run {run} is the answer to {times} different orders"


def _wrong_answers(evidence: Evidence) -> Iterator[str]:
    unknown = effects.interrupted(evidence)
    for order in evidence.orders:
        if not order.state:
            continue
        wanted = answer_of(order.run, order.number, unknown)
        if (order.state, order.output) != ("success", wanted):
            yield f"run {order.run} ended as {order.state} with {order.output!r}, not with {wanted!r}"
        end = journals.end_of(evidence.journals.get(order.run, []))
        if end is not None and (end.state, end.output) != (order.state, order.output):
            yield f"run {order.run} ended as {end.state} in its journal, and as {order.state} at the gateway"


def _event_streams(evidence: Evidence) -> Iterator[str]:
    """Yield violations: a follower of a run gets each entry once and in order, across lost connections."""
    for order in evidence.orders:
        if order.state:
            there = _entries_until_the_end(evidence, order)
            if order.seen != there:
                lost, twice = sorted(set(there) - set(order.seen)), _repeated(order.seen)
                yield f"the event stream of {order.run} left out {lost} and repeated {twice}"


def _entries_until_the_end(evidence: Evidence, order: Order) -> list[int]:
    tree = {run: journal for run, journal in evidence.journals.items() if tree_of(run) == order.run}
    last = max((stored.seq for stored in tree.get(order.run, []) if journals.end_of([stored])), default=0)
    return sorted(stored.seq for journal in tree.values() for stored in journal if stored.seq <= last)


def _records(evidence: Evidence) -> Iterator[str]:
    """Every record that was delivered to a run is accounted for in the journal of that run."""
    accounted = {run: {one.entry.cause for one in journal} for run, journal in evidence.journals.items()}
    for record in evidence.inbox:
        if record.id not in accounted.get(record.run, set()):
            yield f"record {record.id} (message {record.seq}) of run {record.run} is in no journal"


def _left_over(evidence: Evidence) -> Iterator[str]:
    for consumer in evidence.consumers:
        if consumer.pending or consumer.unacked:
            yield (
                f"consumer {consumer.name} of {consumer.stream} is left with {consumer.pending} messages"
                f" to deliver and {consumer.unacked} without an ack"
            )
    for letter in evidence.dead:
        yield f"dead letter: {letter}"
    for timer in evidence.timers:
        yield f"timer left over: {timer}"


def _repeated(values: list[T]) -> list[tuple[T, int]]:
    return [(value, times) for value, times in Counter(values).items() if times > 1]
