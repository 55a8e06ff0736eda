"""The summary of a chaos, and on failure all that is needed to run it again."""

import os
import re
from collections import Counter
from collections.abc import Iterator

from cadre.journal import events as ev
from cadre.kinds.code.records import BlockFinished, BlockYielded
from chaos import effects, traces
from chaos.campaign import Outcome
from chaos.evidence import Evidence
from chaos.executions import UNSAFE
from chaos.journals import events_of

_SHOWN = 25
_PARTICULARS = re.compile(r"[0-9a-f]{32}\S*|\d+")
"""Ids and numbers: what differs between violations of one kind."""


def summary(outcome: Outcome) -> str:
    """Several lines for a person."""
    evidence = outcome.evidence
    events = [event for journal in evidence.journals.values() for event in events_of(journal)]
    return "\n".join(
        [
            f"seed {outcome.seed}: {outcome.seconds:g} s of chaos, {outcome.took:.0f} s in all",
            *_strikes(evidence),
            *_runs(outcome),
            _kinds(evidence),
            *_work(evidence, events),
            *_code(events),
            *traces.summary(evidence),
            *_healing(evidence, events),
            *_verdict(outcome),
        ]
    )


def _strikes(evidence: Evidence) -> Iterator[str]:
    words = {"kill": "SIGKILL", "pause": "SIGSTOP", "restart": "SIGTERM"}
    for kind, word in words.items():
        hit = Counter(s.victim.partition("-")[0] for s in evidence.strikes if s.kind == kind)
        each = ", ".join(f"{victim} {times}" for victim, times in sorted(hit.items()))
        yield f"  {word:9} {hit.total():4}   {each}"


def _runs(outcome: Outcome) -> Iterator[str]:
    orders = outcome.evidence.orders
    longest = max((order.seconds for order in orders), default=0.0)
    middle = sorted(order.seconds for order in orders)[len(orders) // 2] if orders else 0.0
    refused = max((order.refused for order in orders), default=0.0)
    yield (
        f"  runs      {len(orders):4}   with {len(outcome.evidence.journals)} journals;"
        f" median {middle:.1f} s, longest {longest:.1f} s, last end {outcome.settling:.1f} s after the chaos;"
        f" longest not accepted {refused:.1f} s"
    )


def _kinds(evidence: Evidence) -> str:
    """Runs by the kind of their agent, and how many a strike on a replica of that agent fell into."""
    runs: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for journal in evidence.journals.values():
        first, last = journal[0].entry, journal[-1].entry
        hits = (strike for strike in evidence.strikes if strike.victim.rpartition("-")[0] == first.agent)
        runs[first.kind] += 1
        struck[first.kind] += any(hit.began <= last.at and first.at <= hit.ended for hit in hits)
    each = ", ".join(f"{kind} {times} ({struck[kind]})" for kind, times in sorted(runs.items()))
    return f"  kinds     {len(runs):4}   {each}: runs (and those whose agent was struck meanwhile)"


def _work(evidence: Evidence, events: list[ev.AnyEvent]) -> Iterator[str]:
    steps = sum(isinstance(event, ev.StepFinished) for event in events)
    entries = sum(map(len, evidence.journals.values()))
    yield f"  steps     {steps:4}   in {entries} journal entries; {len(evidence.inbox)} records delivered"
    unsafe = [line.call for line in evidence.executions if line.tool in UNSAFE]
    others = [line.call for line in evidence.executions if line.tool not in UNSAFE]
    yield (
        f"  effects   {len(unsafe):4}   of {len(set(unsafe))} calls of unsafe tools;"
        f" {len(others)} executions of {len(set(others))} calls that may run again"
    )


def _code(events: list[ev.AnyEvent]) -> Iterator[str]:
    sandboxes: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, BlockYielded | BlockFinished):
            sandboxes.setdefault(event.block, set()).add(event.sandbox)
    yields = sum(isinstance(event, BlockYielded) for event in events)
    moved = sum(len(those) > 1 for those in sandboxes.values())
    yield f"  code      {len(sandboxes):4}   blocks; {yields} waits for calls; {moved} went on in another sandbox"


def _healing(evidence: Evidence, events: list[ev.AnyEvent]) -> Iterator[str]:
    unknown = set(effects.interrupted(evidence))
    done = unknown & {line.call for line in evidence.executions}
    yield (
        f"  unknown   {len(unknown):4}   calls interrupted: {len(done)} had taken effect, {len(unknown - done)} had not"
    )
    again = sum(isinstance(event, ev.ModelCalled) and event.attempt > 1 for event in events)
    ignored = sum(isinstance(event, ev.RecordIgnored) for event in events)
    lacking = sum(isinstance(event, ev.ToolsetChanged) and bool(event.missing) for event in events)
    deferred = sum(isinstance(event, ev.ModelDeferred) for event in events)
    yield (
        f"  again     {again:4}   model calls taken over; {deferred} put off; {lacking} offers lacked somebody;"
        f" {ignored} late records ignored"
    )


def _verdict(outcome: Outcome) -> Iterator[str]:
    folder = os.path.relpath(outcome.folder)
    if not outcome.violations:
        yield f"Every invariant held. Logs and journals: {folder}"
        return
    yield f"{len(outcome.violations)} VIOLATIONS (all of them: {folder}/violations.txt)"
    kinds: dict[str, list[str]] = {}
    for line in outcome.violations:
        kinds.setdefault(_PARTICULARS.sub("", line)[:60], []).append(line)
    for alike in list(kinds.values())[:_SHOWN]:
        more = f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""
        yield f"  - {alike[0][:400]}{more}"
    yield f"kept: {folder} (logs, NATS store, schedule, strikes, orders, journals)"
    yield f"again: make chaos SECONDS={outcome.seconds:g} SEED={outcome.seed}"
