"""A kept run as a case to be tried again: its task, what its tools answered, and what came of it."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cadre.errors import CadreError
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import ErrorInfo, RunState, Task
from cadre.tools.context import ToolContext
from cadre.tools.foreign import ForeignTool
from cadre.tools.loading import AnyTool


class NotInHistory(CadreError):
    """A call that the kept run did not make, of a tool that may have an effect."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    state: RunState
    output: Any = None
    error: str = ""
    steps: int = 0
    tokens: int = 0
    """Input and output, of the runs below it as well."""
    cost: float = 0.0
    """In the currency of the price table; 0 without prices."""
    calls: int = 0
    """Calls of tools, of the runs below it as well."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, with all below it."""

    task: Task
    outcome: RunOutcome
    calls: list[tuple[ev.ToolCalled, ev.ToolAnswered]]
    """The calls of tools with their answers, of the runs below it as well."""
    cards: dict[str, ToolCard]
    """The tools that were offered, by name."""
    blobs: Mapping[str, bytes] = {}
    """Contents by their `blob:` references."""
    files: Mapping[str, bytes] = {}
    """The files that it began with, by path."""


def kept_run(
    tree: str,
    journals: Mapping[str, Sequence[Entry]],
    blobs: Mapping[str, bytes],
    files: Mapping[str, bytes],
) -> KeptRun:
    """The case that a tree's journals hold. Raises ValueError for one that has not begun or not ended."""
    entries = journals.get(tree, [])
    task = next((event.task for event in _events(entries) if isinstance(event, ev.RunAccepted)), None)
    end = next((event for event in _events(entries) if isinstance(event, ev.RunFinished)), None)
    if task is None or end is None:
        raise ValueError(f"run {tree} has not ended")
    everything = [event for journal in journals.values() for event in _events(journal)]
    called = {event.call: event for event in everything if isinstance(event, ev.ToolCalled)}
    answered = [one for one in everything if isinstance(one, ev.ToolAnswered) and one.call in called]
    offered = [card for one in everything if isinstance(one, ev.OfferChanged) for card in one.tools]
    return KeptRun(
        task=task,
        outcome=outcome_of(end, len(called)),
        calls=[(called[one.call], one) for one in answered],
        cards={card.name: card for card in offered},
        blobs=blobs,
        files=files,
    )


def outcome_of(end: ev.RunFinished, calls: int) -> RunOutcome:
    """What the end of a run tells, which made so many calls."""
    return RunOutcome(
        state=end.state,
        output=end.output,
        error="" if end.error is None else f"{end.error.type}: {end.error.message}",
        steps=end.steps,
        tokens=end.usage.input_tokens + end.usage.output_tokens,
        cost=end.usage.cost,
        calls=calls,
    )


def tools_from_history(run: KeptRun, tools: Iterable[AnyTool], *, live: bool = True) -> list[AnyTool]:
    """The tools of a team, and those that others offered to the run, answering as they did in it.

    A call that the run did not make goes to the tool itself where that is read-only and `live`; any other raises
    NotInHistory, which the model reads: no effect happens twice, or anew.
    """
    answers: dict[str, dict[bytes, deque[ev.ToolAnswered]]] = defaultdict(lambda: defaultdict(deque))
    for call, answer in run.calls:
        answers[call.tool][_key(call.arguments)].append(answer)
    own = {tool.name: tool for tool in tools}
    cards = {**run.cards, **{name: tool.card for name, tool in own.items()}}
    return [
        _ToolFromHistory(card, answers[name], own.get(name) if live and card.read_only else None, run.blobs)
        for name, card in cards.items()
    ]


class _ToolFromHistory(ForeignTool):
    """A tool that answers a call as it did; the last of several answers again and again."""

    def __init__(
        self,
        card: ToolCard,
        answers: dict[bytes, deque[ev.ToolAnswered]],
        live: AnyTool | None,
        blobs: Mapping[str, bytes],
    ) -> None:
        # Nothing is done that a second try could do twice.
        super().__init__(lambda: None, msgspec.structs.replace(card, read_only=True), None)
        self._answers, self._live, self._blobs = answers, live, blobs

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        if kept := self._answers.get(_key(arguments)):
            answer = kept.popleft() if len(kept) > 1 else kept[0]
            if answer.error is not None:
                raise _KeptError(answer.error)
            return self._whole(answer)
        if self._live is not None:
            return await self._live.call(arguments, context)
        raise NotInHistory(
            f"{self.name} was not called so in the kept run, and may have an effect: it is not called in an evaluation"
        )

    def _whole(self, answer: ev.ToolAnswered) -> Any:
        data = self._blobs.get(answer.blob) if answer.blob is not None else None
        if data is None:
            return answer.output
        return data.decode(errors="replace") if answer.blob_form == "text" else msgspec.json.decode(data)


class _KeptError(CadreError):
    """What the tool said then."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)


def _events(entries: Iterable[Entry]) -> Iterable[Any]:
    return (event for entry in entries for event in entry.events)


def _key(arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(dict(arguments), order="deterministic")
