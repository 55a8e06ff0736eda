"""Ends the calls of one agent that wait in the queue of something that is away, once `limits.away` has passed.

Whether a call is made never hangs on who is live: it lies in a durable queue. How long its run waits does. The queues
themselves say which calls wait, so nothing is kept for that, it costs nothing while everything is served, and it goes
on after a restart. The end of a call is a timer of its run like any other: one that was answered meanwhile ignores it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from cadre.engine.commands import Revoke, Send
from cadre.engine.timers import away_timer, fired
from cadre.errors import CadreError
from cadre.loop.owed import owed
from cadre.ports import Bus, CallQueue, Clock, Journal, QueuedCalls, QueuedMessage
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.protocol.messages import CodeCall, ErrorInfo, Task, ToolCall, ToolResult, call_of_round
from cadre.protocol.topology import parent_of, result_id
from cadre.runtime.run_cache import read_run

log = logging.getLogger("cadre.agent")

_SHORTEST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0

Absences = Callable[[], Mapping[CallQueue, float]]
"""Returns the queues that the agent's calls may wait in and that nothing serves, with the time since when (Unix
seconds; 0 where nothing ever has)."""


class AwayBound(NamedTuple):
    """The owner of bounded calls, and the bound."""

    agent: str
    seconds: float
    shards: Callable[[], int]
    """Returns the number of shards now."""


class AwayCalls:
    """Looks through the queues of what is away, for as long as something is."""

    def __init__(
        self,
        bound: AwayBound,
        absences: Absences,
        queued: QueuedCalls,
        journal: Journal,
        bus: Bus,
        clock: Clock,
    ) -> None:
        self._bound = bound
        self._absences = absences
        self._queued = queued
        self._journal = journal
        self._bus = bus
        self._clock = clock
        self._began = clock.now()
        """Start of the watch: an earlier absence counts from here, since it may have ended unheard before."""
        self._done: dict[tuple[CallQueue, int], int] = {}
        """The sequence up to which each queue that is away was looked through, by its shard."""

    async def look_after(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Work until cancelled; `changed` returns when something has come or gone."""
        pause = min(max(self._bound.seconds / 10, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        while True:
            absences = self._absences()
            self._done = {place: seq for place, seq in self._done.items() if place[0] in absences}
            if not absences:
                await changed()
                continue
            try:
                await self.look(absences)
            except CadreError as error:
                log.warning("%s: calls that wait for what is away: %s", self._bound.agent, error)
            await self._clock.sleep(pause)

    async def look(self, absences: Mapping[CallQueue, float]) -> None:
        """End the calls that have waited for too long in these queues. Raises RetryableError, TerminalError."""
        for queue, since in absences.items():
            begun = max(since, self._began)
            if begun + self._bound.seconds > self._clock.now():
                continue
            for shard in range(self._bound.shards()):
                await self._look_through(queue, shard)

    async def _look_through(self, queue: CallQueue, shard: int) -> None:
        place = queue, shard
        while found := await self._queued.behind(queue, shard, self._done.get(place, 0)):
            for message in found:
                if message.at + self._bound.seconds > self._clock.now():
                    return
                await self._end(queue, message)
                self._done[place] = message.seq

    async def _end(self, queue: CallQueue, message: QueuedMessage) -> None:
        """End one call, if its run waits for it still."""
        run_id = message.leaf if queue.kind == "sandbox" else parent_of(call_of_round(message.leaf))
        if run_id is None:
            return
        run = await read_run(self._journal, run_id)
        if run.agent != self._bound.agent or run.recalling is not None:
            return
        awaited = next(filter(None, (_awaited(command, queue, message.leaf) for command in owed(run))), None)
        if awaited is None:
            return
        begun = isinstance(awaited, ToolCall) and not await self._revoke(awaited, message.at)
        about = awaited.block if isinstance(awaited, CodeCall) else message.leaf
        timer = fired(run, away_timer(about, begun=begun), self._clock.now())
        await self._bus.schedule(timer, run.agent, timer.at)
        log.info("%s: %s is away, and %s waits no longer", run.id, queue.name, about)

    async def _revoke(self, call: ToolCall, at: float) -> bool:
        """Keep the call from being begun; returns whether it certainly was not."""
        if call.tool in MEMORY_TOOLS:
            return False  # it keeps no account of what it has begun
        result = ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=at,
            call=call.id,
            tool=call.tool,
            error=ErrorInfo("away", "not begun: its executor was away"),
        )
        return await self._bus.revoke(Revoke(result).effect(self._bound.agent))


def _awaited(command: object, queue: CallQueue, leaf: str) -> ToolCall | Task | CodeCall | None:
    """Return what the run owes if that is the message in the queue and an answer is awaited."""
    match command:
        case Send(message=ToolCall(id=id, tool=queue.name, reply=True) as call) if id == leaf:
            return call
        case Send(message=Task(run=run) as task) if queue.kind == "agent" and run == leaf:
            return task
        case Send(message=CodeCall(pool=queue.name) as code) if queue.kind == "sandbox":
            return code
        case _:
            return None
