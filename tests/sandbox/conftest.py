"""One sandbox for a module's tests, and an interpreter or the service's inner part for each test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from sandbox.service_bench import Bench
from sandbox.worlds import World, worlds


@pytest.fixture(scope="module", params=worlds(), ids=lambda world: world.name)
def world(request: pytest.FixtureRequest) -> World:
    """Every way in which this machine can run the sandbox."""
    world: World = request.param
    if world.lacks:
        pytest.skip(world.lacks)
    return world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def every_sandbox(world: World) -> AsyncIterator[Sandbox]:
    async with world.sandbox() as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """The best that this machine has."""
    async with Sandbox() as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module")
async def session(sandbox: Sandbox) -> AsyncIterator[InterpreterSession]:
    session = await sandbox.open()
    yield session
    await session.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(sandbox: Sandbox) -> AsyncIterator[Bench]:
    bench = Bench(sandbox)
    yield bench
    await bench.warm_pool.close()


@pytest_asyncio.fixture(loop_scope="module")
async def other(sandbox: Sandbox, bench: Bench) -> AsyncIterator[Bench]:
    """A second replica, with the same blobs."""
    other = Bench(sandbox, blobs=bench.blobs)
    yield other
    await other.warm_pool.close()
