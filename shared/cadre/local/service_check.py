"""Ask services on this machine for their abilities, their health and their readiness."""

import asyncio
import sys
from collections.abc import Iterable
from typing import NamedTuple

import httpx2


class Shortage(NamedTuple):
    """The reason why a service is not ready."""

    code: str
    """As its readiness endpoint names it; "" without one."""
    text: str


_TIMEOUT_SECONDS = 60.0
_PROBE_SECONDS = 10.0


async def check_service(module: str, *options: str) -> tuple[int | None, str, str]:
    """Runs the check of a service; returns its exit code, stdout and stderr. Without an answer the code is None."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--check", *options),
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


async def modules_lacking(modules: Iterable[str]) -> set[str]:
    """Those of the modules that agents' code could not import on this machine; none where no code is run here."""
    code, output, _ = await check_service("cadre_sandbox", "--imports", ",".join(modules))
    return {line.removeprefix("lacks ") for line in output.splitlines()[1:]} if code == 0 else set()


async def lack_of(port: int) -> str | None:
    """Return what the service on this port lacks, in words; None when it is ready."""
    unready = await readiness(port)
    return unready.text if unready is not None else None


async def readiness(port: int) -> Shortage | None:
    """Return what the service on this port lacks, by its readiness endpoint; None when it is ready."""
    answer = await _probe(port, "/readyz")
    if answer is None:
        return Shortage("", "does not answer")
    if answer.is_success:
        return None
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Shortage("", str(answer.status_code))
    return Shortage(str(body.get("code") or ""), str(body.get("missing") or body.get("status")))


async def is_alive(port: int) -> bool:
    """Return whether the service on this port answers its liveness endpoint."""
    answer = await _probe(port, "/healthz")
    return answer is not None and answer.is_success


async def _probe(port: int, path: str) -> httpx2.Response | None:
    """Return what the service on this port answers; None: nothing, within the time of a probe."""
    try:
        # Plain HTTP: a TLS context would be made for each request, which reads all certificates of the system.
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=_PROBE_SECONDS) as client:
            return await client.get(f"http://127.0.0.1:{port}{path}")
    except httpx2.TransportError:
        return None
