"""The pool, the tiers, and what becomes of sessions when processes or callers go."""

import asyncio
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cadre_sandbox.interpreters.contract import BlockLimits, CallResult, InterpreterLost, Python, SandboxError
from cadre_sandbox.interpreters.pool import NOBODY_UID, Sandbox
from cadre_sandbox.interpreters.process import InterpreterProcess, ProcessPlan, TierRefused
from cadre_sandbox.interpreters.zygote import ZygoteProcess
from cadre_sandbox.jail.confinement import jail
from harness.patience import patience
from sandbox import walled_python
from sandbox.worlds import World, failed, finished, open_to_all, run, worlds, yielded

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def without(tmp_path: Path) -> Callable[[Mapping[int, int]], Python]:
    """A Python of an ordinary user that must do without these system calls."""
    world = worlds()[1]
    if world.lacks or platform.machine() != "x86_64":
        pytest.skip(world.lacks or "system calls are refused by their numbers")
    open_to_all(tmp_path)
    ordinary: Python = world.options.get("python", Python())

    def make(refused: Mapping[int, int]) -> Python:
        return Python(executable=walled_python.write(tmp_path, ordinary.executable, refused), uid=ordinary.uid)

    return make


@pytest.fixture
def landlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The sandbox under Landlock, with its scratch folders in the test's own."""
    world: World = worlds()[2]
    if world.lacks:
        pytest.skip(world.lacks)
    open_to_all(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return world


async def test_where_namespaces_are_refused_landlock_it_is(
    without: Callable[[Mapping[int, int]], Python],
) -> None:
    if jail.version() < jail.ENOUGH:
        pytest.skip("this kernel's Landlock is too old")
    async with Sandbox(python=without(walled_python.NAMESPACES)) as sandbox:
        assert sandbox.tier == "landlock"
        session = await sandbox.open()
        assert (await finished(session, "1 + 1")).tier == "landlock"


SEE_AND_WRITE = """
import os
writable = []
for folder, inner, files in os.walk("/"):
    try:
        open(os.path.join(folder, "harm"), "w").close()
        writable.append(folder)
    except OSError:
        pass
    inner[:] = inner if folder.count("/") < 4 else []
[sorted(os.listdir("/")), writable, os.path.exists("/etc/passwd"), os.path.exists("/proc/1")]
"""


async def test_namespaces_alone_hide_the_host(without: Callable[[Mapping[int, int]], Python]) -> None:
    async with Sandbox(python=without(walled_python.LANDLOCK)) as sandbox:
        assert sandbox.tier == "ns"
        session = await sandbox.open()
        free = {"authorized_imports": ["*"], "authorized_builtins": ["open"]}
        seen: Any = (await finished(session, SEE_AND_WRITE, **free)).output
        root, writable, users, processes = seen
        assert set(root) <= {"dev", "etc", "lib", "lib64", "root", "tmp", "usr", "work", "opt", "home"}
        assert (writable, users, processes) == (["/work"], False, False)


async def test_a_refusal_is_read_however_soon_the_refused_one_has_gone() -> None:
    """Its end and its being known are a race: run until the wrong one would have won it."""
    zygote = await ZygoteProcess.start(Python())
    try:
        for _ in range(60):
            with pytest.raises(TierRefused, match=r"\[Errno \d+\] "):
                await InterpreterProcess.open(zygote, ProcessPlan("ns", BlockLimits(file_mb=-1), NOBODY_UID))
    finally:
        await zygote.close()


async def test_a_session_closed_while_its_code_runs_takes_nothing_from_those_behind_it() -> None:
    """Its socket's number is that of the next one, which the event loop must hear."""
    async with Sandbox(pool=0) as sandbox:
        for _ in range(3):
            session = await sandbox.open()
            running = asyncio.create_task(run(session, "while True: pass"))
            await asyncio.wait({running}, timeout=1)  # by then it reads; if not, this shows nothing
            await session.close()
            assert isinstance(await asyncio.wait_for(running, patience()), InterpreterLost)
            behind = await sandbox.open()
            assert (await asyncio.wait_for(finished(behind, "1 + 1"), patience())).output == 2
            await behind.close()


async def test_below_the_minimum_code_is_refused(without: Callable[[Mapping[int, int]], Python]) -> None:
    sandbox = Sandbox(minimum="ns", python=without(walled_python.NAMESPACES))
    with pytest.raises(SandboxError, match=r"code is refused.*ns: .*unshare: Operation not permitted"):
        await sandbox.start()
    with pytest.raises(SandboxError, match="not started"):
        await sandbox.open()


async def test_without_any_isolation_code_is_refused(without: Callable[[Mapping[int, int]], Python]) -> None:
    sandbox = Sandbox(python=without({**walled_python.NAMESPACES, **walled_python.LANDLOCK}))
    with pytest.raises(SandboxError, match=r"ns: .*unshare.*landlock: Landlock version 0"):
        await sandbox.start()


async def test_without_seccomp_code_is_refused(without: Callable[[Mapping[int, int]], Python]) -> None:
    sandbox = Sandbox(python=without({157: 1}))
    with pytest.raises(SandboxError, match="code is refused"):
        await sandbox.start()


async def test_a_python_that_is_none_is_said_so() -> None:
    with pytest.raises(SandboxError, match="/no/such cannot be started"):
        await Sandbox(python=Python(executable="/no/such")).start()
    with pytest.raises(SandboxError, match="/bin/false ended with 1 at its start"):
        await Sandbox(python=Python(executable="/bin/false")).start()


async def test_more_sessions_than_the_pool_holds_run_at_once() -> None:
    async with Sandbox(pool=1) as sandbox:
        sessions = await asyncio.gather(*(sandbox.open() for _ in range(6)))
        outcomes = await asyncio.gather(
            *(run(session, f"import time\nx = {n}\ntime.sleep(0.05)\nx") for n, session in enumerate(sessions))
        )
        assert [getattr(outcome, "output", outcome) for outcome in outcomes] == list(range(6))


async def test_no_request_gets_more_than_the_sandbox_has() -> None:
    async with Sandbox(most=BlockLimits(seconds=0.3, memory_mb=64, print_chars=100)) as sandbox:
        greedy = {"limits": BlockLimits(seconds=60, memory_mb=4096, print_chars=10**6)}
        session = await sandbox.open()
        assert (await failed(session, "x = bytearray(10**8)", **greedy)).error == "MemoryError"
        assert len((await finished(session, "print('x' * 1000)", **greedy)).logs) < 200
        assert (await failed(session, "while True: pass", **greedy)).error == "TimeLimit"


async def test_a_session_may_have_less() -> None:
    async with Sandbox() as sandbox:
        session = await sandbox.open()
        little = {"limits": BlockLimits(memory_mb=32)}
        assert (await failed(session, "x = bytearray(5 * 10**7)", **little)).error == "MemoryError"
        other = await sandbox.open()
        assert (await finished(other, "len(bytearray(5 * 10**7))")).output == 5 * 10**7


async def test_when_the_zygote_dies_sessions_are_lost_and_new_ones_open() -> None:
    async with Sandbox() as sandbox:
        session = await sandbox.open()
        saved = await finished(session, "x = 41")
        await yielded(session, "search('a')")
        assert sandbox.zygote_pid is not None
        os.kill(sandbox.zygote_pid, signal.SIGKILL)
        await session.gone()
        assert isinstance(await session.resume([CallResult()]), InterpreterLost)
        other = await sandbox.open()
        assert (await finished(other, "x + 1", snapshot=saved.snapshot)).output == 42


async def test_a_cancelled_block_ends_its_interpreter() -> None:
    async with Sandbox() as sandbox:
        session = await sandbox.open()
        await finished(session, "1")
        going = asyncio.create_task(run(session, "while True: pass"))
        await asyncio.sleep(0)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert not session.alive
        other = await sandbox.open()
        assert (await finished(other, "2")).output == 2


async def test_what_a_landlocked_session_wrote_is_removed(tmp_path: Path, landlocked: World) -> None:
    free = {"authorized_imports": ["*"], "authorized_builtins": ["open"]}
    async with landlocked.sandbox(pool=0) as sandbox:
        session = await sandbox.open()
        await finished(session, "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x')", **free)
        assert "f" in found(tmp_path)
        await session.close()
        assert "f" not in found(tmp_path)
    assert found(tmp_path) == []


DEEP = "import os\nfor _ in range({}):\n    os.mkdir('d' * {})\n    os.chdir('d' * {})\n".format


@pytest.mark.parametrize(
    "code",
    [
        DEEP(20, 250, 250) + "for n in range(3): open(f'f{n}', 'wb').write(bytes(2 << 20))",
        DEEP(1500, 1, 1),
        "import os\nfor n in range(4200): os.mkdir(f'd{n}')",
        "import os\nfor n in range(4200): os.symlink('.', f'l{n}')",
    ],
    ids=["files below the longest path", "folders in folders", "folders", "links"],
)
async def test_a_landlocked_session_hides_nothing_that_it_writes(tmp_path: Path, landlocked: World, code: str) -> None:
    free = {"authorized_imports": ["*"], "authorized_builtins": ["open"], "limits": BlockLimits(file_mb=4)}
    async with landlocked.sandbox(pool=0) as sandbox:
        session = await sandbox.open()
        assert (await failed(session, code, **free)).error == "FileLimit"
        await session.close()
    assert os.listdir(tmp_path) == []


MAKE_AND_WAIT = """
import os, sys
from cadre_sandbox.interpreters.scratch import Scratch
scratch = Scratch.make(int(sys.argv[1]))
os.makedirs(scratch.path / "d" / "e")
(scratch.path / "d" / "f").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


async def test_what_a_killed_service_left_is_removed_by_the_next(tmp_path: Path, landlocked: World) -> None:
    others = tmp_path / "others"
    (others / "kept").mkdir(parents=True)
    (tmp_path / "cadre-scratch-link").symlink_to(others)
    # Made by an older version, which may be at work in it.
    (tmp_path / "cadre-sandbox-older").mkdir()
    services = [_maker(tmp_path, landlocked.uid) for _ in range(2)]
    living, killed = (Path(service.stdout.readline().strip()) for service in services if service.stdout)
    try:
        services[1].kill()
        services[1].communicate()
        async with landlocked.sandbox(pool=0):
            assert not killed.exists()
            assert (living / "d" / "f").exists()
    finally:
        for service in services:
            service.kill()
            service.communicate()
    async with landlocked.sandbox(pool=0):
        pass
    assert sorted(os.listdir(tmp_path)) == ["cadre-sandbox-older", "cadre-scratch-link", "others"]
    assert (others / "kept").exists()


def _maker(folder: Path, uid: int | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT, str(NOBODY_UID if uid is None else uid)],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def found(folder: Path) -> list[str]:
    return [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]
