"""`make test-kubernetes`: builds the programs and images of a cluster, and runs the tests in namespaces of the kernel.

Needs root, Go, and some packages of Debian, which it names where they are missing. What was built is kept in
build/kubernetes. Everything else ends with the run: the tests, the servers and all pods are processes of one PID
namespace, and the kernel ends them with its first process, which ends with this one. Their networks and mounts are in
namespaces of theirs, and what they write is in memory (1 GB for each node).
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from real_cluster import images, programs
from real_cluster.cluster import remove_groups
from real_cluster.node import STATE

FOLDER = Path(os.environ.get("CADRE_KUBERNETES_FOLDER") or images.ROOT / "build" / "kubernetes")
_INSIDE = "--inside"
_PLACES = ("/run/netns", "/run/containerd", "/var/lib/cni", "/var/log/containers")
"""Folders to which container runtimes, network plugins and the kubelet write, no matter what their settings say."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the tests."""
    for one in _SIGNALS:
        signal.signal(one, _end)
    if missing := programs.missing_packages():
        print(f"test-kubernetes: not tried: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 1
    if os.geteuid() != 0:
        print("test-kubernetes: not tried: it starts containers, as root alone may", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"test-kubernetes: not tried: another run uses {FOLDER}", file=sys.stderr)
            return 1
        programs.build(FOLDER)
        images.make_all(FOLDER / "images", FOLDER / "bin")
        images.make_cadre(FOLDER / "images", "test")
        try:
            return _tests(arguments)
        finally:
            remove_groups()


def _tests(arguments: Sequence[str]) -> int:
    # Nothing is ever written to it: its end is this process's end, however that comes.
    life, ours = os.pipe()
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc"]
    process = subprocess.Popen(
        [*namespaces, sys.executable, "-m", "real_cluster.main", _INSIDE, str(life), *arguments],
        cwd=images.ROOT,
        env={**os.environ, "CADRE_KUBERNETES_FOLDER": str(FOLDER)},
        pass_fds=[life],
        start_new_session=True,  # Ctrl-C comes to this process alone
    )
    os.close(life)
    try:
        return process.wait()
    finally:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        os.close(ours)
        process.wait()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def inside(life: int, arguments: Sequence[str]) -> int:
    """Run the tests, as the first process of a PID namespace: it is the parent of what has lost its own, and all others
    are killed when it ends. It ends with the tests, or when the other end of the pipe `life` is closed."""
    threading.Thread(target=_follow, args=(life,), daemon=True).start()
    # The kubelet's mounts reach the runtime by this, within the namespace.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for place in (*map(Path, _PLACES), FOLDER / STATE):
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(place)], check=True)
    tests = subprocess.Popen([sys.executable, "-m", "pytest", "tests/real_cluster", *arguments])
    while True:
        ended, status = os.wait()
        if ended == tests.pid:
            return os.waitstatus_to_exitcode(status)


def _follow(life: int) -> None:
    os.read(life, 1)
    os._exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == [_INSIDE]:
        sys.exit(inside(int(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
