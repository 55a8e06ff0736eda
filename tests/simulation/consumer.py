"""A durable pull consumer as the server keeps it: what is waiting, delivered, acked, and how often it was tried."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Protocol

from simulation.loop import Loop, Process
from simulation.trace import Trace

if TYPE_CHECKING:
    from simulation.server import Message

ACK_WAIT = 4.0
MAX_DELIVER = 1000
_LATELY = 1.0


class Subscriber(Protocol):
    """A replica's end of the consumer."""

    process: Process

    @property
    def room(self) -> int:
        """Return how many messages it has asked for and not been promised yet."""
        ...

    def wait_for_room(self) -> None:
        """Ask again once there is room: other queues of its process may have taken it."""
        ...

    def promise(self) -> None: ...

    def lost(self) -> None: ...

    def arrive(self, message: Message, deliveries: int) -> None: ...


class Pending:
    """A delivery that no one has settled yet."""

    def __init__(self, heard: float) -> None:
        self.heard = heard
        self.hasty = False
        """Its ack wait ends early, no matter what signs of life come."""


class Host(Protocol):
    """The server that the consumer lives on."""

    @property
    def is_idle(self) -> bool: ...

    def deliver(self, consumer: Consumer, to: Subscriber, message: Message, count: int) -> None: ...

    def settled(self, message: Message, how: str) -> None: ...

    def reopened(self, message: Message) -> None: ...


class Consumer:
    """Delivers each message to one subscriber, until it is acked or given up."""

    def __init__(self, name: str, loop: Loop, chance: random.Random, trace: Trace, host: Host) -> None:
        self.name = name
        self._loop, self._chance, self._trace, self._host = loop, chance, trace, host
        self.subscribers: list[Subscriber] = []
        self.messages: dict[int, Message] = {}
        self.waiting: deque[int] = deque()
        self.pending: dict[int, Pending] = {}
        self.deliveries: dict[int, int] = {}
        self.tried: dict[int, int] = {}
        """True number of deliveries, those that the server has forgotten among them."""
        self.open: dict[int, None] = {}
        """Neither acked nor given up."""
        self._acked_at: dict[int, float] = {}

    def offer(self, message: Message) -> None:
        self.messages[message.seq] = message
        self.open[message.seq] = None
        self.waiting.append(message.seq)
        self.dispatch()

    def dispatch(self) -> None:
        """Delivers for as long as something waits and somebody has room."""
        while self.waiting and not self._host.is_idle:
            able = [one for one in self.subscribers if one.room > 0 and one.process.alive]
            if not able:
                for one in self.subscribers:
                    one.wait_for_room()
                return
            seq = self.waiting.popleft()
            if seq not in self.open or seq in self.pending:
                continue
            count = self.deliveries.get(seq, 0) + 1
            if count > MAX_DELIVER:
                self._trace.note("stranded", self.messages[seq].subject)
                continue
            self.deliveries[seq] = count
            self.tried[seq] = self.tried.get(seq, 0) + 1
            pending = self.pending[seq] = Pending(self._loop.time())
            self._loop.at(ACK_WAIT, self._expire, seq, pending)
            to = able[int(self._chance.random() * len(able))] if len(able) > 1 else able[0]
            to.promise()
            self._host.deliver(self, to, self.messages[seq], count)

    def hasten(self, seq: int) -> None:
        """The wait for this delivery's ack will end early."""
        pending = self.pending[seq]
        pending.hasty = True
        self._loop.at(self._chance.uniform(0.0, 1.0), self._expire, seq, pending)

    def in_progress(self, seq: int) -> None:
        if seq in self.pending:
            self.pending[seq].heard = self._loop.time()

    def ack(self, seq: int) -> None:
        self._settle(seq, "ack")

    def term(self, seq: int) -> None:
        self._settle(seq, "term")

    def nak(self, seq: int, delay: float) -> None:
        """No matter who handed it back, and however long ago it was delivered to them: it comes again."""
        if seq in self.pending:
            pending = self.pending[seq] = Pending(self._loop.time())
            pending.hasty = True
            self._loop.at(delay, self._expire, seq, pending)

    def forget(self) -> None:
        """Forget what a killed server may have lost: its latest deliveries, and the latest acks."""
        now = self._loop.time()
        for seq in list(self.pending):
            if self._chance.random() < 0.5:
                del self.pending[seq]
                self.deliveries[seq] -= 1
                self._again(seq)
        for seq, at in list(self._acked_at.items()):
            if now - at < _LATELY and self._chance.random() < 0.3:
                del self._acked_at[seq]
                self.open[seq] = None
                self._host.reopened(self.messages[seq])
                self.deliveries[seq] -= self._chance.random() < 0.5
                self._again(seq)

    def _settle(self, seq: int, how: str) -> None:
        if seq in self.open:
            del self.open[seq]
            self.pending.pop(seq, None)
            self._acked_at[seq] = self._loop.time()
            self._host.settled(self.messages[seq], how)

    def _expire(self, seq: int, pending: Pending) -> None:
        if self.pending.get(seq) is not pending:
            return
        left = pending.heard + ACK_WAIT - self._loop.time()
        if left > 1e-9 and not pending.hasty:
            self._loop.at(left, self._expire, seq, pending)
            return
        del self.pending[seq]
        self._again(seq)

    def _again(self, seq: int) -> None:
        self.waiting.appendleft(seq)
        self.dispatch()
