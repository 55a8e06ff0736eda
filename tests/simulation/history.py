"""The history of each run at the server, kept outside of the world."""

from collections import defaultdict
from collections.abc import Callable

from cadre.delivery.codec import decode
from cadre.engine.fold import apply_entry
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.protocol.messages import CodeCall, EffectClaim, EffectResult, Record, ToolCall
from cadre.protocol.topology import Topology, parent_of, tree_of
from simulation.server import Message
from simulation.trace import Trace


class Violation(Exception):
    """A promise was broken; the text names which, and how."""

    def __init__(self, promise: str, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise


class Chronicle:
    """One run as its journal and its inbox tell of it."""

    def __init__(self, run: str) -> None:
        self.run = Run(id=run, tree=tree_of(run))
        self.entries: list[Entry] = []
        self.records: dict[str, list[Record]] = defaultdict(list)
        """Everything stored in its inbox, by record id."""
        self.unsettled: dict[int, str] = {}
        """Records in the inbox that are not acked yet: id by sequence."""

    @property
    def events(self) -> list[ev.AnyEvent]:
        return [event for entry in self.entries for event in entry.events]


class History:
    """server.Watch: hears of every message that is stored and settled."""

    def __init__(self, topology: Topology, trace: Trace) -> None:
        self._topology = topology
        self._trace = trace
        self.runs: dict[str, Chronicle] = {}
        self.calls: dict[str, ToolCall] = {}
        self.unsettled_calls: dict[str, set[int]] = defaultdict(set)
        self.code_calls: dict[str, list[CodeCall]] = defaultdict(list)
        """Every publication of each, by its id."""
        self.unsettled_code: dict[str, dict[int, str]] = defaultdict(dict)
        """Of each run the calls that no sandbox has settled: id by sequence."""
        self.effects: dict[str, list[EffectClaim | EffectResult]] = defaultdict(list)
        self.settlings: dict[str, list[EffectResult]] = defaultdict(list)
        """Values that executors wanted kept as the result of a call, also those that came second."""
        self.given_up: set[str] = set()
        """Calls that became dead letters."""
        self.retried: set[str] = set()
        """Calls that were dead letters and were published again."""
        self.on_entry = _nobody
        """Called for each entry after it was taken in."""
        self.on_settled: Callable[[str], None] = _nobody_settled
        """Called for each run one of whose records, or one of whose calls, was let go of."""
        self.on_dead: Callable[[Message], None] = _nobody_dead
        """Called for each message that was given up."""

    def of(self, run: str) -> Chronicle:
        found = self.runs.get(run)
        if found is None:
            found = self.runs[run] = Chronicle(run)
        return found

    # --- server.Watch

    def stored(self, message: Message) -> None:
        kind = message.subject.split(".", 2)[1]
        _, leaf = self._topology.parse(message.subject)
        match kind:
            case "run":
                self._appended(self.of(leaf), message)
            case "in":
                record: Record = decode(message.data, Record)
                chronicle = self.of(leaf)
                chronicle.records[record.id].append(record)
                chronicle.unsettled[message.seq] = record.id
                self._trace.note("record", message.seq, record.id)
            case "call":
                if message.retried:
                    self.retried.add(leaf)
                self.calls[leaf] = decode(message.data, ToolCall)
                self.unsettled_calls[leaf].add(message.seq)
                self._trace.note("call", message.seq, leaf)
            case "code":
                code_call: CodeCall = decode(message.data, CodeCall)
                self.code_calls[code_call.id].append(code_call)
                self.unsettled_code[leaf][message.seq] = code_call.id
                self._trace.note("code", message.seq, code_call.id)
            case "effect" if "._trial." in message.subject:
                self._trace.note("trial", message.seq, message.data.decode())
            case "effect":
                record_of_effect: EffectClaim | EffectResult = decode(message.data, EffectClaim | EffectResult)
                claim = record_of_effect
                if isinstance(claim, EffectResult):
                    claim = claim.claim
                self.effects[claim.call].append(record_of_effect)
                self._wanted(record_of_effect)
                self._trace.note("effect", message.seq, record_of_effect.id)

    def fenced(self, subject: str, data: bytes) -> None:
        if subject.split(".", 2)[1] == "effect" and "._trial." not in subject:
            self._wanted(decode(data, EffectClaim | EffectResult))

    def _wanted(self, record: EffectClaim | EffectResult) -> None:
        if isinstance(record, EffectResult):
            self.settlings[record.result.call].append(record)

    def settled(self, message: Message, how: str) -> None:
        if how == "term":
            self.on_dead(message)
        kind = message.subject.split(".", 2)[1]
        _, leaf = self._topology.parse(message.subject)
        if kind == "call":
            if how == "term":
                self.given_up.add(leaf)
            self.unsettled_calls[leaf].discard(message.seq)
            self.on_settled(parent_of(leaf) or leaf)
            return
        if kind == "code":
            self.unsettled_code[leaf].pop(message.seq, None)
            self.on_settled(leaf)
            return
        chronicle = self.runs[leaf]
        record = chronicle.unsettled.pop(message.seq, None)
        if record is not None:
            _let_go_rightly(chronicle, record, message.seq, how)
            self.on_settled(leaf)

    def reopened(self, message: Message) -> None:
        kind = message.subject.split(".", 2)[1]
        _, leaf = self._topology.parse(message.subject)
        if kind == "call":
            self.unsettled_calls[leaf].add(message.seq)
        elif kind == "code":
            self.unsettled_code[leaf][message.seq] = decode(message.data, CodeCall).id
        else:
            record: Record = decode(message.data, Record)
            self.runs[leaf].unsettled[message.seq] = record.id

    def _appended(self, chronicle: Chronicle, message: Message) -> None:
        entry: Entry = decode(message.data, Entry)
        tags = " ".join(type(event).__name__ for event in entry.events)
        self._trace.note("entry", message.seq, f"{entry.run}#{entry.n}", f"<{entry.cause}>", tags)
        if entry.n != len(chronicle.entries) + 1:
            raise Violation(
                "one journal, no branches",
                f"entry {entry.n} of {entry.run} was stored behind {len(chronicle.entries)} others",
            )
        chronicle.entries.append(entry)
        # The state is folded from the bytes again: nothing is shared with what a worker holds.
        apply_entry(chronicle.run, entry)
        self.on_entry(chronicle, entry)


def _let_go_rightly(chronicle: Chronicle, record: str, seq: int, how: str) -> None:
    """The rule that everything stands on: a record is acked only when the journal accounts for it, or another message
    of the same record is there to be."""
    run = chronicle.run
    is_passed_on = record in chronicle.unsettled.values()
    if record not in run.seen and f"{record}:poisoned" not in run.seen and not is_passed_on:
        raise Violation("a record is acked only once the journal accounts for it", f"{how} of {record} (message {seq})")
    # Another message with the same record keeps the call alive as well.
    if run.model is not None and run.model.cause == record and not is_passed_on:
        raise Violation("the record of a model call in flight stays un-acked", f"{how} of {record} (message {seq})")


def _nobody(chronicle: Chronicle, entry: Entry) -> None:
    """No one wants to know."""


def _nobody_settled(run: str) -> None:
    """No one wants to know."""


def _nobody_dead(message: Message) -> None:
    """No one wants to know."""
