"""Answers the calls of a program's runs: by the process that waits for the answer, or by a new life from the record."""

import asyncio
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from cadre.adapters.program.address import ProgramAddress
from cadre.adapters.program.life import Life, LifeAsked, LifeEnded, LifeLost, Word
from cadre.adapters.program.processes import ProgramProcesses
from cadre.adapters.program.record import Record
from cadre.delivery.code_history import with_whole_history
from cadre.delivery.ended_runs import EndedRuns
from cadre.errors import UnreadableMessage
from cadre.ports import Blobs, Clock
from cadre.protocol.code import CodeExchange, CodeReply
from cadre.protocol.deltas import StreamChunk
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, CodeYielded, ErrorInfo
from cadre.protocol.topology import Topology, is_within
from cadre.spec.names import NAME

log = logging.getLogger("cadre.program")

MOST_DEATHS = 5
"""Lives that may die in a row with nothing new asked: more would be no accident."""

Listen = Callable[[str], Awaitable[None]]
"""Called with the id of a run."""

Hear = Callable[[str, Callable[[StreamChunk], None]], Awaitable[Callable[[], Awaitable[None]]]]
"""Called with the id of a run, and with what takes the pieces of its streams; returns what ends that."""


class ProgramTerms(NamedTuple):
    """The terms under which one replica runs a program."""

    instance: str
    """Its name."""
    hold: float
    """Seconds that a process waits for an answer."""
    most: int
    """Processes at once."""
    secret: bytes
    """Of the pool: the chance of a run follows from it."""


class RunLife:
    """The life of a run in this process, and the place in the run's history that it has come to."""

    def __init__(self, life: Life, done: int) -> None:
        self.life = life
        self.done = done
        """Exchanges behind it."""
        self.answer: CodeAnswer | None = None
        """Its last answer; None while it is at work."""
        self.timer: asyncio.TimerHandle | None = None
        self.deaf: Callable[[], Awaitable[None]] | None = None
        """Ends the hearing of its streams."""


class ProgramRunner:
    """Runs the program of an agent for all runs that this process serves (`cadre.runtime.code_calls.CodeAnswerer`).

    Args:
        address: what the processes ask.
    """

    def __init__(self, address: ProgramAddress, blobs: Blobs, clock: Clock, terms: ProgramTerms) -> None:
        self.blobs, self.clock = blobs, clock
        self.processes: ProgramProcesses | None = None
        self.listen: Listen | None = None
        self.forget: Listen | None = None
        self.hear: Hear | None = None
        self._address = address
        self._terms = terms
        self._runs: OrderedDict[str, RunLife] = OrderedDict()
        """The longest unused first."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._ended = EndedRuns()
        self._deaths: dict[str, tuple[int, int]] = {}
        """By run: after how many exchanges, and how often in a row."""
        self._forgetting: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return how many processes wait for an answer."""
        return sum(one.answer is not None for one in self._runs.values())

    @property
    def busy(self) -> int:
        """Return how many processes are at work."""
        return len(self._runs) - self.waiting

    def check(self, call: CodeCall, subject: str, pool: str) -> None:
        """Raise UnreadableMessage for a call of this subject that cannot be served here."""
        if call.pool != pool or (call.tree, call.run) != Topology.parse(subject):
            raise UnreadableMessage(f"a call of run {call.run!r} and pool {call.pool!r} among those of {subject}")
        if not NAME.fullmatch(call.agent):
            raise UnreadableMessage(f"{call.agent!r} is no name of an agent")
        for number, one in enumerate(call.exchanges, call.before):
            if not 0 < len(one.calls) == len(one.replies):
                raise UnreadableMessage(
                    f"exchange {number} has {len(one.calls)} requests and {len(one.replies)} replies"
                )

    async def can_continue(self, call: CodeCall) -> bool:
        """Return True if the process that the call goes on with is here."""
        known = self._runs.get(call.run)
        return known is not None and not known.life.is_over and call.done - known.done in (0, 1)

    def handed_over(self) -> None:
        """Note that another replica has taken a call over."""

    def refused(self, call: CodeCall, error: ErrorInfo) -> CodeFinished:
        """Return the record of a program that is not run to its end."""
        return self._finished(call, error=error)

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        """Run the program up to what it asks next, or to its end; None when nothing waits for it. Raises
        RetryableError, UnreadableMessage."""
        lock = self._locks.setdefault(call.run, asyncio.Lock())
        async with lock:
            try:
                return await self._answer(call)
            finally:
                if call.run not in self._runs and self._locks.get(call.run) is lock:
                    del self._locks[call.run]

    async def _answer(self, call: CodeCall) -> CodeAnswer | None:
        while not self._ended.covers(call.run):
            if call.deadline is not None and self.clock.now() >= call.deadline:
                self._drop(call.run)
                return self.refused(call, ErrorInfo("deadline", "The run's deadline has passed."))
            known = await self._at(call)
            if known is None:
                known = await self._begin(call)
            elif known.answer is not None and known.done == call.done:
                return known.answer
            word = await known.life.word()
            if self._ended.covers(call.run):
                break
            if (answer := self._answer_of(call, known, word)) is not None:
                if self.listen is not None and isinstance(answer, CodeYielded):
                    # Before the answer is sent: what follows from it must find its way back.
                    await self.listen(call.run)
                if isinstance(answer, CodeYielded) and known.life.live is not None:
                    await self._hear(call.run, known)
                return answer
        self._drop(call.run)
        return None

    def _answer_of(self, call: CodeCall, known: RunLife, word: Word) -> CodeAnswer | None:
        """Return the record for what has become of the life; None where another life is to try again."""
        match word:
            case LifeAsked(requests, pause):
                self._deaths.pop(call.run, None)
                known.answer = CodeYielded(
                    **call.place("yielded", self.clock.now()),
                    calls=requests,
                    clock=[pause],
                    sandbox=self._terms.instance,
                )
                self._wait(call.run, known)
                return known.answer
            case LifeEnded(output, error):
                self._deaths.pop(call.run, None)
                self._drop(call.run)
                return self._finished(call, output=output, error=error)
            case LifeLost(why):
                self._drop(call.run)
                done, deaths = self._deaths.get(call.run, (call.done, 0))
                deaths = deaths + 1 if done == call.done else 1
                self._deaths[call.run] = call.done, deaths
                log.warning("program of run %s: %s", call.run, why)
                if deaths < MOST_DEATHS:
                    return None
                del self._deaths[call.run]
                text = f"The program came no further in {deaths} lives: {why}."
                return self._finished(call, error=ErrorInfo("program-failed", text))

    def _finished(self, call: CodeCall, output: object = None, error: ErrorInfo | None = None) -> CodeFinished:
        return CodeFinished(
            **call.place("finished", self.clock.now()),
            output=output,
            is_final_answer=error is None,
            error=error,
            sandbox=self._terms.instance,
        )

    async def _at(self, call: CodeCall) -> RunLife | None:
        """Return the run's life if it is where the call goes on, resumed if it waits for that; None otherwise."""
        known = self._runs.get(call.run)
        if known is None:
            return None
        if known.done == call.done and not known.life.is_lost:
            return known
        last = call.exchanges[-1] if call.exchanges else None
        waits = known.answer is not None and last is not None and known.done + 1 == call.done
        # An end that came in the meantime is this life's last word; a death is not.
        if not waits or last is None or last.calls != known.life.asked or known.life.is_lost:
            self._drop(call.run)
            return None
        replies = [await self._whole(reply) for reply in last.replies]
        if known.timer is not None:
            known.timer.cancel()
        known.done, known.answer = call.done, None
        known.life.resume(replies)
        return known

    async def _begin(self, call: CodeCall) -> RunLife:
        """Begin a life from the whole record of the run."""
        call = await with_whole_history(call, self.blobs)
        exchanges: list[CodeExchange] = []
        for one in call.exchanges:
            exchanges.append(replace(one, replies=[await self._whole(reply) for reply in one.replies]))
        self._make_room()
        life = Life(secrets.token_urlsafe(24), Record(exchanges), call.inputs.get("tools") or [])
        known = self._runs[call.run] = RunLife(life, call.done)
        order = {
            "environment": self._address.add(life),
            "seed": blake2b(call.run.encode(), key=self._terms.secret).hexdigest(),
            "task": call.inputs.get("task", ""),
            "arguments": call.inputs.get("arguments") or {},
        }
        assert self.processes is not None
        try:
            await self.processes.begin(life.token, order)
        except BaseException:
            self._drop(call.run)  # it has no process: the next delivery begins another one
            raise
        return known

    async def _hear(self, run: str, known: RunLife) -> None:
        """Have the pieces of its streams given to the life; each keeps its process for as long as an answer would."""
        if known.deaf is not None or self.hear is None:
            return

        def take(chunk: StreamChunk) -> None:
            known.life.take(chunk)
            if known.timer is not None and known.answer is not None:
                known.timer.cancel()
                self._wait(run, known)

        known.deaf = await self.hear(run, take)

    async def _whole(self, reply: CodeReply) -> CodeReply:
        """Return the reply with what was cut for the journal. Raises BlobMissing, RetryableError."""
        if reply.blob is None or reply.error is not None:
            return reply
        data = (await self.blobs.get(reply.blob)).decode(errors="replace")
        return replace(reply, value=data if reply.blob_form == "text" else json.loads(data), blob=None)

    # --- the end of lives

    def lost(self, token: str, why: str) -> None:
        """Note that the process of a life has ended."""
        for known in self._runs.values():
            if known.life.token == token:
                known.life.end(LifeLost(why))

    def interrupt(self, ended: str) -> None:
        """End all that is done for the run, and for those below it: it is over."""
        self._ended.add(ended)
        for run in [run for run in self._runs if is_within(run, ended)]:
            self._drop(run)

    async def close(self) -> None:
        """End all lives; their runs go on elsewhere."""
        for run in [*self._runs]:
            self._drop(run)
        if self.processes is not None:
            await self.processes.close()

    def _wait(self, run: str, known: RunLife) -> None:
        """Keep the process for a while; behind that only the journal is left of the run."""
        self._runs.move_to_end(run)
        known.timer = asyncio.get_running_loop().call_later(self._terms.hold, self._evict, run, known)

    def _evict(self, run: str, known: RunLife) -> None:
        if self._runs.get(run) is known and known.answer is not None:
            self._drop(run)

    def _make_room(self) -> None:
        while len(self._runs) >= self._terms.most:
            oldest = next((run for run, one in self._runs.items() if one.answer is not None), None)
            if oldest is None:
                return
            log.debug("the process of %s makes room", oldest)
            self._drop(oldest)

    def _drop(self, run: str) -> None:
        """End the run's life here: its token is void at once."""
        known = self._runs.pop(run, None)
        if known is None:
            return
        if known.timer is not None:
            known.timer.cancel()
        self._address.remove(known.life)
        known.life.end(LifeLost("it was ended"))
        if self.processes is not None:
            self.processes.end(known.life.token)
        ends = [self.forget(run)] if self.forget is not None else []
        for end in [*ends, *([known.deaf()] if known.deaf is not None else [])]:
            task = asyncio.ensure_future(end)
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)
