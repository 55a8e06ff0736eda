"""The process that forks the jails: one thread, everything imported, nothing worth stealing.

Control messages over a SEQPACKET socket. Outside to zygote: an `JailOrder` as JSON, with the jail's end of its socket.
Zygote to outside: `{"ready", "address_space", "python", "modules"}` once; `{"spawned", "pid"}` with two pidfds (the
zygote's child, the jailed process; in tier landlock they are the same); `{"exit", "code"}`, negative for a signal.
End of file: all die.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from cadre_sandbox.jail import clock
from cadre_sandbox.jail.block import Block
from cadre_sandbox.jail.confinement.jail import Layers, enter, lower_limits
from cadre_sandbox.jail.functions import DeferredCall
from cadre_sandbox.jail.state import Channel, InterpreterState, Stopped
from cadre_sandbox.wire.frames import NO_JAIL, NO_MEMORY, NO_TIME, Frame, JailOrder, encode

_MAX_ORDER_BYTES = 65_536
_PID_BYTES = 4
_MAX_DESCRIPTORS = 256

_RESERVE_BYTES = 4 << 20
"""Freed when the memory is full, so that this can be reported."""

_THREAD_STACK_BYTES = 1 << 20
"""The default of 8 MB is meant for address space without limit."""


def main() -> None:
    """Serve until the outside has gone. The arguments are the control socket's number, then modules to import ahead."""
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


def _modules() -> list[str] | None:
    """Return the names of all modules and packages that can be imported here; None if they are too many to send."""
    found = {*sys.stdlib_module_names, *sys.modules, *(one.name for one in pkgutil.iter_modules())}
    names = sorted({name.partition(".")[0] for name in found})
    return names if sum(len(name) + 4 for name in names) < _MAX_ORDER_BYTES - 1024 else None


class Zygote:
    """The process that forks jails and says when they end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork jails as they are ordered. Returns when the outside closes the control socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker)
        version = ".".join(map(str, sys.version_info[:3]))
        hello = {"address_space": _address_space(), "python": version, "modules": _modules()}
        self._send({"ready": True, **hello})
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
                self._reap()
            if self._control.fileno() in readable:
                data, descriptors, _, _ = socket.recv_fds(self._control, _MAX_ORDER_BYTES, 1)
                if not data:
                    return
                self._spawn(JailOrder(**json.loads(data)), descriptors[0])

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors or [])

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._children.pop(pid)
            self._send({"exit": number, "code": os.waitstatus_to_exitcode(status)})

    def _spawn(self, order: JailOrder, channel: int) -> None:
        pid_reader, answer_builder = os.pipe()
        child = os.fork()
        if not child:
            os.close(pid_reader)
            self._become_jail(order, channel, answer_builder)
        os.close(answer_builder)
        os.close(channel)
        answer = os.read(pid_reader, _PID_BYTES)
        os.close(pid_reader)
        self._children[child] = order.number
        jailed = int.from_bytes(answer) if len(answer) == _PID_BYTES else child
        # One that was refused its jail may be gone and reaped by now. What it said why is in its channel, and is read
        # there as that of one which ends a moment later: so it is pid_reader of all the same.
        handles = [os.pidfd_open(child), _pidfd(jailed, child)]
        self._send({"spawned": order.number, "pid": jailed}, handles)
        for handle in handles:
            os.close(handle)

    def _become_jail(self, order: JailOrder, channel: int, answer_builder: int) -> None:
        """Become the jail. Never returns: in every case the process ends."""
        code = NO_JAIL
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep = {channel, answer_builder}
            _close_descriptors(keep)

            def report_pid(pid: int) -> None:
                os.write(answer_builder, pid.to_bytes(_PID_BYTES))

            def close_descriptors() -> None:
                os.close(channel)
                os.close(answer_builder)

            try:
                layers = enter(order, report_pid, close_descriptors)
            except OSError as error:
                os.write(channel, encode({"kind": "refused", "why": str(error)}))
            else:
                os.close(answer_builder)
                serve(channel, layers)
                code = 0
        finally:
            os._exit(code)


def _close_descriptors(keep: set[int]) -> None:
    """Close all descriptors but these; the three standard ones lead nowhere."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for descriptor in range(3, _MAX_DESCRIPTORS):
        if descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                continue


def _pidfd(pid: int, child: int) -> int:
    """Return a pidfd of the process or, if that has gone, of the zygote's child, which only the zygote reaps."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return os.pidfd_open(child)


def _address_space() -> int:
    """Return the bytes of address space that the interpreter takes before it runs any code."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


class Interpreter:
    """Runs the blocks of one run, one after the other."""

    def __init__(self, channel: Channel) -> None:
        self._state = InterpreterState(channel)
        self._block: Block | None = None

    def serve(self, layers: Layers) -> None:
        """Serve until the outside closes the channel, which ends the process."""
        state = self._state
        sys.stdout = sys.stderr = state.printed
        state.stopwatch.install()
        state.channel.send({"kind": "ready", **layers.as_json()})
        while True:
            self._run_block(state.channel.receive())

    def _run_block(self, frame: Frame) -> None:
        lower_limits(frame.header.get("bounds", {}))
        threading.stack_size(_THREAD_STACK_BYTES)
        try:
            self._state.reserve = self._state.reserve or bytes(_RESERVE_BYTES)
            self._block = Block(self._state, frame, self._call, self._final_answer)
            self._block.run()
        except MemoryError:
            # Too little is left even to say so in a frame.
            os._exit(NO_MEMORY)
        except Stopped:
            os._exit(NO_TIME)

    def _call(self, calls: Sequence[DeferredCall]) -> list[Any]:
        """Make the calls of a function, through the block that is running now even if an earlier one defined it."""
        assert self._block
        return self._block.call(calls)

    def _final_answer(self, *answer: Any, **named: Any) -> None:
        assert self._block
        self._block.final_answer(*answer, **named)


def serve(descriptor: int, layers: Layers) -> None:
    """Run blocks that come over the socket with this descriptor; never returns while the outside holds its end."""
    Interpreter(Channel(descriptor)).serve(layers)
