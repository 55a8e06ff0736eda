"""The service's inner part over a real sandbox, with blobs in memory: code calls in, answers out."""

import asyncio
import os
from typing import Any

from msgspec.structs import replace

from cadre.adapters.nats.server_clock import SystemClock
from cadre.delivery.codec import decode, encode
from cadre.protocol.code import BASE_IMPORTS, CodeExchange, CodeFunction, CodeReply, CodeRequest
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, CodeYielded
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.serving.exchange import AnswerBuilder
from cadre_sandbox.serving.run_block import CodeRunner
from cadre_sandbox.serving.warm_pool import HandoverListener, WarmPool
from harness.memory_ports import MemoryBlobs

LOOK = CodeFunction(name="look", signature="(what: str, times: int = 1) -> str")


class Bench:
    """One process's worth of the service."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        most: int = 8,
        idle: float = 600.0,
        blobs: MemoryBlobs | None = None,
        listener: HandoverListener | None = None,
        secret: bytes = b"of the pool",
    ) -> None:
        self.sandbox = sandbox
        self.blobs = blobs or MemoryBlobs()
        self.warm_pool = WarmPool(sandbox, most, idle, listener)
        self.runner = CodeRunner(
            self.warm_pool, self.blobs, AnswerBuilder(self.blobs, "here", sandbox.tier), SystemClock(), secret
        )

    async def ask(self, call: CodeCall) -> CodeAnswer | None:
        """As it comes over the bus and goes back over it."""
        answer = await self.runner.answer(decode(encode(call), CodeCall))
        return decode(encode(answer), CodeYielded | CodeFinished) if answer else None

    async def yielded(self, call: CodeCall) -> CodeYielded:
        answer = await self.ask(call)
        assert isinstance(answer, CodeYielded), answer
        return answer

    async def finished(self, call: CodeCall) -> CodeFinished:
        answer = await self.ask(call)
        assert isinstance(answer, CodeFinished), answer
        return answer

    async def pid(self, run: str) -> int | None:
        """Of the interpreter that is kept for the run."""
        async with self.warm_pool.lease(run) as interpreter:
            return interpreter.session.pid if interpreter.session else None


def block(code: str, *, run: str = "r", step: int = 1, **more: Any) -> CodeCall:
    more = {"functions": [LOOK], "imports": BASE_IMPORTS, **more}
    return CodeCall(
        id=f"{run}_{step}_0:0",
        tree=run.partition("_")[0],
        run=run,
        at=0.0,
        agent="coder",
        pool="default",
        block=f"{run}_{step}_0",
        code=code,
        **more,
    )


def after(call: CodeCall, finished: CodeFinished, code: str, **more: Any) -> CodeCall:
    """The next block of the run."""
    step = int(call.block.split("_")[-2]) + 1
    return block(code, run=call.run, step=step, snapshot=finished.snapshot, **more)


def reply(call: CodeCall, yielded: CodeYielded, *values: Any) -> CodeCall:
    """The same block, with what the calls came to."""
    return exchange(call, yielded.calls, [CodeReply(value=value) for value in values], yielded.clock)


def exchange(call: CodeCall, calls: list[CodeRequest], replies: list[CodeReply], clock: list[float]) -> CodeCall:
    exchanges = [*call.exchanges, CodeExchange(calls=calls, replies=replies, clock=clock)]
    return replace(call, id=f"{call.block}:{len(exchanges)}", exchanges=exchanges)


def death(pid: int) -> asyncio.Future[None]:
    """Done when the process has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    handle = os.pidfd_open(pid)

    def tell() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        ended.set_result(None)

    loop.add_reader(handle, tell)
    return ended
