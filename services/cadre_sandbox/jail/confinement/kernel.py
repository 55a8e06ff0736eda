"""The few kernel calls that Python's library lacks, by ctypes; each raises OSError when it is refused."""

import ctypes
import os

from cadre_sandbox.wire.frames import MACHINE

_libc = ctypes.CDLL(None, use_errno=True)

NEW_NS, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_NOATIME, MS_RELATIME = 1024, 1 << 21
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_LAST_CAPABILITY = 63


def _number(x86: int, arm: int) -> int:
    return x86 if MACHINE == "x86_64" else arm


PIVOT_ROOT = _number(155, 41)
SECCOMP = _number(317, 277)
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446


def checked(result: int, what: str) -> int:
    """Return the result of a C call. Raises OSError, which says what was tried, when it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """Make the system call of this number. Raises OSError, which says what was tried."""
    return checked(_libc.syscall(ctypes.c_long(number), *arguments), what)


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name for new ones."""
    checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount `source` at `target`, or change a mount."""
    done = _libc.mount(_text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(options))
    checked(done, f"mount {source} at {target}")


def unmount(target: str) -> None:
    """Detach what is mounted at `target`."""
    checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def _prctl(option: int, value: int) -> int:
    return int(_libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3))


def die_with_parent(signal: int) -> None:
    """Have the kernel send this signal when the parent ends."""
    checked(_prctl(_PR_SET_PDEATHSIG, signal), "die with parent")


def no_dumps() -> None:
    """Forbid others of the same user to look into this process."""
    checked(_prctl(_PR_SET_DUMPABLE, 0), "not dumpable")


def no_new_privileges() -> None:
    """Give up gaining privileges by running other programs, as seccomp and Landlock demand."""
    checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "no new privileges")


def empty_bounding_set() -> None:
    """Drop every capability from the bounding set, as far as this process may."""
    for capability in range(_LAST_CAPABILITY + 1):
        # The first capability that the kernel does not know ends it.
        if _prctl(_PR_CAPBSET_DROP, capability) < 0:
            return


def drop_capabilities() -> None:
    """Give up all capabilities."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "drop capabilities")
