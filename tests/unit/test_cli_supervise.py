"""Children of `cadre up`, with real processes: kept alive, given up, stopped, never orphaned."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cadre.adapters import local_stack
from cadre.errors import CommandFailed
from cadre.local import supervise
from cadre.local.nats_server import choose_port, free_port
from cadre.local.service_check import lack_of
from cadre.local.supervise import MAX_QUICK_DEATHS, ManagedProcess, ProcessSpec, until_ready
from harness.patience import patience
from harness.texts import holds

FOREVER = "import time; print('up', flush=True); time.sleep(3600)"


class Watched:
    """A child, and what it has reported so far."""

    def __init__(self, folder: Path, code: str, lack: str | None = None) -> None:
        self.lines: list[str] = []
        self.news = asyncio.Event()
        self.starts = 0

        async def ready() -> str | None:
            return lack

        service = ProcessSpec("thing", [sys.executable, "-c", code], dict(os.environ), ready, folder / "thing.log")
        self.child = ManagedProcess(service, self._on_line, self._on_start)

    def _on_line(self, name: str, line: str) -> None:
        self.lines.append(line)
        self.news.set()

    def _on_start(self) -> None:
        self.starts += 1

    async def until(self, line: str, times: int = 1) -> None:
        while sum(seen == line for seen in self.lines) < times:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), patience())


async def test_what_a_child_writes_is_told_and_kept(tmp_path: Path) -> None:
    watched = Watched(tmp_path, f"import sys; sys.stderr.write('half '); sys.stderr.flush(); {FOREVER}")
    life = asyncio.create_task(watched.child.keep_alive())
    await watched.until("half up")
    watched.child.stop()
    await asyncio.wait_for(life, patience())
    assert (tmp_path / "thing.log").read_text() == "half up\n"
    assert watched.starts == 1


async def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, FOREVER)
    life = asyncio.create_task(watched.child.keep_alive())
    await watched.until("up")
    assert watched.child.pid is not None
    os.kill(watched.child.pid, signal.SIGKILL)
    await watched.until("up", times=2)
    watched.child.stop()
    await asyncio.wait_for(life, patience())
    assert holds("\n".join(watched.lines), "SIGKILL", "0.2")


async def test_a_child_that_always_dies_at_once_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_MAX_PAUSE_SECONDS", 0.1)
    watched = Watched(tmp_path, "import sys; sys.exit('the port is taken')")
    with pytest.raises(
        CommandFailed,
        match=rf"\bthing\b.*\b{MAX_QUICK_DEATHS}\b.*\bexit code 1\b.*: the port is taken",
    ):
        await watched.child.keep_alive()
    assert watched.starts == MAX_QUICK_DEATHS


async def test_a_child_that_was_ready_is_never_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that kills its service at every call must not end the team."""
    monkeypatch.setattr(supervise, "_MAX_PAUSE_SECONDS", 0.1)
    watched = Watched(tmp_path, "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    life = asyncio.create_task(watched.child.keep_alive())
    await until_ready([watched.child], 20)
    await watched.until("up", times=MAX_QUICK_DEATHS + 1)
    assert not life.done()
    watched.child.stop()
    await asyncio.wait_for(life, patience())


async def test_what_a_dead_child_left_behind_neither_hides_its_death_nor_keeps_its_port(
    tmp_path: Path,
) -> None:
    """A process that a tool forks inherits the output and the port of its service."""
    port = free_port(0, "it", "")
    code = (
        "import os, signal, socket, sys, time;"
        f"server = socket.create_server(('127.0.0.1', {port})); server.set_inheritable(True);"
        "print('up', flush=True); os.fork() or time.sleep(3600); print(os.getpid(), flush=True); time.sleep(3600)"
    )
    watched = Watched(tmp_path, code)
    life = asyncio.create_task(watched.child.keep_alive())
    await watched.until("up")
    first = watched.child.pid
    assert first is not None
    await watched.until(str(first))
    os.kill(first, signal.SIGKILL)
    await watched.until("up", times=2)
    watched.child.kill()
    await asyncio.wait_for(life, patience())
    assert watched.starts == 2


async def test_a_child_that_hangs_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "LIVENESS_PERIOD_SECONDS", 0.1)
    watched = Watched(tmp_path, FOREVER)

    async def alive() -> bool:
        return watched.starts != 1 or "up" not in watched.lines

    watched.child.service = replace(watched.child.service, alive=alive)
    life = asyncio.create_task(watched.child.keep_alive())
    await watched.until("up", times=2)
    assert any(line.startswith("hangs: ") for line in watched.lines)
    assert watched.starts == 2
    watched.child.stop()
    await asyncio.wait_for(life, patience())


async def test_a_child_that_cannot_start_as_configured_is_given_up_at_its_second_try(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "import sys; print('cadre: bad.yaml: not YAML'); sys.exit(2)")
    with pytest.raises(CommandFailed, match=r"^thing: bad\.yaml: not YAML \(all in ") as caught:
        await watched.child.keep_alive()
    assert (caught.value.code, watched.starts) == (2, 2)


async def test_a_child_that_ignores_the_end_can_be_killed_with_those_it_started(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"p = subprocess.Popen([sys.executable, '-c', {FOREVER!r}]); print(p.pid, flush=True); p.wait()"
    )
    watched = Watched(tmp_path, code)
    life = asyncio.create_task(watched.child.keep_alive())
    await watched.until("up")
    watched.child.kill()
    await asyncio.wait_for(life, patience())
    grandchild = next(int(line) for line in watched.lines if line.isdigit())
    assert await _is_gone(grandchild)


async def test_what_is_not_ready_is_named(tmp_path: Path) -> None:
    watched = Watched(tmp_path, FOREVER, lack="not connected to NATS")
    with pytest.raises(CommandFailed, match=r"0\.2"):
        await until_ready([watched.child], 0.2)


async def test_who_was_ready_once_is_not_asked_again(tmp_path: Path) -> None:
    """On a loaded machine each question costs what the services need to become ready."""
    asked = {"quick": 0, "slow": 0}
    lines: list[str] = []

    async def quick() -> str | None:
        asked["quick"] += 1
        return None

    async def slow() -> str | None:
        asked["slow"] += 1
        return None if asked["slow"] > 3 else "starting"

    children = [
        ManagedProcess(ProcessSpec(name, [], {}, ready, tmp_path / name), lambda name, line: None, lambda: None)
        for name, ready in (("quick", quick), ("slow", slow))
    ]
    await until_ready(children, 20, lambda name, line: lines.append(line))
    assert asked == {"quick": 1, "slow": 4}


async def test_a_probe_reads_no_certificates() -> None:
    """That takes a twentieth of a second of the processor, for each request to this machine's own services."""
    before = time.process_time()
    for _ in range(20):
        assert await lack_of(free_port(0, "nobody", "")) == "does not answer"
    assert time.process_time() - before < 0.5


def test_a_folder_keeps_its_ports(tmp_path: Path) -> None:
    assert local_stack.read_ports(tmp_path) == local_stack.Ports()
    ports = local_stack.Ports(gateway=1, nats=free_port(0, "NATS", ""), model=3)
    local_stack.write_ports(tmp_path, ports)
    assert local_stack.read_ports(tmp_path) == ports
    assert choose_port(0, ports.nats, "NATS", "--nats-port") == ports.nats
    with socket.create_server(("127.0.0.1", ports.nats)):
        assert choose_port(0, ports.nats, "NATS", "--nats-port") != ports.nats


def test_no_child_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    code = f"""
import asyncio, os, sys
from pathlib import Path
from cadre.local.supervise import ManagedProcess, ProcessSpec
async def ready(): return None
argv = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"]
service = ProcessSpec("thing", argv, dict(os.environ), ready, Path({str(tmp_path)!r}) / "thing.log")
asyncio.run(ManagedProcess(service, lambda name, line: print(line, flush=True), lambda: None).keep_alive())
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    assert asyncio.run(_is_gone(child))


async def _is_gone(pid: int) -> bool:
    """Return whether the process ends within ten seconds; one that waits to be reaped has ended."""
    descriptor = os.pidfd_open(pid) if _exists(pid) else None
    if descriptor is None:
        return True
    try:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, ended.set)
        await asyncio.wait_for(ended.wait(), 10)
    except TimeoutError:
        return False
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_data_folder_has_one_owner(tmp_path: Path) -> None:
    running = local_stack.StackState(gateway="http://g", nats="nats://n", pids={"nats": 1})
    with local_stack.locked(tmp_path):
        local_stack.write_state(tmp_path, running)
        assert local_stack.read_state(tmp_path) == running
        with pytest.raises(CommandFailed, match="another `cadre up` is using"), local_stack.locked(tmp_path):
            pass
    assert local_stack.read_state(tmp_path) is None


def test_the_file_of_a_stack_that_was_killed_is_not_believed(tmp_path: Path) -> None:
    local_stack.write_state(tmp_path, local_stack.StackState(gateway="http://g", nats="nats://n", pids={}))
    assert local_stack.read_state(tmp_path) is None


def test_a_port_in_use_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandFailed, match=rf"^port {port} for the gateway .* choose another with --port"):
            free_port(port, "the gateway", "--port")
