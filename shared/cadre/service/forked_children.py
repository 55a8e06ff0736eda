"""Keep network connections, event loop and signal handlers of a service out of its forked children.

Tools may fork: a pool of processes, a daemon. A child that held the sockets of its service would keep the service's
port taken and its connection to NATS half alive after the service itself was killed, and messages would go there. One
that had its handlers would pass its SIGTERM on to the service, and not end.
"""

import os
import signal
import socket
import stat
import threading
from collections.abc import Collection

_DESCRIPTORS = "/dev/fd"

_LOOPS = {f"anon_inode:[{kind}]" for kind in ("eventpoll", "io_uring")}
"""Linux's names for the file on which an event loop waits. Parent and child would share it: a child cannot use the
loop."""


_STOPPING = {signal.SIGTERM, signal.SIGINT}


class _Masks(threading.local):
    """The signals that a thread had blocked before its fork: several threads may fork at once."""

    blocked: Collection[int] = ()


_masks = _Masks()


def cut_off_children() -> None:
    """Make every later fork cut its child off from the network sockets, event loops and signals of this process.

    Pipes and socket pairs stay, by which a pool talks to its processes. The signals that stop a service are blocked
    from before the fork until the child has let go: until then the child's handler would write into the wakeup pipe
    that it shares with its parent, and the service would stop in its place.
    """
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_let_go)


def _block() -> None:
    _masks.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.blocked)


def _let_go() -> None:
    if signal.set_wakeup_fd(-1) >= 0:  # where the loop hears of signals
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _unblock()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in map(int, os.listdir(_DESCRIPTORS)):
        if _is_network(descriptor) or _is_loop(descriptor):
            # Not closed: an object of the parent's, once freed here, would close the file that has the number by then.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _is_network(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        found = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False  # closed meanwhile: that of the listing itself
    with found:
        return found.family in (socket.AF_INET, socket.AF_INET6)


def _is_loop(descriptor: int) -> bool:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}") in _LOOPS
    except OSError:
        return False  # closed meanwhile, or a system where these are no links
