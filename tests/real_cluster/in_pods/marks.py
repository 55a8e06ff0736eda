"""Tools whose effects a ledger counts."""

import httpx2

from cadre.tool import ToolContext, tool


async def _enter(line: str) -> str:
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        (await client.post("http://ledger:9000/", content=line)).raise_for_status()
    return "done"


@tool
async def note(text: str, context: ToolContext) -> str:
    """Writes a note."""
    return await _enter(f"note {context.call_id}")


@tool
async def mark(text: str, context: ToolContext) -> str:
    """Sets a mark."""
    return await _enter(f"mark {context.call_id}")
