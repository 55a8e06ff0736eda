"""Tools that leave something behind in their process: children, and threads."""

import multiprocessing
import os
import socket
import stat
import threading
import time

from cadre.tool import tool


def network_sockets(_: int = 0) -> int:
    """Return how many network sockets this process has open."""
    count = 0
    for descriptor in map(int, os.listdir("/dev/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as found:
                    count += found.family in (socket.AF_INET, socket.AF_INET6)
        except OSError:
            continue
    return count


@tool
def pool() -> list[int]:
    """Counts network sockets: its process's, then those of two children in a pool."""
    with multiprocessing.get_context("fork").Pool(2) as children:
        return [network_sockets(), *children.map(network_sockets, range(2))]


@tool
def daemon() -> int:
    """Leaves a child behind that lives for a minute; its process id."""
    child = os.fork()
    if not child:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        time.sleep(60)
        os._exit(0)
    return child


@tool
def linger() -> str:
    """Leaves a thread behind that works on."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return "left"


@tool
def end_child() -> int | None:
    """Ends a child by SIGTERM; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    time.sleep(0.2)
    child.terminate()
    child.join(5)
    code = child.exitcode
    child.kill()
    return code


@tool
async def fork_in_loop() -> int:
    """Forks in the event loop, into which the child returns as well; the child's process id."""
    return os.fork()
