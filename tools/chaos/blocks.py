"""The rules for code: each block has one outcome, and a sandbox that runs it again gets what the journal has."""

from collections.abc import Iterator

from cadre.journal import events as ev
from cadre.kinds.code.records import BlockFinished, BlockStarted, BlockYielded
from cadre.protocol.messages import CodeCall
from cadre.protocol.topology import call_id
from chaos.evidence import Evidence
from chaos.journals import events_of

Asked = list[tuple[str, dict[str, object]]]


class _Block:
    """A block as its run's journal has it."""

    def __init__(self, run: str, started: BlockStarted) -> None:
        self.run, self.code = run, started.code
        self.exchanges: list[tuple[Asked, list[str]]] = []
        """Calls and their ids."""
        self.ends: list[BlockFinished] = []
        self.snapshot: str | None = None
        """Of the variables that it began with."""
        self._step, self._calls = int(started.block.rpartition(":")[2]), 0

    def yielded(self, event: BlockYielded) -> None:
        asked: Asked = [(call.name, call.arguments) for call in event.calls]
        places = range(self._calls, self._calls + len(asked))
        self.exchanges.append((asked, [call_id(self.run, self._step, place) for place in places]))
        self._calls += len(asked)


def violations(evidence: Evidence) -> Iterator[str]:
    blocks: dict[str, _Block] = {}
    outputs: dict[str, object] = {}
    for run, journal in evidence.journals.items():
        yield from _read(run, events_of(journal), blocks)
        outputs |= {
            event.call: event.output if event.error is None else None
            for event in events_of(journal)
            if isinstance(event, ev.ToolAnswered)
        }
    for name, block in blocks.items():
        if len(block.ends) != 1:
            yield f"block {name} has {len(block.ends)} outcomes"
        for end in block.ends:
            if end.error is not None:
                yield f"block {name} failed: {end.error.message}"
    for call in evidence.code:
        if call.block not in blocks:
            yield f"a sandbox was asked for block {call.block}, which nobody began"
        elif problem := _untrue(call, blocks[call.block], outputs):
            yield f"code call {call.id} {problem}"


def _read(run: str, events: list[ev.AnyEvent], blocks: dict[str, _Block]) -> Iterator[str]:
    left: str | None = None
    for event in events:
        if isinstance(event, BlockStarted):
            blocks[event.block] = _Block(run, event)
            blocks[event.block].snapshot = left
        if isinstance(event, BlockYielded | BlockFinished):
            block = blocks.get(event.block)
            if block is None or event.exchange != len(block.exchanges) or block.ends:
                yield f"block {event.block} has an answer to its exchange {event.exchange} out of order"
            elif isinstance(event, BlockYielded):
                block.yielded(event)
            else:
                block.ends.append(event)
                left = event.snapshot


def _untrue(call: CodeCall, block: _Block, outputs: dict[str, object]) -> str | None:
    """Return what a sandbox was sent that is not so."""
    if (call.code, call.snapshot) != (block.code, block.snapshot):
        return "is about other code or other variables than its run's journal"
    if len(call.exchanges) > len(block.exchanges):
        return f"knows of {len(call.exchanges)} exchanges, the journal of {len(block.exchanges)}"
    for number, (known, (asked, ids)) in enumerate(zip(call.exchanges, block.exchanges, strict=False)):
        if [(one.name, one.arguments) for one in known.calls] != asked:
            return f"has other calls in exchange {number} than the journal"
        wanted = [outputs.get(one) for one in ids]
        if [one.value if one.error is None else None for one in known.replies] != wanted:
            return f"has other replies in exchange {number} than the journal"
    return None
