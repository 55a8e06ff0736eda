"""Services that start, or end, while something that they need is away: they wait, and say for what."""

import os
import re
import signal
from pathlib import Path

import httpx2
import pytest

from harness.nats_proxy import API, NatsProxy
from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.stack import Service, Stack
from harness.texts import holds

TOOL = '''
from cadre.tool import tool

@tool
def look(what: str) -> str:
    """Looks.

    Args:
        what: At this.
    """
    return what
'''

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: kid}
spec: {description: Helps.}
"""

# The tools service, whose HTTP server dies at SIGUSR1.
DYING = """
import asyncio, signal, sys
from cadre.service import frame
from cadre_tools.main import command

serve = frame.HttpServer.serve

async def dying(self, sockets=None):
    died = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, died.set)
    serving = asyncio.create_task(serve(self, sockets=sockets))
    await died.wait()
    raise OSError("no more connections")

frame.HttpServer.serve = dying
command(sys.argv[1:])
"""


MOST_MB = 60
"""Of an agent that waits for its first run."""


def test_an_agent_that_waits_for_its_first_run_has_no_client_of_its_endpoint_yet(tmp_path: Path) -> None:
    """The library of the client would be 24 MB and 0.4 s of its start."""
    file = tmp_path / "kid.yaml"
    file.write_text(AGENT)
    with Stack(tmp_path) as stack:
        stack.environment |= {"CADRE_MODEL_URL": "http://127.0.0.1:1/v1", "CADRE_MODEL": "m"}
        kid = stack.add("kid", "cadre.cli.main", "agent", file)
        pages = int(Path(f"/proc/{kid.pid}/statm").read_text().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") <= MOST_MB * 1e6


def test_a_service_says_what_it_waits_for(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Stack(tmp_path) as stack:
        memory = stack.add("memory", "cadre_memory", start=False, QDRANT_URL=nobody, CADRE_MEMORY_EMBEDDINGS="none")
        memory.start(wait=False)

        def waits() -> bool:
            try:
                missing = httpx2.get(f"{memory.url}/readyz").json().get("missing", "")
            except httpx2.TransportError:
                return False  # not listening yet
            return "Qdrant" in missing

        eventually(waits, what="it says that it waits for Qdrant", state=stack.logs)
        answer = httpx2.get(f"{memory.url}/anything")
        assert (answer.status_code, answer.json()["code"]) == (503, "starting")
        assert "Qdrant" in answer.json()["detail"]


def added(stack: Stack, what: str) -> Service:
    """The service, not started yet."""
    (stack.folder / "look.py").write_text(TOOL)
    (stack.folder / "kid.yaml").write_text(AGENT)
    arguments: dict[str, list[str]] = {
        "agent": [str(stack.folder / "kid.yaml")],
        "tools": [str(stack.folder / "look.py")],
        "sandbox": [],
    }
    more = {
        "CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"),
        "CADRE_MEMORY_EMBEDDINGS": "none",
        "CADRE_INDEX": str(stack.folder / "index"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    return stack.add(what, f"cadre_{what}", *arguments.get(what, []), start=False, **more)


READS = re.compile(r"\$JS\.API\.STREAM\.MSG\.GET\.")
"""Reads of single messages: behind the making of streams, and the reading of the registry."""


@pytest.mark.parametrize(
    ("what", "kept"),
    [
        *((what, API) for what in ("agent", "gateway", "memory", "sandbox", "tools", "tracer")),
        ("gateway", READS),
        ("sandbox", READS),
    ],
)
def test_a_service_outlives_a_jetstream_that_is_silent_while_it_starts(
    tmp_path: Path, what: str, kept: re.Pattern[str]
) -> None:
    with Stack(tmp_path) as stack, NatsProxy(stack.nats.port) as proxy:
        stack.environment["CADRE_NATS_URL"] = proxy.url
        service = added(stack, what)
        proxy.swallow(kept)
        service.start(wait=False)
        proxy.wait_kept(1)
        proxy.let_pass()
        service.wait_ready()


def test_a_process_without_its_http_server_ends_as_failed(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(TOOL)
    (tmp_path / "dying.py").write_text(DYING)
    with Stack(tmp_path) as stack:
        service = stack.add("tools", str(tmp_path / "dying.py"), str(tmp_path / "look.py"))
        assert service.process is not None
        os.kill(service.pid, signal.SIGUSR1)
        assert service.process.wait(timeout=patience()) == 1
        assert holds(service.log.read_text().splitlines()[-1], "cadre: tools", "HTTP")
