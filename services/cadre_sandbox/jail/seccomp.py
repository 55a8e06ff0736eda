"""The allow-list of system calls as a BPF program: threads but no processes, no sockets, signals to itself only."""

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cadre_sandbox.jail.kernel import SECCOMP, syscall
from cadre_sandbox.jail.syscall_numbers import NUMBERS
from cadre_sandbox.wire.machine import MACHINE

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""

Program: TypeAlias = list[Instruction]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_SET_MODE_FILTER = 1
_X32_BIT = 0x40000000

_CLONE_THREAD = 0x10000
_AF_UNIX, _SOCK_STREAM, _SOCKET_TYPE_BITS = 1, 1, 0xF

_TERMINAL_QUERIES = (0x5401, 0x5413)
_DESCRIPTOR_FLAGS = (0x5450, 0x5451, 0x541B, 0x5421)
"""Close on exec or not, bytes to read, non-blocking: asyncio needs the last."""

_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1033, 1034)
"""Duplicates, flags, locks, pipe sizes, seals. Not who gets a descriptor's signals: that would be a `kill`."""

MODES_AND_TIMES = ("chmod", "fchmod", "fchmodat", "utimensat")
"""Landlock does not govern them: allowed only where the host's files cannot be named at all."""


def allow_list(pid: int, without: Iterable[str] = ()) -> Program:
    """The filter for a process that knows itself as `pid`. Calls that it does not name are refused with EPERM."""
    start: Program = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURE[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if MACHINE == "x86_64":
        start += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    conditional = _conditional(pid)
    plain = NUMBERS.keys() - conditional.keys() - set(without)
    return [
        *start,
        *(step for name, body in conditional.items() for step in _case(name, body)),
        *(step for name in sorted(plain) for step in _case(name, _allow())),
        *_refuse(errno.EPERM),
    ]


def _conditional(pid: int) -> dict[str, Program]:
    refused = _refuse(errno.EPERM)
    itself = [*_argument(0), *_when(pid), *refused]
    unsupported = _refuse(errno.ENOTSUP)
    return {
        "clone": [*_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), *_allow(), *refused],
        "clone3": _refuse(
            errno.ENOSYS
        ),  # its flags are in memory, out of the filter's sight; libc falls back
        "kill": itself,
        "tgkill": itself,
        "ioctl": [*_one_of(1, (*_TERMINAL_QUERIES, *_DESCRIPTOR_FLAGS)), *_refuse(errno.ENOTTY)],
        "fcntl": [*_one_of(1, _FCNTL), *refused],
        # Its own limits: to read, and to lower.
        "prlimit64": [*_argument(0), *_when(0), *refused],
        # A pair of datagram sockets could send to any socket that has a path; so: streams, and no address.
        "socketpair": [
            *_argument(0),
            (_EQUAL, 0, 4, _AF_UNIX),
            *_argument(1),
            (_AND, 0, 0, _SOCKET_TYPE_BITS),
            *_when(_SOCK_STREAM),
            *refused,
        ],
        "sendto": [*_zero(4), *refused],
        "listxattr": unsupported,
        "llistxattr": unsupported,
        "flistxattr": unsupported,
    }


def _allow() -> Program:
    return [(_RETURN, 0, 0, _ALLOW)]


def _refuse(code: int) -> Program:
    return [(_RETURN, 0, 0, _ERRNO | code)]


def _argument(position: int, upper: bool = False) -> Program:
    return [(_LOAD, 0, 0, 16 + 8 * position + 4 * upper)]


def _when(value: int) -> Program:
    return [(_EQUAL, 0, 1, value), *_allow()]


def _one_of(position: int, values: Sequence[int]) -> Program:
    return [*_argument(position), *(step for value in values for step in _when(value))]


def _zero(position: int) -> Program:
    """Allow when both halves of a pointer are 0; else go on behind this."""
    return [*_argument(position), (_EQUAL, 0, 3, 0), *_argument(position, upper=True), *_when(0)]


def _case(name: str, body: Program) -> Program:
    number = NUMBERS[name][_COLUMN[MACHINE]]
    return [] if number is None else [(_EQUAL, 0, len(body), number), *body]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: Program) -> None:
    """Filter the system calls of this process and its threads, for good. Needs no_new_privileges."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    argument = ctypes.byref(_Program(len(program), ctypes.addressof(code)))
    syscall("seccomp", SECCOMP, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(0), argument)
