"""Nothing that the code tries reaches the host, in whichever way the sandbox is run."""

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from sandbox.attempts import ALL, Attempt
from sandbox.worlds import World, finished, open_to_all

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are tried by their numbers"),
]

TOKEN = "SECRET-OF-THE-HOST"


class Host:
    """The target of an attempt."""

    def __init__(self, folder: Path, world: World) -> None:
        self.secret = folder / "secret"
        self.secret.write_text(TOKEN)
        # As open as can be: of the code's own user, so that nothing but the jail is in the way.
        self.secret.chmod(0o666)
        user = world.uid
        if user is not None:
            os.chown(self.secret, user, user)
        self.before = self.secret.stat()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.stream = self._unix(socket.SOCK_STREAM, str(folder / "stream"))
        self.datagram = self._unix(socket.SOCK_DGRAM, str(folder / "datagram"))
        self.abstract = self._unix(socket.SOCK_STREAM, f"\0cadre-{os.getpid()}")
        sleeper = [
            sys.executable if user is None else "/bin/sleep",
            *(["-c", "input()"] if user is None else ["600"]),
        ]
        self.victim = subprocess.Popen(sleeper, user=user, stdin=subprocess.PIPE)
        self.names: dict[str, object] = {
            "secret": self.secret,
            "folder": folder,
            "port": self.tcp.getsockname()[1],
            "stream": folder / "stream",
            "datagram": folder / "datagram",
            "abstract": f"cadre-{os.getpid()}",
            "victim": self.victim.pid,
            "token": TOKEN,
        }

    def _unix(self, kind: int, name: str) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, kind)
        made.bind(name)
        if kind == socket.SOCK_STREAM:
            made.listen()
        if not name.startswith("\0"):
            os.chmod(name, 0o777)
        made.setblocking(False)
        return made

    def check_untouched(self) -> None:
        now = self.secret.stat()
        assert self.secret.read_text() == TOKEN
        assert (now.st_mode, now.st_uid, now.st_mtime) == (
            self.before.st_mode,
            self.before.st_uid,
            self.before.st_mtime,
        )
        assert self.victim.poll() is None
        assert not Path("/tmp/harm").exists()
        self.tcp.setblocking(False)
        for listener in (self.tcp, self.stream, self.abstract):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            self.datagram.recv(100)

    def close(self) -> None:
        self.victim.kill()
        self.victim.communicate()
        for one in (self.tcp, self.stream, self.datagram, self.abstract):
            one.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, world: World) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    open_to_all(folder)
    host = Host(folder, world)
    os.environ["CADRE_TOKEN_OF_A_TEST"] = TOKEN
    yield host
    del os.environ["CADRE_TOKEN_OF_A_TEST"]
    host.check_untouched()
    host.close()


FREE = {"authorized_imports": ["*"], "authorized_builtins": ["*"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other(every_sandbox: Sandbox) -> AsyncIterator[InterpreterSession]:
    """Another run, with something to hide."""
    other = await every_sandbox.open()
    await finished(other, f"private_to_another_run = '{TOKEN}'\nopen('file', 'w').write('{TOKEN}')", **FREE)
    yield other
    assert (await finished(other, "private_to_another_run + open('file').read()", **FREE)).output == TOKEN * 2
    await other.close()


@pytest.mark.parametrize("attempt", ALL, ids=lambda attempt: attempt.name)
async def test_it_is_refused(
    every_sandbox: Sandbox,
    host: Host,
    other: InterpreterSession,
    attempt: Attempt,
    capfd: pytest.CaptureFixture[str],
) -> None:
    session = await every_sandbox.open()
    outcome = await finished(session, attempt.code(host.names), **FREE)
    assert re.match(attempt.outcome(every_sandbox.tier), outcome.text, re.DOTALL), outcome.text
    assert TOKEN not in outcome.text + outcome.logs
    assert session.alive
    assert other.alive
    await session.close()
    assert TOKEN not in "".join(capfd.readouterr())
    host.check_untouched()
