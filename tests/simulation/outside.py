"""People and programs outside of the deployment, who ask for runs, cancel them, and decide about calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from cadre.errors import RetryableError
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import Phase
from cadre.kinds.code.fold import state_of
from cadre.protocol.messages import Addressed, Cancel, Decision, Origin, PersonsRecord, Signal, Task, Verdict
from cadre.protocol.topology import task_id
from simulation.history import Chronicle
from simulation.loop import EPOCH, Process
from simulation.scenario import CancelOrder, Order
from simulation.server import Message
from simulation.steering import begin_words

if TYPE_CHECKING:
    from simulation.world import World


FINAL = 2
"""Number of the decision that is meant to settle the matter."""


class Person:
    """Decides about calls that policy holds back, in their own time, and not always the right way at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._minded: dict[str, None] = {}
        self._asked: dict[str, ev.ApprovalRequested] = {}
        self.gateway: Gateway

    def will_decide(self, about: str) -> bool:
        """Return whether a word on the call, or a signal to the run, is still to be sent with which it can go on."""
        return about in self._minded or any(one.startswith(f"{about}:signal:") for one in self._minded)

    def look(self, chronicle: Chronicle, entry: Entry) -> None:
        """Reads what a run has journaled."""
        for event in entry.events:
            if isinstance(event, ev.ApprovalRequested):
                self._world.trace.counts["held-in-code"] += state_of(chronicle.run).work is not None
                self._make_up_mind(chronicle, event)
                self._asked[event.call] = event
            elif isinstance(event, ev.WaitStarted) and event.signal is not None:
                self._signal_perhaps(chronicle, event, event.signal)
        call, _, turn = entry.cause.partition(":decision:")
        held = any(one.id == call and one.hold is not None for one in chronicle.run.open_calls())
        if turn == str(FINAL) and held:
            # What they made of the call cannot be done at the moment.
            self._minded[call] = None
            asked = self._asked[call]
            self._world.loop.at(1.0, self._say, chronicle, asked, "approved", None, FINAL + 1)

    def _signal_perhaps(self, chronicle: Chronicle, event: ev.WaitStarted, name: str) -> None:
        chance, run = self._world.chance, chronicle.run
        if event.until is not None and chance.random() < 0.4:
            return  # it is never sent
        about = f"{run.id}:signal:{event.name}"
        signal = Signal(id=about, tree=run.tree, run=run.id, at=0.0, name=name, payload={"n": 1})
        self._minded[about] = None
        delay = chance.expovariate(0.2)
        self._world.loop.at(delay, self.gateway.now, signal, run.agent, lambda: self._minded.pop(about, None))

    def _make_up_mind(self, chronicle: Chronicle, event: ev.ApprovalRequested) -> None:
        chance, loop = self._world.chance, self._world.loop
        if event.expires_at is not None and chance.random() < 0.4:
            return  # no one ever looks at it
        delay = chance.expovariate(0.3)
        if chance.random() < 0.2:
            loop.at(delay * chance.random(), self._say, chronicle, event, "corrected", "no such tool", 0)
        if chance.random() < 0.3:
            # Somebody else has another opinion, at about the same time.
            loop.at(delay * chance.uniform(0.9, 1.1), self._say, chronicle, event, *self._opinion(event), 1)
        self._minded[event.call] = None
        loop.at(delay, self._say, chronicle, event, *self._opinion(event), FINAL)

    def _opinion(self, event: ev.ApprovalRequested) -> tuple[Verdict, str | None]:
        chance = self._world.chance
        verdict: Verdict = chance.choice(("approved", "approved", "rejected", "corrected"))
        return verdict, "save" if event.kind == "tool" and verdict == "corrected" else None

    def _say(
        self, chronicle: Chronicle, event: ev.ApprovalRequested, verdict: Verdict, tool: str | None, turn: int
    ) -> None:
        run = chronicle.run
        self._world.trace.note("decision", event.call, verdict, tool or "")
        decision = Decision(
            id=f"{event.call}:decision:{turn}",
            tree=run.tree,
            run=run.id,
            at=0.0,
            call=event.call,
            verdict=verdict,
            tool=tool,
            sender="person",
        )
        self.gateway.now(decision, run.agent, lambda: self._said(event.call, turn))

    def _said(self, call: str, turn: int) -> None:
        if turn >= FINAL:
            self._minded.pop(call, None)


class Gateway:
    """A client that is never killed: it sends until it reads that what it sent is stored."""

    def __init__(self, world: World) -> None:
        from simulation.workers import Connection

        self.process = Process("gateway")
        self._world = world
        self._ports = self.process.context.run(Connection, world, self.process)

    def later(self, delay: float, message: Addressed, to: str) -> None:
        self._world.loop.at(delay, self.now, message, to)

    def now(self, message: Addressed, to: str, done: Callable[[], None] | None = None) -> None:
        self._world.loop.spawn(self.process, self._send(message, to, done))

    async def _send(self, message: Addressed, to: str, done: Callable[[], None] | None) -> None:
        while True:
            try:
                if isinstance(message, PersonsRecord):
                    await self._ports.bus.send_in_order(message, "gateway", to=to)
                else:
                    await self._ports.bus.send(message, "gateway", to=to)
                if done is not None:
                    done()
                return
            except RetryableError:
                await self._ports.clock.sleep(0.2)


def begin_outside(world: World) -> None:
    gateway = world.person.gateway = Gateway(world)
    world.history.on_entry = world.person.look
    world.history.on_dead = functools.partial(_retry_perhaps, world)
    for order in world.scenario.orders:
        task = _task(world, order)
        for turn in range(order.times):
            gateway.later(order.at + turn * world.chance.random(), task, order.agent)
    begin_words(world, gateway)
    for cancel in world.scenario.cancels:
        world.loop.at(cancel.at, _cancel, world, gateway, cancel)


def _retry_perhaps(world: World, message: Message) -> None:
    """An operator may publish a dead letter again, once."""
    if message.retried or world.chance.random() < 0.5:
        return
    stream = world.server.streams[int(message.subject.split(".")[2])]
    again = functools.partial(stream.append, message.subject, message.data, retried=True)
    world.trace.note("retry", message.seq)
    world.loop.at(world.chance.uniform(0.5, 20.0), again)


def _task(world: World, order: Order) -> Task:
    return Task(
        id=task_id(order.run),
        tree=order.run,
        run=order.run,
        at=0.0,
        agent=order.agent,
        task=order.plan.task,
        deadline=EPOCH + order.at + order.seconds if order.seconds is not None else None,
        budget=order.budget,
        origin=Origin(user=order.user) if order.user is not None else None,
    )


def _cancel(world: World, gateway: Gateway, order: CancelOrder) -> None:
    """Of some run of the tree, the root more often than not; it may even overtake its task."""
    runs = [
        chronicle.run
        for name, chronicle in world.history.runs.items()
        if name.split("_")[0] == order.tree and chronicle.run.phase is not Phase.NEW
    ]
    if not runs or order.pick < 0.6:
        run, agent = order.tree, world.scenario.orders[0].agent
    else:
        chosen = runs[int(order.pick * 1000) % len(runs)]
        run, agent = chosen.id, chosen.agent
    world.trace.note("cancel", run)
    cancel = Cancel(id=f"{run}:cancel:user", tree=order.tree, run=run, at=0.0, reason="enough", sender="user")
    gateway.now(cancel, agent)
