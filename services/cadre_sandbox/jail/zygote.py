"""The process that forks the jails: one thread, everything imported, nothing worth stealing.

Control messages over a SEQPACKET socket. Outside to zygote: an `JailOrder` as JSON, with the jail's end of its socket.
Zygote to outside: `{"ready", "address_space", "python"}` once; `{"spawned", "pid"}` with two pidfds (the zygote's
child, the jailed process; in tier landlock they are the same); `{"exit", "code"}`, negative for a signal. End of file:
all die.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from cadre_sandbox.jail import clock, interpreter
from cadre_sandbox.jail.jail import enter
from cadre_sandbox.wire.exit_codes import NO_JAIL
from cadre_sandbox.wire.frames import encode
from cadre_sandbox.wire.jail_order import JailOrder

_MOST_ORDER = 65_536
_PID_BYTES = 4
_DESCRIPTORS = 256


def main() -> None:
    """Arguments: the control socket's number, then modules to import ahead."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"sandbox: {name} is not imported ahead: {error}", file=sys.stderr)
    # The code sees neither where these modules came from nor the arguments.
    sys.argv[:] = [""]
    clock.install()
    gc.collect()
    gc.freeze()
    try:
        Zygote(control).serve()
    except ConnectionError:
        return  # the outside has gone


class Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker)
        version = ".".join(map(str, sys.version_info[:3]))
        self._tell({"ready": True, "address_space": _address_space(), "python": version})
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
                self._reap()
            if self._control.fileno() in readable:
                data, descriptors, _, _ = socket.recv_fds(self._control, _MOST_ORDER, 1)
                if not data:
                    return
                self._spawn(JailOrder(**json.loads(data)), descriptors[0])

    def _tell(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors or [])

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._children.pop(pid)
            self._tell({"exit": number, "code": os.waitstatus_to_exitcode(status)})

    def _spawn(self, order: JailOrder, channel: int) -> None:
        told, teller = os.pipe()
        child = os.fork()
        if not child:
            os.close(told)
            self._become_jail(order, channel, teller)
        os.close(teller)
        os.close(channel)
        answer = os.read(told, _PID_BYTES)
        os.close(told)
        self._children[child] = order.number
        jailed = int.from_bytes(answer) if len(answer) == _PID_BYTES else child
        # One that was refused its jail may be gone and reaped by now. What it said why is in its channel, and is read
        # there as that of one which ends a moment later: so it is told of all the same.
        handles = [os.pidfd_open(child), _pidfd(jailed, child)]
        self._tell({"spawned": order.number, "pid": jailed}, handles)
        for handle in handles:
            os.close(handle)

    def _become_jail(self, order: JailOrder, channel: int, teller: int) -> None:
        """Never returns: whatever happens ends the process."""
        code = NO_JAIL
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep = {channel, teller}
            _silence(keep)

            def tell_pid(pid: int) -> None:
                os.write(teller, pid.to_bytes(_PID_BYTES))

            def let_go() -> None:
                os.close(channel)
                os.close(teller)

            try:
                layers = enter(order, tell_pid, let_go)
            except OSError as error:
                os.write(channel, encode({"kind": "refused", "why": str(error)}))
            else:
                os.close(teller)
                interpreter.serve(channel, layers)
                code = 0
        finally:
            os._exit(code)


def _silence(keep: set[int]) -> None:
    """Of all descriptors these stay, and three that lead nowhere."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for descriptor in range(3, _DESCRIPTORS):
        if descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                continue


def _pidfd(pid: int, child: int) -> int:
    """Of the zygote's child, which nobody else reaps, when the other one has gone already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return os.pidfd_open(child)


def _address_space() -> int:
    """Bytes that the interpreter takes before any code."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
