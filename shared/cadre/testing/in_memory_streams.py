"""A stream in memory with JetStream's contract: fences, deduplication, schedules, durable consumers."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from cadre.errors import Fenced


class AlarmClock(Protocol):
    """A clock that calls back; times in Unix seconds."""

    def now(self) -> float: ...

    def at(self, due: float, callback: Callable[[], None]) -> int:
        """Call back at `due`; the number that is returned cancels that."""
        ...

    def cancel(self, number: int) -> None: ...


class StreamMessage(NamedTuple):
    """A message of a stream."""

    seq: int
    subject: str
    data: bytes
    origin: int = 0
    """The place where it lay first, if it was passed on."""


class Subscriber(Protocol):
    """A process's end of a consumer."""

    def arrive(self, message: StreamMessage, deliveries: int) -> None: ...


class InMemoryConsumer:
    """Delivers each message to one subscriber at a time, in turn, until it is settled."""

    def __init__(self, clock: AlarmClock) -> None:
        self._clock = clock
        self._waiting: deque[StreamMessage] = deque()
        self._subscribers: deque[Subscriber] = deque()
        self._held: dict[int, tuple[StreamMessage, Subscriber]] = {}
        self._deliveries: dict[int, int] = {}

    def offer(self, message: StreamMessage) -> None:
        self._waiting.append(message)
        self._dispatch()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        self._dispatch()

    def leave(self, subscriber: Subscriber) -> None:
        """Have what the subscriber holds delivered to others, or to the one that takes its place."""
        self._subscribers.remove(subscriber)
        for message, holder in list(self._held.values()):
            if holder is subscriber:
                self._again(message.seq)
        self._dispatch()

    def settle(self, seq: int) -> None:
        """The message is done with: it is not delivered again."""
        self._held.pop(seq, None)

    def nak(self, seq: int, delay: float) -> None:
        """Deliver the message again in `delay` seconds."""
        if seq in self._held:
            self._clock.at(self._clock.now() + delay, lambda: self._redeliver(seq))

    def _redeliver(self, seq: int) -> None:
        self._again(seq)
        self._dispatch()

    def _again(self, seq: int) -> None:
        if (held := self._held.pop(seq, None)) is not None:
            self._waiting.append(held[0])

    def _dispatch(self) -> None:
        while self._waiting and self._subscribers:
            message, subscriber = self._waiting.popleft(), self._subscribers[0]
            self._subscribers.rotate(-1)
            self._held[message.seq] = (message, subscriber)
            count = self._deliveries[message.seq] = self._deliveries.get(message.seq, 0) + 1
            subscriber.arrive(message, count)


class GivenUp(NamedTuple):
    """A message that was given up, and why."""

    message: StreamMessage
    reason: str


class InMemoryStream:
    """The one stream of a deployment in memory; `in_memory_ports.Stream` says what its methods do."""

    def __init__(self, clock: AlarmClock) -> None:
        self._clock = clock
        self.messages: dict[int, StreamMessage] = {}
        self.dead: list[GivenUp] = []
        self._subjects: dict[str, list[int]] = {}
        self._known: dict[str, int] = {}
        self.scheduled: dict[str, int] = {}
        """The alarm of each subject under which something is scheduled."""
        self._consumers: dict[tuple[str, str], InMemoryConsumer] = {}

    def append(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        message_id: str | None = None,
        origin: int = 0,
    ) -> int:
        if message_id is not None and message_id in self._known:
            return self._known[message_id]
        seqs = self._subjects.setdefault(subject, [])
        if expect is not None and expect != (seqs[-1] if seqs else 0):
            raise Fenced(subject)
        seq = len(self.messages) + 1
        message = self.messages[seq] = StreamMessage(seq, subject, data, origin)
        seqs.append(seq)
        if message_id is not None:
            self._known[message_id] = seq
        kind, name = subject.split(".")[1:4:2]
        if kind in ("in", "call", "code"):
            self.consumer(kind, name).offer(message)
        return seq

    def last(self, subject: str) -> StreamMessage | None:
        seqs = self._subjects.get(subject)
        return self.messages[seqs[-1]] if seqs else None

    def of_subject(self, subject: str) -> list[StreamMessage]:
        """All messages of the subject, in their order."""
        return [self.messages[seq] for seq in self._subjects.get(subject, [])]

    def subjects(self, chosen: Callable[[str], bool]) -> list[str]:
        """The subjects that are chosen, in the order of their first messages."""
        return [subject for subject in self._subjects if chosen(subject)]

    def purge(self, subject: str) -> None:
        self._subjects.pop(subject, None)

    def schedule(self, subject: str, due: float, target: str, data: bytes) -> None:
        self.unschedule(subject)
        self.scheduled[subject] = self._clock.at(due, lambda: self._go_off(subject, target, data))

    def unschedule(self, subject: str) -> None:
        if (number := self.scheduled.pop(subject, None)) is not None:
            self._clock.cancel(number)

    def _go_off(self, subject: str, target: str, data: bytes) -> None:
        del self.scheduled[subject]
        self.append(target, data)

    def consumer(self, kind: str, name: str) -> InMemoryConsumer:
        """The durable consumer of an agent's inbox (`in`), a tool's calls (`call`) or a pool's code (`code`)."""
        if (kind, name) not in self._consumers:
            self._consumers[kind, name] = InMemoryConsumer(self._clock)
        return self._consumers[kind, name]
