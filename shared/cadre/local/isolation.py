"""Asks the sandbox service whether it can run agents' code on this machine."""

from __future__ import annotations

import asyncio
import sys

_TIMEOUT_SECONDS = 60.0


async def isolation_tier() -> tuple[str, str]:
    """Returns the tier of isolation and "", or "" and why there is none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cadre_sandbox", "--check"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return "", f"no answer within {_TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return output.decode().strip(), ""
    lines = errors.decode(errors="replace").strip().splitlines() or ["no reason given"]
    return "", lines[-1].removeprefix("cadre: ")
