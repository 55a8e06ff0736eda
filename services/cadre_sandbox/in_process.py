"""A pool's interpreters for a test team: the real jail, without a service around it."""

import secrets

from cadre.ports import Blobs, Bus, Clock, QuarantineStore
from cadre.runtime.code_calls import CodeCallHandler
from cadre.testing.in_memory_deployment import CodeRunning
from cadre_sandbox.host import new_sandbox, read_sandbox_settings, start_sandbox
from cadre_sandbox.serving.exchange import AnswerBuilder
from cadre_sandbox.serving.run_block import CodeRunner
from cadre_sandbox.serving.warm_pool import WarmPool

_SECRET = secrets.token_bytes()
"""Of all pools in this process: a sandbox that takes the place of a killed one goes on with it."""


async def start(pool: str, bus: Bus, blobs: Blobs, quarantine: QuarantineStore, clock: Clock) -> CodeRunning:
    """`cadre.testing.in_memory_deployment.StartSandbox`. Raises SetupError where code cannot be run safely."""
    settings = read_sandbox_settings(pool=pool)
    sandbox = new_sandbox(settings)
    tier = await start_sandbox(sandbox)
    warm_pool = WarmPool(sandbox, settings.sessions, settings.idle_seconds, _OneProcess())
    runner = CodeRunner(warm_pool, blobs, AnswerBuilder(blobs, "sandbox", tier), clock, _SECRET)
    handler = CodeCallHandler(runner, bus, quarantine, pool)

    async def close() -> None:
        await warm_pool.close()
        await sandbox.close()

    return CodeRunning(handler.handle, warm_pool.interrupt, close)


class _OneProcess:
    """serving.warm_pool.HandoverListener where no other process runs code."""

    async def listen(self, run: str) -> None:
        return None

    async def forget(self, run: str) -> None:
        return None
