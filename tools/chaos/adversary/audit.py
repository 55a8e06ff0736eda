"""An auditor that shares no code with what it audits: it reads the streams with plain nats-py and decodes plain JSON.

What it knows of the formats is what docs/protocol.md says. Nothing here may import from Cadre.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import nats

_SHARD = re.compile(r"CADRE-\d+")
_SEAL = re.compile(rb'(,"prev":"[\w-]*")?,"hash":"[\w-]*"\}$')

_DEFAULTS: dict[str, dict[str, Any]] = {
    "model.called": {"purpose": "act", "attempt": 1},
    "model.answered": {"purpose": "act", "attempt": 1},
}


class Message(NamedTuple):
    """A message as it lies in the stream of a shard."""

    seq: int
    subject: str
    data: bytes


class Ruling(NamedTuple):
    """A person's decision on a held call, and the gateway's answer."""

    call: str
    wanted: str
    """approved or rejected"""
    status: int
    verdict: str
    """As the gateway reported it; empty where it refused."""


@dataclass
class Seen:
    """The deployment as its clients saw it."""

    runs: dict[str, str] = field(default_factory=dict)
    """The run of each request, by its Idempotency-Key."""
    streams: dict[str, list[int]] = field(default_factory=dict)
    """Ids of the events that each run's follower was sent, over all its connections."""
    budgets: dict[str, int] = field(default_factory=dict)
    """Tokens that a run may use."""
    rulings: list[Ruling] = field(default_factory=list)
    memories: dict[str, list[str]] = field(default_factory=dict)
    """The texts that must be remembered for a user, by the run that asks for it."""


async def read_shards(url: str) -> dict[str, list[Message]]:
    """All messages of each shard's stream, in its order."""
    nc = await nats.connect(url)
    try:
        js, found = nc.jetstream(), {}
        for info in await js.streams_info():
            name = info.config.name or ""
            if not _SHARD.fullmatch(name):
                continue
            messages = found[name] = list[Message]()
            if not info.state.messages:
                continue
            reader = await js.subscribe("cadre.>", stream=name, ordered_consumer=True)
            while True:
                message = await reader.next_msg(timeout=10)
                messages.append(Message(message.metadata.sequence.stream, message.subject, message.data))
                if not message.metadata.num_pending:
                    break
            await reader.unsubscribe()
        return found
    finally:
        await nc.close()


def audit(shards: dict[str, list[Message]], seen: Seen) -> list[str]:
    """Return what must not be, a line each; [] when everything held."""
    books = [Books(messages) for messages in shards.values()]
    found = [line for book in books for line in book.problems()]
    journals = {run: journal for book in books for run, journal in book.journals.items()}
    found += _requests(journals, seen)
    found += followers(journals, seen.streams)
    found += _rulings(journals, seen.rulings)
    found += _budgets(journals, seen.budgets)
    found += _memories(journals, seen.memories)
    return found


class Entry(NamedTuple):
    """An entry of a journal, as it lies in its stream."""

    seq: int
    raw: bytes
    body: dict[str, Any]

    @property
    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.body["events"]
        return events


class Books:
    """One shard, sorted: journals by run, effects by call, records by run."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.journals: dict[str, list[Entry]] = defaultdict(list)
        self.effects: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.records: list[tuple[str, str]] = []
        for seq, subject, data in messages:
            tokens = subject.split(".")
            if any(token.startswith("_") for token in tokens):
                continue
            if tokens[1] == "run":
                self.journals[tokens[-1]].append(Entry(seq, data, entry_of(data)))
            elif tokens[1] == "effect":
                self.effects[tokens[4]].append(json.loads(data))
            elif tokens[1] == "in":
                self.records.append((tokens[-1], json.loads(data)["id"]))

    def problems(self) -> Iterator[str]:
        for run, journal in self.journals.items():
            for problem in (*_history(journal), *_course(journal)):
                yield f"run {run}: {problem}"
        for call, messages in self.effects.items():
            kinds = [message["type"] for message in messages]
            if kinds not in (["effect_claim"], ["effect_claim", "effect_result"], ["effect_result"]):
                yield f"call {call}: its effects are {kinds}"
        causes = {run: {one.body["cause"] for one in journal} for run, journal in self.journals.items()}
        for run, record in self.records:
            if record not in causes.get(run, set()):
                yield f"run {run}: no entry accounts for record {record}"


def _history(journal: list[Entry]) -> Iterator[str]:
    numbers = [entry.body["n"] for entry in journal]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its entries are numbered {numbers}"
    for cause, times in Counter(entry.body["cause"] for entry in journal).items():
        if times > 1:
            yield f"{times} entries have the cause {cause}"
    before = ""
    for entry in journal:
        wanted = hash_of(entry.raw, before)
        if entry.body["hash"] != wanted:
            yield f"entry {entry.body['n']} was changed: its hash is {entry.body['hash']}, not {wanted}"
        before = entry.body["hash"]


def _course(journal: list[Entry]) -> Iterator[str]:
    events = [event for entry in journal for event in entry.events]
    types = [event["type"] for event in events]
    for wanted in ("run.accepted", "run.finished"):
        if types.count(wanted) != 1:
            yield f"it has {types.count(wanted)} {wanted}"
    if "run.finished" in types:
        late = set(types[types.index("run.finished") + 1 :]) - {
            "record.ignored",
            "tool.answered",
            "delegate.finished",
        }
        if late:
            yield f"after its end came {sorted(late)}"
    answers = Counter((e["purpose"], e["step"]) for e in events if e["type"] == "model.answered")
    for (purpose, step), times in answers.items():
        if times > 1:
            yield f"the answer for {purpose} of step {step} was kept {times} times"
    for kind in ("tool.called", "tool.answered", "approval.requested", "approval.decided"):
        for call, times in Counter(event["call"] for event in events if event["type"] == kind).items():
            if times > 1:
                yield f"call {call} has {times} {kind}"


def events_of(journals: dict[str, list[Entry]], run: str) -> list[dict[str, Any]]:
    """All events of a run's journal, in order."""
    return [event for entry in journals.get(run, []) for event in entry.events]


def _requests(journals: dict[str, list[Entry]], seen: Seen) -> Iterator[str]:
    """However often a request was cut off and sent again, by whichever gateway: one run, and that one answered."""
    begun: dict[str, list[str]] = defaultdict(list)
    for run in journals:
        for event in events_of(journals, run):
            if event["type"] == "run.accepted":
                begun[event["task"]["task"].split()[-1]].append(run)
    for key, run in seen.runs.items():
        if begun.pop(key, []) != [run]:
            yield f"request {key} was answered with run {run}; its runs are {begun.get(key)}"
    for key, runs in begun.items():
        yield f"runs {runs} were begun for {key}, which nobody has asked for"


def followers(journals: dict[str, list[Entry]], streams: dict[str, list[int]]) -> Iterator[str]:
    """Report followers that did not get each entry of their run once, in order, up to the run's end."""
    for run, told in streams.items():
        journal = journals.get(run, [])
        ends = [one.seq for one in journal if any(e["type"] == "run.finished" for e in one.events)]
        wanted = [entry.seq for entry in journal if entry.seq <= max(ends, default=0)]
        if told != wanted:
            yield f"run {run}: its follower was told {told}, the stream holds {wanted}"


def _rulings(journals: dict[str, list[Entry]], rulings: list[Ruling]) -> Iterator[str]:
    """No matter who said what at once: one word counts, everybody is sent the same one, and it is what was done."""
    decided: dict[str, str] = {}
    called = set()
    for run in journals:
        for event in events_of(journals, run):
            if event["type"] == "approval.decided":
                decided[event["call"]] = event["verdict"]
            elif event["type"] == "tool.called":
                called.add(event["call"])
    for call, verdict in decided.items():
        if (verdict == "approved") is not (call in called):
            yield f"call {call} was {verdict}, and {'made' if call in called else 'never made'}"
    for call, wanted, status, verdict in rulings:
        counts = decided.get(call)
        if counts is None:
            yield f"call {call}: a person was answered {status}, and nothing is decided"
        elif status == 200 and verdict != counts:
            yield f"call {call}: a person was told {verdict}, and {counts} counts"
        elif status == 200 and wanted != counts:
            yield f"call {call}: who wanted {wanted} was told that it was done, and {counts} counts"
        elif status not in (200, 409):
            yield f"call {call}: a person was answered {status}"
        elif status == 409 and wanted == counts:
            yield f"call {call}: who wanted {wanted} was refused, and it is what counts"


def _budgets(journals: dict[str, list[Entry]], budgets: dict[str, int]) -> Iterator[str]:
    """No call begins once the budget is used up, and what was bought twice has used of it too."""
    for run, most in budgets.items():
        used, events = 0, events_of(journals, run)
        for event in events:
            if event["type"] == "model.called" and used >= most:
                yield f"run {run}: a model was asked after {used} of {most} tokens"
            if event["type"] in ("model.answered", "record.ignored"):
                usage = event.get("usage") or {}
                used += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        ends = [event for event in events if event["type"] == "run.finished"]
        if not ends or (ends[0].get("error") or {}).get("type") != "BudgetExceeded":
            yield f"run {run}: it did not end for its budget of {most} tokens, but as {ends}"


def _memories(journals: dict[str, list[Entry]], wanted: dict[str, list[str]]) -> Iterator[str]:
    """Yield violations: memories are recalled, once each; and nothing of others."""
    for run, notes in wanted.items():
        recalled = [
            memory["text"]
            for event in events_of(journals, run)
            if event["type"] == "memory.recalled"
            for memory in event.get("memories", [])
        ]
        for note in notes:
            times = sum(note in text for text in recalled)
            if times != 1:
                yield f"run {run}: the note {note} is recalled {times} times"
        for text in recalled:
            if not any(note in text for note in notes):
                yield f"run {run}: it recalls what nobody of its user has noted: {text[:80]!r}"


# --- entries as they are stored


def entry_of(raw: bytes) -> dict[str, Any]:
    """Return a stored entry with what it leaves out: ids, causes, and the defaults that an audit reads. See
    docs/protocol.md."""
    body: dict[str, Any] = json.loads(raw)
    run = body["run"]
    whole: dict[str, Any] = _expanded({**body, "run": "~"}, run)
    events = whole["events"] = [_DEFAULTS.get(event["type"], {}) | event for event in whole["events"]]
    return whole if "cause" in whole else whole | {"cause": _implied(run, events[0])}


def hash_of(raw: bytes, before: str) -> str:
    """Return the hash that a stored entry must have behind one with the hash `before`."""
    digest = hashlib.blake2b(before.encode() + _SEAL.sub(b"", raw), digest_size=16).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _expanded(value: Any, run: str) -> Any:
    if isinstance(value, dict):
        return {key: _field(one, run) for key, one in value.items()}
    if isinstance(value, list):
        return [_expanded(one, run) for one in value]
    return value


def _field(value: Any, run: str) -> Any:
    if not isinstance(value, str) or not value.startswith("~"):
        return _expanded(value, run)
    return value[1:] if value.startswith("~~") else run + value[1:]


def _implied(run: str, event: dict[str, Any]) -> str:
    match event["type"]:
        case "run.accepted":
            return f"{run}:task"
        case "tool.answered":
            return f"{event['call']}:result"
        case "delegate.finished":
            return f"{event['call']}:report"
        case _:
            return f"{run}:model:{event['purpose']}:{event['step']}:{event['attempt']}"
