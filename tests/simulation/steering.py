"""Messages and signals of people to running runs: drawn by chance, and read as was promised."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import (
    MessageStep,
    Phase,
    Run,
)
from cadre.kinds.plan.records import PlanState
from cadre.protocol.messages import (
    Cancel,
    Edit,
    MessageMode,
    PersonsRecord,
    Signal,
    Task,
    UserMessage,
)
from simulation.history import Chronicle, Violation
from simulation.kinds.registry import simulated
from simulation.kinds.simulated import SimulatedKind

if TYPE_CHECKING:
    from simulation.outside import Gateway
    from simulation.scenario import Order
    from simulation.world import World

EDITED = "of the edits of one version the first is made"

IN_ORDER = "what people send is taken up in its order"

ENDING = (ev.RunFinished, ev.CancelRequested, ev.RecordIgnored)
"""The end of a run, or of a record, when the record is poison."""

READ = "a message is read once, in its place, with the next model call"


class Word(NamedTuple):
    """Somebody says something to some run of the tree, of those there are at that time, or sends it a signal."""

    tree: str
    agent: str
    at: float
    pick: float
    number: int
    mode: MessageMode | Literal["signal", "edit"]
    times: int


def draw_words(chance: random.Random, orders: Sequence[Order]) -> list[Word]:
    """The words of a seed: none in most, some in others, each sent once or twice."""
    words: list[Word] = []
    for order in orders:
        for _ in range(chance.choice((0, 0, 0, 1, 2, 4))):
            mode: MessageMode | Literal["signal", "edit"] = chance.choice(
                ("append", "append", "next", "interrupt", "interrupt", "signal", "edit", "edit")
            )
            at = order.at + chance.expovariate(0.2)
            times = chance.choice((1, 1, 2))
            words.append(Word(order.run, order.agent, at, chance.random(), len(words), mode, times))
    return words


def begin_words(world: World, gateway: Gateway) -> None:
    """Has all words said when their time has come."""
    for word in world.words:
        world.loop.at(word.at, _say, world, gateway, word)


def _say(world: World, gateway: Gateway, word: Word) -> None:
    runs = [
        chronicle.run
        for name, chronicle in world.history.runs.items()
        if name.split("_")[0] == word.tree and chronicle.run.phase is not Phase.NEW
    ]
    run, agent = word.tree, word.agent
    if runs and word.pick >= 0.3:
        chosen = runs[int(word.pick * 1000) % len(runs)]
        run, agent = chosen.id, chosen.agent
    world.trace.note("word", run, word.mode)
    text = f"word {word.number}"
    record: UserMessage | Signal | Edit
    if word.mode == "edit":
        record = _edit(world, word, run, text)
    elif word.mode == "signal":
        record = Signal(id=f"{run}:signal:{word.number}", tree=word.tree, run=run, at=0.0, name="go")
    else:
        about = f"{run}:message:{word.number}"
        record = UserMessage(id=about, tree=word.tree, run=run, at=0.0, text=text, mode=word.mode)
    for turn in range(word.times):
        gateway.later(turn * world.chance.random(), record, agent)


def _edit(world: World, word: Word, run: str, text: str) -> Edit:
    """Return what somebody who reads the run at this moment would edit."""
    chronicle, chance = world.history.runs.get(run), random.Random(word.pick)
    state = chronicle.run if chronicle is not None and chronicle.run.spec is not None else None
    found = kind_of(state).editable(state) if state is not None else None
    kind = simulated(world.scenario.specs[state.agent]) if state is not None else SimulatedKind()
    return Edit(
        id=f"{run}:edit:{word.number}",
        tree=word.tree,
        run=run,
        at=0.0,
        base=found.version if found is not None else 0,
        operations=[kind.wish(found.state if found is not None else None, text, chance)],
    )


def edits_are_made_once(world: World) -> None:
    """In the order of their versions, none of which is edited twice; all that was made is there."""
    for name, chronicle in world.history.runs.items():
        made = [event for event in chronicle.events if isinstance(event, ev.EditApplied)]
        run: Run = chronicle.run
        bases = [event.base for event in made]
        # No matter what else counts the version up, none is edited twice.
        if bases != (sorted({*bases}) if isinstance(run.own, PlanState) else [*range(len(made))]):
            raise Violation(EDITED, f"{name} was edited at {bases}")
        if made and (found := kind_of(run).editable(run)) is not None and isinstance(found.state, list):
            wanted = [operation["wish"] for event in made for operation in event.operations]
            if found.state != wanted:
                raise Violation(EDITED, f"{name} has {found.state} and should have {wanted}")


def words_are_taken_in_order(world: World) -> None:
    """Check that a run accounts for what people send in the order in which it was stored, even if a worker died with
    it; a cancel may overtake the others, and so may the end by a record that no worker survives. A record that was
    stored twice has two places in that order. A gateway accepts no message to a run whose task is not stored."""
    for name, chronicle in world.history.runs.items():
        stored = [copies for copies in chronicle.records.values() if isinstance(copies[0], Task | PersonsRecord)]
        if any(len(copies) > 1 for copies in stored):
            continue
        began = [isinstance(one, Task) for one, *_ in stored]
        behind = stored[began.index(True) + 1 :] if any(began) else []
        accounted = {entry.cause for entry in chronicle.entries}
        sent = [one.id for one, *_ in behind if not isinstance(one, Cancel) and one.id in accounted]
        taken = [entry.cause for entry in _until_poison(chronicle) if entry.cause in sent]
        if taken != sent[: len(taken)]:
            raise Violation(IN_ORDER, f"{name} took {taken}, and was sent {sent}")


def _until_poison(chronicle: Chronicle) -> list[Entry]:
    """Return the entries before the one with which a poisoned record ended the run, or found its end: behind it the
    run takes nothing up. All entries of a run without such a record."""

    def goes_on(entry: Entry) -> bool:
        record = entry.cause.removesuffix(":condemned").removesuffix(":poisoned")
        of_poison = f"{record}:condemned" in chronicle.records
        return not (of_poison and any(isinstance(event, ENDING) for event in entry.events))

    return list(itertools.takewhile(goes_on, chronicle.entries))


def messages_are_read(world: World) -> None:
    """In every run, in the order in which its journal has them; what no call took along came too late for one."""
    for name, chronicle in world.history.runs.items():
        read, unread = _by_the_journal(chronicle)
        steps = [step.text for step in chronicle.run.steps if isinstance(step, MessageStep)]
        if steps != read:
            raise Violation(READ, f"{name} was to read {read}, and its steps have {steps}")
        result = chronicle.run.result
        answered = result is not None and result.state == "success"
        if answered and unread and kind_of(chronicle.run).guided and not _at_its_last(chronicle):
            raise Violation(READ, f"{name} has answered without {unread}")


def _by_the_journal(chronicle: Chronicle) -> tuple[list[str], list[str]]:
    read: list[str] = []
    unread: list[str] = []
    for event in chronicle.events:
        if isinstance(event, ev.MessageReceived):
            unread.append(event.text)
        elif isinstance(event, ev.ModelCalled):
            read += unread
            unread = []
    return read, unread


def _at_its_last(chronicle: Chronicle) -> bool:
    return chronicle.run.step >= chronicle.run.max_steps
