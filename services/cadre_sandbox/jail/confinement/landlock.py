"""Restrict this process by Landlock: which file trees it may read or write, no TCP, no signals to other processes."""

import ctypes
import os
import struct
from collections.abc import Iterable

from cadre_sandbox.jail.confinement.kernel import (
    LANDLOCK_ADD,
    LANDLOCK_CREATE,
    LANDLOCK_RESTRICT,
    syscall,
)

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in (1, 2, 3, 4, 5))
_MAKE_DIR, _MAKE_FILE, _MAKE_SYMLINK, _REFER, _TRUNCATE = (1 << bit for bit in (7, 8, 12, 13, 14))

ENOUGH = 3
"""The first version that governs truncating; below it the tier cannot be had."""

_ALL = (1 << 15) - 1
_IOCTL_DEVICE = 1 << 15
_TCP = 0b11
_SCOPED = 0b11

READ = _READ_FILE | _READ_DIR
WRITE = (
    READ
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_FILE
    | _MAKE_SYMLINK
    | _REFER
    | _TRUNCATE
)
_OF_A_FILE = _READ_FILE | _WRITE_FILE | _TRUNCATE

_ASK_VERSION = 1
_PATH_BENEATH = 1


def version() -> int:
    """The kernel's version of Landlock; 0 where it has none."""
    try:
        nothing = (None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
        return syscall("landlock version", LANDLOCK_CREATE, *nothing)
    except OSError:
        return 0


def restrict(abi: int, readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restrict this process and its threads to these paths, for good. Needs no_new_privileges; paths that do not exist
    are skipped."""
    governed = _ALL | (_IOCTL_DEVICE if abi >= 5 else 0)
    rules = struct.pack("QQQ", governed, _TCP if abi >= 4 else 0, _SCOPED if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = syscall("landlock", LANDLOCK_CREATE, rules, ctypes.c_size_t(size), ctypes.c_uint32(0))
    for paths, access in ((readable, READ), (writable, WRITE)):
        for path in paths:
            _allow(ruleset, path, access)
    syscall("landlock", LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = struct.pack("=Qi", access if os.path.isdir(path) else access & _OF_A_FILE, place)
    syscall(
        f"landlock {path}",
        LANDLOCK_ADD,
        ctypes.c_int(ruleset),
        ctypes.c_int(_PATH_BENEATH),
        rule,
        ctypes.c_uint32(0),
    )
    os.close(place)
