"""A server in memory with JetStream's contract: streams, fences, durable consumers, schedules, a dedupe window."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

from cadre.errors import Fenced
from simulation.consumer import ACK_WAIT, Consumer, Subscriber
from simulation.loop import EPOCH, Loop
from simulation.trace import Trace

TICK = 0.25
"""Seconds between the server's looks at its schedules."""

__all__ = ["ACK_WAIT", "Consumer", "Message", "Server", "Stream", "Watch"]


WINDOWS = (0.0, 0.5, 5.0, 120.0)
"""Seconds for which a server knows the ids of messages; the last are those of a real stream."""


class Message(NamedTuple):
    seq: int
    subject: str
    data: bytes
    at: float
    retried: bool = False
    """It was a dead letter, and an operator published it again."""
    origin: int = 0
    """The queue in which it lay first, if it was passed on to another queue."""


class Schedule(NamedTuple):
    due: float
    target: str
    data: bytes


class Watch(Protocol):
    """Called for everything that the server takes in, at the moment it does."""

    def stored(self, message: Message) -> None: ...

    def fenced(self, subject: str, data: bytes) -> None: ...

    def settled(self, message: Message, how: str) -> None: ...

    def reopened(self, message: Message) -> None: ...


class Stream:
    """One shard: its messages in one order, and anyone who consumes them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.messages: dict[int, Message] = {}
        self.by_subject: dict[str, list[int]] = {}
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.schedules: dict[str, Schedule] = {}
        self._known: dict[str, tuple[float, int]] = {}

    def append(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        message_id: str | None = None,
        retried: bool = False,
        origin: int = 0,
    ) -> int:
        """Stores a message and returns its sequence. Raises Fenced unless `expect` is the subject's last one."""
        now = self._server.loop.time()
        if message_id is not None:
            at, seq = self._known.get(message_id, (-1e9, 0))
            if now - at < self._server.window:
                self._server.trace.note("duplicate", message_id, seq)
                return seq
        seqs = self.by_subject.setdefault(subject, [])
        if expect is not None and expect != (seqs[-1] if seqs else 0):
            self._server.trace.note("fenced", subject)
            self._server.watch.fenced(subject, data)
            raise Fenced(subject)
        seq = len(self.messages) + 1
        message = self.messages[seq] = Message(seq, subject, data, now, retried, origin)
        seqs.append(seq)
        if origin:
            self._server.trace.counts["passed-on"] += 1
        if message_id is not None:
            self._known[message_id] = (now, seq)
        self._server.watch.stored(message)
        kind, name = subject.split(".")[1:4:2]
        if kind in ("in", "call", "code"):
            self.consumer(kind, name).offer(message)
        return seq

    def last(self, subject: str) -> Message | None:
        """As the leader has it: never stale."""
        seqs = self.by_subject.get(subject)
        return self.messages[seqs[-1]] if seqs else None

    def purge(self, subject: str) -> None:
        self.by_subject.pop(subject, None)

    def consumer(self, kind: str, name: str) -> Consumer:
        """The durable consumer of an agent's inbox (`in`), a tool's calls (`call`) or a pool's code (`code`)."""
        found = self.consumers.get((kind, name))
        if found is None:
            server = self._server
            found = Consumer(name, server.loop, server.chance, server.trace, server)
            self.consumers[kind, name] = found
        return found

    # --- schedules

    def schedule(self, subject: str, due: float, target: str, data: bytes) -> None:
        """Replaces what is scheduled under the subject; `due` in Unix seconds."""
        due -= EPOCH
        one = self.schedules[subject] = Schedule(due, target, data)
        loop = self._server.loop
        ticks = int(max(0.0, due - loop.time()) / TICK) + 1
        loop.at(ticks * TICK * self._server.chance.uniform(0.9, 1.0) + 0.001, self._go_off, subject, one)

    def unschedule(self, subject: str) -> None:
        self.schedules.pop(subject, None)

    def _go_off(self, subject: str, one: Schedule) -> None:
        if self.schedules.get(subject) is not one:
            return
        if self._server.loop.time() < one.due or self._server.is_idle:
            self._server.loop.at(TICK, self._go_off, subject, one)
            return
        # Headers do not survive a schedule: no dedupe.
        self._server.trace.note("timer", subject)
        self.append(one.target, one.data)
        del self.schedules[subject]

    def forget(self) -> None:
        """Forget what a killed server has lost."""
        self._known.clear()
        for consumer in self.consumers.values():
            consumer.forget()


class Server:
    """All streams of a deployment."""

    def __init__(self, loop: Loop, chance: random.Random, trace: Trace, watch: Watch) -> None:
        self.loop, self.chance, self.trace, self.watch = loop, chance, trace, watch
        self.streams: list[Stream] = []
        self.window = chance.choice(WINDOWS)
        """Seconds that a message id is remembered."""
        self.down_until = self.paused_until = 0.0
        self.post: Callable[[Consumer, Subscriber, Message, int], None]
        """Puts a delivery on its way."""

    def open(self, shards: int) -> None:
        self.streams = [Stream(self) for _ in range(shards)]

    @property
    def is_down(self) -> bool:
        return self.loop.time() < self.down_until

    @property
    def pause_left(self) -> float:
        """Seconds until it goes on; 0 while it is at work."""
        return max(0.0, self.paused_until - self.loop.time())

    @property
    def is_idle(self) -> bool:
        """It delivers nothing at this moment."""
        return self.is_down or self.pause_left > 0

    def pause(self, seconds: float) -> None:
        """Messages that arrive meanwhile wait, and are handled in their order afterwards."""
        self.paused_until = self.loop.time() + seconds
        self.trace.note("paused", f"until {self.paused_until:.3f}")
        self.loop.at(seconds + 1e-6, self._up_again)

    def restart(self) -> None:
        """Killed and started again: what was acknowledged is there, deliveries and acks of late may not be."""
        self.down_until = self.loop.time() + self.chance.uniform(0.05, 2.0)
        self.trace.note("server", f"down until {self.down_until:.3f}")
        for stream in self.streams:
            stream.forget()
        self.loop.at(self.down_until - self.loop.time() + 1e-6, self._up_again)

    def _up_again(self) -> None:
        for stream in self.streams:
            for consumer in stream.consumers.values():
                consumer.dispatch()

    # --- consumer.Host

    def deliver(self, consumer: Consumer, to: Subscriber, message: Message, count: int) -> None:
        self.post(consumer, to, message, count)

    def settled(self, message: Message, how: str) -> None:
        self.trace.note(how, message.seq, message.subject)
        self.watch.settled(message, how)

    def reopened(self, message: Message) -> None:
        self.trace.note("ack-forgotten", message.seq, message.subject)
        self.watch.reopened(message)
