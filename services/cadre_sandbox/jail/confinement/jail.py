"""Lock a freshly forked process in by namespaces, mounts, Landlock and seccomp, layer by layer; each layer is
refused or holds, none is skipped silently."""

import ctypes
import mimetypes
import os
import resource
import shutil
import signal
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cadre_sandbox.jail.confinement import kernel, seccomp
from cadre_sandbox.jail.confinement.kernel import (
    LANDLOCK_ADD,
    LANDLOCK_CREATE,
    LANDLOCK_RESTRICT,
    mount,
    syscall,
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
        """Return the layers in the form that the outside reads."""
        return asdict(self)


def enter(order: JailOrder, report_pid: Callable[[int], None], close_descriptors: Callable[[], None]) -> Layers:
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
    """Lower the resource limits for good: raising a hard limit needs privileges."""
    for name, most in bounds.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def keep_to_the_jail() -> None:
    """Make the standard library skip what the kernel refuses: the host's tables of file types, and the modes and times
    of files, which `shutil` copies with their content."""
    mimetypes.knownfiles.clear()
    shutil.copymode = shutil.copystat = _copy_nothing


def _copy_nothing(src: Any, dst: Any, *, follow_symlinks: bool = True) -> None:
    pass


_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in (1, 2, 3, 4, 5))
_MAKE_DIR, _MAKE_FILE, _MAKE_SYMLINK, _REFER, _TRUNCATE = (1 << bit for bit in (7, 8, 12, 13, 14))

ENOUGH = 3
"""The first version that governs truncating; below it the tier cannot be had."""

_ALL = (1 << 15) - 1
_IOCTL_DEVICE = 1 << 15
_TCP = 0b11
_SCOPED = 0b11

READ = _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE | _MAKE_SYMLINK | _REFER | _TRUNCATE
_OF_A_FILE = _READ_FILE | _WRITE_FILE | _TRUNCATE

_ASK_VERSION = 1
_PATH_BENEATH = 1


def version() -> int:
    """Return the kernel's version of Landlock; 0 where it has none."""
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


WORK = "/work"

_LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_COVERED = "/tmp"
"""Path at which the new root is put together, in this process's own view only."""

_STATVFS_BITS = {
    2: kernel.MS_NOSUID,
    4: kernel.MS_NODEV,
    8: kernel.MS_NOEXEC,
    1024: kernel.MS_NOATIME,
    4096: kernel.MS_RELATIME,
}

_MAX_FILES = 4096


def interpreter_files() -> list[str]:
    """Return the paths that Python needs to import: its library, installed packages, the system's shared libraries."""
    paths = sysconfig.get_paths()
    wanted = {os.path.join(sys.base_prefix, "lib"), *(paths[key] for key in ("stdlib", "platstdlib"))}
    wanted |= {paths["purelib"], paths["platlib"], *(path for path in sys.path if "dist-packages" in path)}
    kept: list[str] = []
    for path in sorted({os.path.realpath(path) for path in (*wanted, *_LIBRARIES) if os.path.exists(path)}):
        if not any(path == above or path.startswith(above + "/") for above in kept):
            kept.append(path)
    return kept


def importable(files: list[str]) -> list[str]:
    """Return the entries of sys.path that lie within `files`."""
    real = ((path, os.path.realpath(path)) for path in sys.path if path)
    return [path for path, at in real if any(at == tree or at.startswith(tree + "/") for tree in files)]


def enter_root(readable: list[str], work_mb: int) -> None:
    """Make the new root and enter it; afterwards the working directory is /work. Raises OSError where a step is
    refused."""
    mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    # Opened before anything is covered.
    trees = [(path, os.open(path, os.O_PATH)) for path in readable]
    null = os.open("/dev/null", os.O_PATH)
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV
    mount("tmpfs", _COVERED, "tmpfs", quiet, "size=1m,mode=755")
    os.mkdir(_COVERED + WORK)
    size = f"size={work_mb}m,nr_inodes={_MAX_FILES},mode=777"
    # Before the trees: an installation of Python below a /work of the host stays in sight within it.
    mount("tmpfs", _COVERED + WORK, "tmpfs", quiet | kernel.MS_NOEXEC, size)
    for path, tree in trees:
        _bind(tree, _COVERED + path)
        _restrict(_COVERED + path, kernel.MS_RDONLY | quiet)
        os.close(tree)
    _bind(null, f"{_COVERED}/dev/null")
    os.close(null)
    _link_libraries()
    os.chdir(_COVERED)
    kernel.syscall("pivot_root", kernel.PIVOT_ROOT, b".", b".")
    kernel.unmount(".")
    mount("none", "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | quiet)
    os.chdir(WORK)


def _bind(source: int, target: str) -> None:
    origin = f"/proc/self/fd/{source}"
    if os.path.isdir(origin):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount(origin, target, None, kernel.MS_BIND | kernel.MS_REC)


def _restrict(target: str, flags: int) -> None:
    """Add flags to a mount. Those that it has already must be named again, else the kernel refuses."""
    had = os.statvfs(target).f_flag
    for bit, flag in _STATVFS_BITS.items():
        flags |= flag if had & bit else 0
    mount("none", target, None, kernel.MS_REMOUNT | kernel.MS_BIND | flags)


def _link_libraries() -> None:
    for name in ("lib", "lib64"):
        if os.path.islink(f"/{name}") and not os.path.lexists(f"{_COVERED}/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{_COVERED}/{name}")
