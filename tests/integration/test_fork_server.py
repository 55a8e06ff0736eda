"""Services as forks of one process, with real processes: what each is given, and who dies with whom."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cadre.local.fork_server import ForkedProcess, ForkServer
from harness.patience import eventually, patience

ECHO = """
import os, sys
print(sys.argv[1:], os.environ["WORD"], os.environ.get("PARENTS"), __name__, flush=True)
print("to stderr", file=sys.stderr, flush=True)
print(os.read(int(os.environ["NUMBER"]), 9), flush=True) if "NUMBER" in os.environ else None
sys.exit(7)
"""
SLEEPER = "import time; print('up', flush=True); time.sleep(3600)"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> None:
    (tmp_path / "fork_echo.py").write_text(ECHO)
    (tmp_path / "fork_sleeper.py").write_text(SLEEPER)


_outputs: list[asyncio.ReadTransport] = []
"""Of the forks of the test that runs."""


@asynccontextmanager
async def server_for(folder: Path) -> AsyncIterator[ForkServer]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = ForkServer([], {**os.environ, "PYTHONPATH": path, "PARENTS": "yes"})
    try:
        yield server
    finally:
        await server.stop()
        while _outputs:
            _outputs.pop().close()


async def started(
    server: ForkServer, module: str, *words: str, descriptors: tuple[int, ...] = (), **environment: str
) -> tuple[ForkedProcess, asyncio.StreamReader]:
    """A fork, and a reader of what it writes."""
    out, its_out = os.pipe()
    try:
        process = await server.fork(module, words, environment, its_out, descriptors)
    finally:
        os.close(its_out)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out, "rb", buffering=0)
    )
    _outputs.append(transport)
    return process, reader


async def test_a_fork_is_the_process_that_python_m_would_have_started(tmp_path: Path) -> None:
    given, theirs = os.pipe()
    os.write(theirs, b"a secret")
    async with server_for(tmp_path) as server:
        process, output = await started(
            server, "fork_echo", "a", "b c", descriptors=(given,), WORD="word", NUMBER=str(given)
        )
        text = await asyncio.wait_for(output.read(), patience())
        assert await asyncio.wait_for(process.wait(), patience()) == 7
    os.close(given)
    os.close(theirs)
    assert text.decode().splitlines() == [
        "['a', 'b c'] word None __main__",
        "to stderr",
        "b'a secret'",
    ]


async def test_its_command_line_and_its_group_are_its_own(tmp_path: Path) -> None:
    async with server_for(tmp_path) as server:
        process, output = await started(server, "fork_sleeper", "a word", "no text: \udcfc")
        await asyncio.wait_for(output.readline(), patience())
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()  # noqa: ASYNC240 - no disk
        words = line.rstrip(b"\0").split(b"\0")
        assert words == [b"python", b"-m", b"fork_sleeper", b"a word", b"no text: \xfc"]
        assert os.getpgid(process.pid) == process.pid
        process.terminate()
        assert await asyncio.wait_for(process.wait(), patience()) == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            process.terminate()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_killed_fork_server_harms_no_fork_and_is_replaced(tmp_path: Path, *, is_gone: bool) -> None:
    """The next request comes while it dies, or behind its death and before the supervisor has heard of it."""
    async with server_for(tmp_path) as server:
        first, output = await started(server, "fork_sleeper")
        await asyncio.wait_for(output.readline(), patience())
        assert server.pid is not None
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        if is_gone:
            with contextlib.suppress(ChildProcessError):  # another thread may have reaped it
                os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the loop must not hear of it
        second, output = await started(server, "fork_sleeper")
        assert server.pid != killed
        await asyncio.wait_for(output.readline(), patience())
        os.kill(first.pid, 0)
        first.terminate()
        assert await asyncio.wait_for(first.wait(), patience()) < 0
        os.kill(second.pid, signal.SIGKILL)
        assert await asyncio.wait_for(second.wait(), patience()) == -signal.SIGKILL


async def test_requests_at_once_are_all_served(tmp_path: Path) -> None:
    """More of them than the socket holds, while the fork server still imports its modules."""
    async with server_for(tmp_path) as server:
        long = "x" * 40_000
        forks = await asyncio.gather(*(started(server, "fork_echo", WORD=long) for _ in range(20)))
        codes = [process.wait() for process, _ in forks]
        texts = [output.read() for _, output in forks]
        assert await asyncio.wait_for(asyncio.gather(*codes), patience()) == [7] * 20
        assert all(long.encode() in text for text in await asyncio.gather(*texts))


async def test_a_request_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async with server_for(tmp_path) as server:
        await server.begin()
        out, its_out = os.pipe()
        request = asyncio.create_task(server.fork("fork_sleeper", [], {}, its_out))
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
        os.close(its_out)
        process, output = await started(server, "fork_sleeper")
        await asyncio.wait_for(output.readline(), patience())
        # Its end of the pipe is closed when it is gone.
        assert await asyncio.wait_for(asyncio.to_thread(os.read, out, 100), patience()) in (b"", b"up\n")
        assert await asyncio.wait_for(asyncio.to_thread(os.read, out, 100), patience()) == b""
        os.close(out)
        process.terminate()
        await asyncio.wait_for(process.wait(), patience())


def test_neither_a_fork_nor_the_fork_server_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    code = f"""
import asyncio, os
from cadre.local.fork_server import ForkServer
async def main():
    server = ForkServer([], {{**os.environ, "PYTHONPATH": {str(tmp_path)!r}}})
    process = await server.fork("fork_sleeper", [], {{}}, 1)
    print(server.pid, process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    lines = [supervisor.stdout.readline(), supervisor.stdout.readline()]
    pids = next(line for line in lines if line != "up\n").split()
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    eventually(lambda: not any(map(_runs, pids)), what="both are gone")


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
