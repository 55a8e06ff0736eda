"""Nothing that a test starts outlives it: not when it is killed, not what it had paused."""

import os
import signal
import subprocess
import sys

from harness.guard import Guard
from harness.patience import eventually, patience

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]

PARENT = """
import os, signal, subprocess, sys, time
from harness.guard import Guard

guard = Guard()
sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
paused, running = (subprocess.Popen(sleeps, process_group=guard.group) for _ in range(2))
os.kill(paused.pid, signal.SIGSTOP)
print(paused.pid, running.pid, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Return whether the process is there, and more than an entry that no one has taken note of."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def test_a_killed_test_takes_its_processes_with_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert all(is_alive(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: not any(map(is_alive, pids)), what="its processes are gone")


def test_what_is_left_dies_when_the_guard_closes() -> None:
    guard = Guard()
    process = subprocess.Popen(SLEEPS, process_group=guard.group)
    os.kill(process.pid, signal.SIGSTOP)
    guard.close()
    assert process.wait(timeout=patience()) == -signal.SIGKILL
