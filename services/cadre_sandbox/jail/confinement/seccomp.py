"""The allow-list of system calls as a BPF program: threads but no processes, no sockets, signals to itself only."""

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cadre_sandbox.jail.confinement.kernel import SECCOMP, syscall
from cadre_sandbox.wire.frames import MACHINE

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""

Program: TypeAlias = list[Instruction]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
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


_CALLS = """
# memory
brk 12 214, madvise 28 233, membarrier 324 283, mincore 27 232, mmap 9 222, mprotect 10 226, mremap 25 216,
msync 26 227, munmap 11 215
# open files
close 3 57, close_range 436 436, copy_file_range 326 285, dup 32 23, dup2 33 -, dup3 292 24,
eventfd2 290 19, fallocate 285 47, fcntl 72 25, fdatasync 75 83, flock 73 32, fstat 5 80, fstatfs 138 44,
fsync 74 82, ftruncate 77 46, getdents64 217 61, ioctl 16 29, lseek 8 62, pipe 22 -, pipe2 293 59,
pread64 17 67, pwrite64 18 68, read 0 63, readv 19 65, sendfile 40 71, write 1 64, writev 20 66
# paths; what is reachable by them is for the mounts and Landlock to say
access 21 -, chdir 80 49, faccessat 269 48, faccessat2 439 439, fchdir 81 50, getcwd 79 17, link 86 -,
linkat 265 37, lstat 6 -, mkdir 83 -, mkdirat 258 34, newfstatat 262 79, open 2 -, openat 257 56,
readlink 89 -, readlinkat 267 78, rename 82 -, renameat 264 38, renameat2 316 276, rmdir 84 -, stat 4 -,
statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, truncate 76 45, umask 95 166, unlink 87 -,
unlinkat 263 35
# modes and times of files
chmod 90 -, fchmod 91 52, fchmodat 268 53, utimensat 280 88
# extended attributes, which are answered with "not supported"
flistxattr 196 13, listxattr 194 11, llistxattr 195 12
# waiting
epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_wait 232 -, pause 34 -, poll 7 -,
ppoll 271 73, pselect6 270 72, select 23 -
# time
clock_getres 229 114, clock_gettime 228 113, clock_nanosleep 230 115, getitimer 36 102,
gettimeofday 96 169, nanosleep 35 101, setitimer 38 103, time 201 -, times 100 153
# threads
clone 56 220, clone3 435 435, futex 202 98, getcpu 309 168, gettid 186 178, rseq 334 293,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_yield 24 124,
set_robust_list 273 99, set_tid_address 218 96
# signals to itself
kill 62 129, restart_syscall 219 128, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
sigaltstack 131 132, tgkill 234 131
# about itself
exit 60 93, exit_group 231 94, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158,
getpgrp 111 -, getpid 39 172, getppid 110 173, getrandom 318 278, getrlimit 97 163, getrusage 98 165,
getsid 124 156, getuid 102 174, prlimit64 302 261, sysinfo 99 179, uname 63 160
# the pair of sockets by which an event loop wakes itself
getpeername 52 205, getsockname 51 204, recvfrom 45 207, sendto 44 206, shutdown 48 210, socketpair 53 199
"""
"""The system calls that CPython needs, with their numbers on x86_64 and aarch64; `-` where there is no such call."""

_NUMBERS = {
    name: (x86_64, aarch64)[MACHINE == "aarch64"]
    for line in _CALLS.splitlines()
    if line and not line.startswith("#")
    for name, x86_64, aarch64 in (call.split() for call in line.rstrip(",").split(","))
}


def allow_list(pid: int, without: Iterable[str] = ()) -> Program:
    """Return the filter for a process that knows itself as `pid`. Calls that it does not name are refused with
    EPERM."""
    start: Program = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURE[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if MACHINE == "x86_64":
        start += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    conditional = _conditional(pid)
    plain = _NUMBERS.keys() - conditional.keys() - set(without)
    return [
        *start,
        *(step for name, body in conditional.items() for step in _case(name, body)),
        *(step for name in sorted(plain) for step in _case(name, _allow())),
        *_refuse(errno.EPERM),
    ]


def _conditional(pid: int) -> dict[str, Program]:
    refused = _refuse(errno.EPERM)
    itself = [*_argument(0), *_when(pid), *refused]
    return {
        "clone": [*_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), *_allow(), *refused],
        # Its flags are in memory, out of the filter's sight; libc falls back.
        "clone3": _refuse(errno.ENOSYS),
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
        **dict.fromkeys(("listxattr", "llistxattr", "flistxattr"), _refuse(errno.ENOTSUP)),
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
    number = _NUMBERS[name]
    return [] if number == "-" else [(_EQUAL, 0, len(body), int(number)), *body]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: Program) -> None:
    """Filter the system calls of this process and its threads, for good. Needs no_new_privileges."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    argument = ctypes.byref(_Program(len(program), ctypes.addressof(code)))
    syscall("seccomp", SECCOMP, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(0), argument)
