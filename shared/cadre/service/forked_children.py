"""What the children of a service get of its network connections: nothing.

Tools may fork: a pool of processes, a daemon. A child that held the sockets of its service would keep the service's
port taken and its connection to NATS half alive after the service itself was killed, and messages would go there.
"""

import os
import socket
import stat

_DESCRIPTORS = "/dev/fd"


def close_network_in_children() -> None:
    """Has every child that is forked from now on let go of the network sockets that this process has open.

    Pipes and socket pairs stay, by which a pool talks to its processes.
    """
    os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in map(int, os.listdir(_DESCRIPTORS)):
        if _is_network(descriptor):
            # Not closed: an object of the parent's, once freed here, would close whatever has the number by then.
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
