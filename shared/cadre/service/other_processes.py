"""Closes the other processes of this user to this one: their environments, memories and open files.

Linux lets every process of a user look into the others by `/proc` and by ptrace. One in a Landlock domain may do that
to processes of its domain alone; but root may read environments all the same. The domain here governs nothing else.
"""

import ctypes
import os
import struct
import sys

from cadre.errors import SetupError

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_MAKE_BLOCK_DEVICE, _REFER = 1 << 11, 1 << 13
_ENOUGH = 2
"""Earlier versions do not allow moving files between folders."""

_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38


def can_close_other_processes() -> bool:
    """Return whether this kernel can do it: its Landlock is of version 2 or later."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    nothing, ask_version = ctypes.c_size_t(0), ctypes.c_uint32(1)
    return int(libc.syscall(ctypes.c_long(_CREATE), None, nothing, ask_version)) >= _ENOUGH


def close_other_processes() -> None:
    """Do so for this process and all that it starts, for good; to be called before it has threads. What it starts
    gains no rights by `setuid` files any more, and mounts nothing. Raises SetupError where the kernel cannot do it."""
    try:
        if not can_close_other_processes():
            raise OSError(0, "it needs Linux 5.19 with Landlock")
        _enter_domain()
    except OSError as error:
        raise SetupError(f"other processes cannot be closed to these tools: {error.strerror}") from error


def _enter_domain() -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    # A domain has to govern something. Moving between folders, which each domain governs, is allowed everywhere.
    governed = struct.pack("Q", _MAKE_BLOCK_DEVICE | _REFER)
    size, nothing = ctypes.c_size_t(len(governed)), ctypes.c_uint32(0)
    ruleset = checked(libc.syscall(ctypes.c_long(_CREATE), governed, size, nothing))
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        rule, kind = struct.pack("=Qi", _REFER, root), ctypes.c_int(_PATH_BENEATH)
        checked(libc.syscall(ctypes.c_long(_ADD), ctypes.c_int(ruleset), kind, rule, nothing))
        yes, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
        checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, yes, none, none, none))
        checked(libc.syscall(ctypes.c_long(_RESTRICT), ctypes.c_int(ruleset), nothing))
    finally:
        os.close(root)
        os.close(ruleset)
