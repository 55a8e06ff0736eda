"""Processes that tools leave behind do not hold what their service had: its port, its connection, its end."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from harness.nats_server import free_port
from harness.patience import patience, until
from integration.executor_bench import Bench

FORKING = str(Path(__file__).with_name("forking_tools.py"))


async def test_children_of_a_tool_have_no_network_socket_of_its_service(bench: Bench) -> None:
    await bench.start(FORKING)
    own, *others = (await bench.ask("pool")).output
    assert own >= 2, "the connection to NATS and the port"
    assert others == [0, 0]
    assert (await bench.ask("pool")).error is None, "the service itself has lost none"


async def test_a_child_that_outlives_its_service_holds_nothing_of_it(bench: Bench) -> None:
    port = free_port()
    service = await bench.start(FORKING, CADRE_PORT=str(port))
    child = (await bench.ask("daemon")).output
    try:
        service.kill()
        await service.wait()
        os.kill(child, 0)  # it is there

        async def free() -> bool:
            with socket.socket() as other:
                return other.connect_ex(("127.0.0.1", port)) != 0

        await until(free)
        await bench.start(FORKING, CADRE_PORT=str(port))
        assert (await bench.ask("linger")).output == "left", "no call goes to the child"
    finally:
        os.kill(child, signal.SIGKILL)


async def test_a_thread_that_works_on_does_not_hold_up_the_end(bench: Bench) -> None:
    service = await bench.start(FORKING)
    assert (await bench.ask("linger")).output == "left"
    service.terminate()
    assert await service.wait() == 0


async def test_a_signal_to_a_child_ends_the_child_and_not_the_service(bench: Bench) -> None:
    service = await bench.start(FORKING)
    assert (await bench.ask("end_child")).output == -signal.SIGTERM
    assert (await bench.ask("linger")).output == "left"
    assert service.returncode is None


HIT_AT_FORK = """
import asyncio, os, signal
from cadre.service.frame import cut_off_children

os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))  # before the child can let go
cut_off_children()

async def main():
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    child = await asyncio.to_thread(os.fork)
    if not child:
        os._exit(0)
    status = await asyncio.to_thread(lambda: os.waitpid(child, 0)[1])
    print(os.waitstatus_to_exitcode(status), stopped.is_set(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    await stopped.wait()

asyncio.run(main())
"""


async def test_a_signal_that_hits_a_child_at_its_fork_ends_the_child_and_not_the_service() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HIT_AT_FORK, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), patience())
    assert output.split() == [b"-15", b"False"]
    assert process.returncode == 0, "the process itself hears SIGTERM as before"


async def test_a_child_that_returns_into_the_event_loop_ends_there(bench: Bench) -> None:
    service = await bench.start(FORKING)
    child = (await bench.ask("fork_in_loop")).output
    assert child > 0, "the service has answered, and not the child"
    await until(lambda: asyncio.to_thread(_has_ended, child))
    assert (await bench.ask("linger")).output == "left"
    assert service.returncode is None


def _has_ended(pid: int) -> bool:
    """Return whether it is a zombie, or gone: its parent may not have waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
