"""A tool that takes its time."""

import asyncio
from pathlib import Path

from cadre.tool import ToolContext, tool


@tool
async def dig(seconds: float, book: str, ctx: ToolContext) -> str:
    """Digs.

    Args:
        seconds: For how long.
        book: The file in which it is written down.
    """
    await asyncio.sleep(seconds)
    _write_down(Path(book), ctx.call_id)
    return f"dug for {seconds:g} s"


def _write_down(book: Path, call: str) -> None:
    with book.open("a") as lines:
        lines.write(f"{call}\n")
