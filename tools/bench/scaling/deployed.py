"""The team of the scaling benchmark on its own NATS server: every service a process, the model behind HTTP."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench.processes import cpu_seconds
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.settings import Settings
from harness.patience import eventually, patience
from harness.stack import Gateway, Service, Stack

TEAM = Path(__file__).parent / "team"


@contextmanager
def deployed() -> Iterator[Stack]:
    """With the scripted model and nothing else; the number of shards is the default."""
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder, Stack(Path(folder)) as stack:
        del stack.environment["CADRE_SHARDS"]
        stack.model(TEAM / "script.yaml")
        yield stack


def agents(stack: Stack, name: str, replicas: int = 1) -> list[Service]:
    """Replicas of an agent of the team, which `start_all` starts."""
    file = TEAM / f"{name}.yaml"
    return [stack.add(f"{name}-{number}", "cadre_agent", file, start=False) for number in range(replicas)]


def tools(stack: Stack, replicas: int = 1) -> list[Service]:
    """Replicas of the executor of the team's tools, which `start_all` starts."""
    file = TEAM / "tools.py"
    return [stack.add(f"tools-{number}", "cadre_tools", file, start=False) for number in range(replicas)]


def cpu_of(services: Sequence[Service]) -> float:
    """Seconds of CPU of all of them so far."""
    return sum(cpu_seconds(service.pid) for service in services)


def metric(service: Service, name: str) -> float:
    """The sum of a metric's series, as the service reports to Prometheus."""
    text = httpx2.get(f"{service.url}/metrics", timeout=patience()).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M))


def until_ended(gateway: Gateway, agent: str, runs: int, within: float) -> None:
    """Until the gateway lists so many runs of the agent that have succeeded."""
    found = 0

    def all_there() -> bool:
        nonlocal found
        query = {"agent": agent, "state": "success", "count": "true", "limit": 1}
        found = gateway.request("GET", "/v1/runs", params=query).json()["total"]
        return bool(found >= runs)

    eventually(all_there, what=f"{runs} runs of {agent} have ended", within=within, state=lambda: found)


async def stored_bytes(stack: Stack) -> int:
    """Return what all streams of the deployment hold: journals, messages, blobs."""
    nc = await connect(Settings(nats_url=stack.nats.url), "bench")
    try:
        found = await jetstream.api(nc, "STREAM.LIST")
        return sum(stream["state"]["bytes"] for stream in found["streams"])
    finally:
        await nc.close()
