"""Lock a freshly forked process in, layer by layer; each layer is refused or holds, none is skipped silently."""

import mimetypes
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from cadre_sandbox.jail.confinement import kernel, seccomp
from cadre_sandbox.jail.confinement.landlock import ENOUGH, restrict, version
from cadre_sandbox.jail.confinement.mounts import (
    WORK,
    enter_root,
    importable,
    interpreter_files,
)
from cadre_sandbox.wire.frames import OWN_TASKS, JailOrder

_INSIDE_ID = 1000
_NAMESPACES = kernel.NEW_NS | kernel.NEW_UTS | kernel.NEW_IPC | kernel.NEW_PID | kernel.NEW_NET
_MEGABYTE = 1 << 20
_OPEN_FILES = 64


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers that hold: tier, whether users have a namespace, version of Landlock, seccomp."""

    tier: str
    user_namespace: bool
    landlock: int
    seccomp: bool

    def as_json(self) -> dict[str, Any]:
        """The layers as the outside is told them."""
        return asdict(self)


def enter(
    order: JailOrder, report_pid: Callable[[int], None], close_descriptors: Callable[[], None]
) -> Layers:
    """Lock this process in. Returns in the jailed process only; in tier ns that is a child of the caller, which waits
    for it here.

    `report_pid` is given the pid of the jailed process as the zygote sees it; `close_descriptors` closes what only the
    jailed process shall have. Raises OSError when a layer of this tier cannot be had.
    """
    abi = version()
    readable = interpreter_files()
    sys.path[:] = [os.path.realpath(path) for path in importable(readable)]
    own_users = False
    if order.tier == "ns":
        own_users = _unshare(order.uid)
        _become_first_process(report_pid, close_descriptors)
        enter_root(readable, order.file_mb)
        scratch = WORK
    else:
        if abi < ENOUGH:
            raise OSError(f"Landlock version {abi}, needed is {ENOUGH}")
        report_pid(os.getpid())
        scratch = order.scratch
        os.chdir(scratch)
        keep_to_the_jail()
    _limit(order, own_users)
    _become_nobody(order.uid)
    kernel.die_with_parent(signal.SIGKILL)
    kernel.no_dumps()
    kernel.no_new_privileges()
    if abi:
        restrict(abi, readable, (scratch, "/dev/null"))
    without = () if order.tier == "ns" else seccomp.MODES_AND_TIMES
    seccomp.install(seccomp.allow_list(os.getpid(), without))
    return Layers(order.tier, own_users, abi, True)


def _unshare(uid: int) -> bool:
    """Enter namespaces of our own. Returns whether users have one too; a root that may do without saves the mapping."""
    if os.geteuid() == 0:
        try:
            kernel.unshare(_NAMESPACES)
        except PermissionError:
            _become_nobody(uid)
        else:
            return False
    user, group = os.getuid(), os.getgid()
    kernel.unshare(_NAMESPACES | kernel.NEW_USER)
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{_INSIDE_ID} {user} 1"),
        ("gid_map", f"{_INSIDE_ID} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as table:
            table.write(line)
    return True


def _become_first_process(report_pid: Callable[[int], None], close_descriptors: Callable[[], None]) -> None:
    """Fork, and go on as the first process of the namespace; the parent waits here and carries its exit code out."""
    pid = os.fork()
    if not pid:
        return
    report_pid(pid)
    close_descriptors()
    kernel.die_with_parent(signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _limit(order: JailOrder, own_users: bool) -> None:
    """Set the most of this sandbox as resource limits; a run lowers them once, before its first block."""
    limits = {
        resource.RLIMIT_AS: order.memory_bytes,
        resource.RLIMIT_FSIZE: order.file_mb * _MEGABYTE,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if own_users:
        # Elsewhere the count is of all processes of this user, other jails and the service among them.
        limits[resource.RLIMIT_NPROC] = order.threads + OWN_TASKS
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def _become_nobody(uid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        kernel.empty_bounding_set()
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()


def lower_limits(bounds: dict[str, int]) -> None:
    """Lower the resource limits for good: without privileges nobody raises a hard limit."""
    for name, most in bounds.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def keep_to_the_jail() -> None:
    """Have it leave alone what the kernel refuses: the host's tables of file types, and the modes and times of files,
    which `shutil` copies beside their content."""
    mimetypes.knownfiles.clear()
    shutil.copymode = shutil.copystat = _copy_nothing


def _copy_nothing(src: Any, dst: Any, *, follow_symlinks: bool = True) -> None:
    pass
