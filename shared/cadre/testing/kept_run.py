"""A kept run as a case to try again: its task, its tools' answers, and its outcome."""

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.events import SignalReceived
from cadre.protocol.cards import ToolCard
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import ErrorInfo, RunState, Task
from cadre.tools.context import ToolContext
from cadre.tools.decorator import FailedAs
from cadre.tools.foreign import ForeignTool
from cadre.tools.loading import AnyTool

Policy = Literal["history", "live", "refuse"]
"""The treatment of a tool's calls when its run is tried again: `history` answers those that were made then, and no
other; `live` makes them, if the tool is read-only; `refuse` answers none. A tool without a policy has `history`, and
what was not called then is called if it is read-only."""


"""The type of the error of a call that is not answered: the kept run did not make it and it may have an effect, or its
policy says so."""


_RECALL = ToolCard(name=RECALL, description="Recalls earlier work.", input_schema={"type": "object"}, read_only=True)


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

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


class Reached(msgspec.Struct, frozen=True, order=True):
    """The progress of a run: a lesser one is an earlier one."""

    steps: int
    """Finished ones."""
    answers: int = 0
    """Of its model, since then."""
    results: int = 0
    """Of its calls, since then."""


Act = ev.MessageReceived | ev.EditApplied
"""An action of a person on a run while it went on."""


class Delegation(NamedTuple):
    """A delegation of a run: the first to this member has number 0."""

    member: str
    number: int


Below = tuple[Delegation, ...]
"""The way from a run to one below it; empty for the run itself."""


class KeptAct(NamedTuple):
    """An action on a run, or on one below it, when that was so far."""

    below: Below
    after: Reached
    act: Act


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, with all below it; or a task that was written down."""

    task: Task
    outcome: RunOutcome | None
    """None for a task of which only what is asked is known."""
    calls: list[tuple[ev.ToolCalled, ev.ToolAnswered]] = []
    """The calls of tools with their answers, of the runs below it as well."""
    decisions: list[tuple[ev.ApprovalRequested, ev.ApprovalDecided]] = []
    """The calls that waited for a person, with the word of that person, of the runs below it as well."""
    signals: list[tuple[Below, SignalReceived]] = []
    """The signals that came from outside for the run, or one below it, to wait for."""
    acts: list[KeptAct] = []
    """The messages of people to the run and those below it, and their edits."""
    cards: dict[str, ToolCard] = {}
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
    """The case that a tree's journals hold. Raises ValueError for one that cannot be tried again."""
    entries = journals.get(tree, [])
    accepted = next((event for event in _events(entries) if isinstance(event, ev.RunAccepted)), None)
    end = next((event for event in _events(entries) if isinstance(event, ev.RunFinished)), None)
    if accepted is None or end is None:
        raise ValueError(f"run {tree} has not ended")
    if accepted.history or accepted.prefix:
        raise ValueError(f"run {tree} goes on from another one, which the file does not hold")
    ways = _ways(tree, journals)
    for run, journal in journals.items():
        if run not in ways and any(isinstance(event, Act | SignalReceived) for event in _events(journal)):
            raise ValueError(f"people spoke to run {run}, or edited it, and the file does not tell who began that")
    everything = [event for journal in journals.values() for event in _events(journal)]
    called = {event.call: event for event in everything if isinstance(event, ev.ToolCalled)}
    answered = [one for one in everything if isinstance(one, ev.ToolAnswered) and one.call in called]
    asked = {event.call: event for event in everything if isinstance(event, ev.ApprovalRequested)}
    decided = [one for one in everything if isinstance(one, ev.ApprovalDecided) and one.call in asked]
    offered = [card for one in everything if isinstance(one, ev.ToolsetChanged) for card in one.tools]
    return KeptRun(
        task=accepted.task,
        outcome=outcome_of(end, len(called)),
        calls=[*((called[one.call], one) for one in answered), *_recalled(everything)],
        decisions=[(asked[one.call], one) for one in decided],
        acts=[act for run, below in ways.items() for act in _acts(below, journals.get(run, []))],
        signals=[
            (below, event)
            for run, below in ways.items()
            for event in _events(journals.get(run, []))
            if isinstance(event, SignalReceived)
        ],
        cards={card.name: card for card in offered},
        blobs=blobs,
        files=files,
    )


def reached(events: Iterable[ev.AnyEvent]) -> Reached:
    """Return how far these events brought a run."""
    steps = answers = results = 0
    for event in events:
        match event:
            case ev.StepFinished():
                steps, answers, results = steps + 1, 0, 0
            case ev.ModelAnswered():
                answers += 1
            case ev.ToolAnswered() | ev.DelegateFinished():
                results += 1
            case _:
                pass
    return Reached(steps, answers, results)


def delegations(events: Iterable[ev.AnyEvent]) -> dict[Delegation, str]:
    """The ids of the runs below that these events of a run have begun."""
    found, many = dict[Delegation, str](), Counter[str]()
    for event in events:
        if isinstance(event, ev.DelegateStarted):
            found[Delegation(event.member, many[event.member])] = event.call
            many[event.member] += 1
    return found


def _ways(tree: str, journals: Mapping[str, Sequence[Entry]]) -> dict[str, Below]:
    """The ways from the first run to all, by their ids."""
    found: dict[str, Below] = {tree: ()}
    left = [tree]
    while left:
        run = left.pop()
        for one, call in delegations(_events(journals.get(run, []))).items():
            found[call] = (*found[run], one)
            left.append(call)
    return found


def _acts(below: Below, entries: Iterable[Entry]) -> list[KeptAct]:
    """Of a message only the steps count: it is read with the next call of the model, whenever it came."""
    events, found = list(_events(entries)), list[KeptAct]()
    for place, event in enumerate(events):
        if isinstance(event, Act):
            before = reached(events[:place])
            after = Reached(before.steps) if isinstance(event, ev.MessageReceived) else before
            found.append(KeptAct(below, after, event))
    return found


def _recalled(events: Sequence[Any]) -> Iterable[tuple[ev.ToolCalled, ev.ToolAnswered]]:
    """Yield the earlier work that runs recalled as they began, as the calls that they make of the memory service for
    it.
    """
    asked = {event.call: event for event in events if isinstance(event, ev.MemoryAsked)}
    for one in events:
        if isinstance(one, ev.MemoryRecalled) and (question := asked.get(one.call)) is not None:
            arguments = {"query": question.query, "k": question.count}
            found = {
                "hits": msgspec.to_builtins(one.memories),
                "degraded": bool(one.degraded),
                "why": one.degraded,
            }
            yield (
                ev.ToolCalled(call=one.call, tool=RECALL, arguments=arguments),
                ev.ToolAnswered(call=one.call, tool=RECALL, output=found, error=one.error),
            )


def outcome_of(end: ev.RunFinished, calls: int) -> RunOutcome:
    """Return the outcome that the end of a run gives, with its number of calls."""
    return RunOutcome(
        state=end.state,
        output=end.output,
        error="" if end.error is None else f"{end.error.type}: {end.error.message}",
        steps=end.steps,
        tokens=end.usage.input_tokens + end.usage.output_tokens,
        cost=end.usage.cost,
        calls=calls,
    )


async def _at_once() -> None:
    """Hold nothing back."""


def tools_from_history(
    run: KeptRun,
    tools: Iterable[AnyTool],
    policies: Mapping[str, Policy] = MappingProxyType({}),
    turn: Callable[[], Awaitable[None]] = _at_once,
) -> list[AnyTool]:
    """The tools of a team, and those that others offered to the run, answering as they did in it.

    `policies` are by name, `*` for all that are not named. A call that is not answered fails, and the model reads why:
    no effect happens twice, or for the first time. `turn` is awaited before each answer.
    """
    answers: dict[str, dict[bytes, deque[ev.ToolAnswered]]] = defaultdict(lambda: defaultdict(deque))
    for call, answer in run.calls:
        answers[call.tool][call_key(call.arguments)].append(answer)
    own = {tool.name: tool for tool in tools}
    cards = {**run.cards, **{name: tool.card for name, tool in own.items()}}
    if RECALL in answers:
        cards.setdefault(RECALL, _RECALL)
    found: list[AnyTool] = []
    for name, card in cards.items():
        live, policy = own.get(name) if card.read_only else None, policies.get(name, policies.get("*"))
        if policy == "refuse" or (policy == "live" and live is not None):
            answers[name].clear()
        if policy in ("refuse", "history"):
            live = None
        found.append(_ToolFromHistory(card, answers[name], live, run.blobs, turn))
    return found


class _ToolFromHistory(ForeignTool):
    """A tool that answers a call as it did; the last of several answers again and again."""

    def __init__(
        self,
        card: ToolCard,
        answers: dict[bytes, deque[ev.ToolAnswered]],
        live: AnyTool | None,
        blobs: Mapping[str, bytes],
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        # Nothing is done that a second try could do twice.
        super().__init__(lambda: None, msgspec.structs.replace(card, read_only=True), None)
        self._answers, self._live, self._blobs, self._turn = answers, live, blobs, turn

    async def call(self, arguments: dict[str, Any], context: ToolContext | None = None) -> Any:
        context = ToolContext() if context is None else context
        await self._turn()
        if kept := self._answers.get(call_key(arguments)):
            answer = kept.popleft() if len(kept) > 1 else kept[0]
            if answer.error is not None:
                raise FailedAs(answer.error)
            return self._whole(answer)
        if self._live is not None:
            return await self._live.call(arguments, context)
        why = f"{self.name} is not called in an evaluation, and the kept run has no answer to this call"
        raise FailedAs(ErrorInfo("not-called", why))

    def _whole(self, answer: ev.ToolAnswered) -> Any:
        data = self._blobs.get(answer.blob) if answer.blob is not None else None
        if data is None:
            return answer.output
        return data.decode(errors="replace") if answer.blob_form == "text" else msgspec.json.decode(data)


def call_key(arguments: Mapping[str, Any]) -> bytes:
    """Return what two calls with the same arguments have in common."""
    return msgspec.json.encode(dict(arguments), order="deterministic")


def _events(entries: Iterable[Entry]) -> Iterable[Any]:
    return (event for entry in entries for event in entry.events)
