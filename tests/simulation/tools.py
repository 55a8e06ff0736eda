"""The tools of simulated teams: each says on the world's shelf what it has done, and how often."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from zlib import crc32

from cadre.protocol.cards import ToolCard
from cadre.tool import ToolContext, tool
from cadre.tools.loading import AnyTool

UNLUCKY = 7
"""A call whose number can be divided by it fails."""


class Shelf:
    """Changes that the tools of a world have made, by call id."""

    def __init__(self, die: Callable[[str], None]) -> None:
        self.done: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.die = die
        """Ends the process that calls it, on behalf of a call."""


shelf: ContextVar[Shelf] = ContextVar("shelf")
"""Of the world that the running process belongs to."""


async def _work(n: int, seconds: float, context: ToolContext) -> str:
    shelf.get().begun[context.call_id] += 1
    await asyncio.sleep(seconds / 2)
    shelf.get().done[context.call_id] += 1
    await asyncio.sleep(seconds / 2)
    if n % UNLUCKY == 0:
        raise ValueError(f"{n} brings bad luck")
    return f"done {n}"


@tool
async def book(n: int, seconds: float, context: ToolContext) -> str:
    """Changes the world, and would change it again."""
    return await _work(n, seconds, context)


@tool(idempotent=True, timeout=6.0)
async def save(n: int, seconds: float, context: ToolContext) -> str:
    """Changes the world, but only once for each call."""
    return await _work(n, seconds, context)


@tool(read_only=True, timeout=4.0)
async def look(n: int, seconds: float, context: ToolContext) -> str:
    """Changes nothing."""
    return await _work(n, seconds, context)


@tool(read_only=True)
async def crash(n: int, seconds: float, context: ToolContext) -> str:
    """Kills the process that runs it."""
    await asyncio.sleep(seconds / 2)
    shelf.get().die(context.call_id)
    return await asyncio.Future[str]()


@tool
async def blast(n: int, seconds: float, context: ToolContext) -> str:
    """Changes the world, then kills the process that runs it."""
    await asyncio.sleep(seconds / 2)
    shelf.get().done[context.call_id] += 1
    shelf.get().die(context.call_id)
    return await asyncio.Future[str]()


@tool(read_only=True, timeout=4.0)
async def passes(answer: str, task: str, context: ToolContext) -> bool:
    """Checks an answer: whether it passes depends on nothing but the call."""
    await asyncio.sleep(0.3)
    return is_passed(context.call_id)


def is_passed(call: str) -> bool:
    return crc32(call.encode()) % 3 != 0


CHECK = passes.name
"""Called by agents that have their answers checked, and by no model."""

TOOLS: dict[str, AnyTool] = {one.name: one for one in (book, save, look, crash, blast)}
"""Those that models are offered."""
CHECKS: dict[str, AnyTool] = {CHECK: passes}
CARDS: dict[str, ToolCard] = {name: one.card for name, one in TOOLS.items()}
ONCE = frozenset(name for name, card in CARDS.items() if not card.read_only and not card.idempotent)
"""Tools whose effect must not happen twice for one call."""
