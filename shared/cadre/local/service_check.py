"""Asks services what they can do on this machine: `cadre sandbox --check`, `cadre memory --check`."""

import asyncio
import sys

_TIMEOUT_SECONDS = 60.0


async def check_service(module: str) -> tuple[int | None, str, str]:
    """Runs the check of a service; returns its exit code, stdout and stderr. Without an answer the code is None."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--check"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return None, "", f"no answer within {_TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode(), errors.decode(errors="replace")


def reason(errors: str) -> str:
    """Why a check failed: the last line of its stderr."""
    return (errors.strip().splitlines() or ["no reason given"])[-1].removeprefix("cadre: ")


async def isolation_tier() -> tuple[str, str]:
    """Returns the tier in which agents' code would be isolated and "", or "" and why there is none."""
    code, output, errors = await check_service("cadre_sandbox")
    return (output.strip(), "") if code == 0 else ("", reason(errors))
