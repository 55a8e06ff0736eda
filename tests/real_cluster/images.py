"""Container images without a registry: folders packed as `docker save` packs them, for containerd to import."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.nats_server import nats_binary
from real_cluster.programs import KEDA

ROOT = Path(__file__).parents[2]
USER = 10001
_HOME = "/opt/cadre"
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "*.a", "site-packages", "turtledemo"
)


def make_all(folder: Path, programs: Path) -> None:
    """Make the images that a cluster of the tests needs into `folder`, but for those of services."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "root"
    plain: list[tuple[str, str, list[str], dict[str, str]]] = [
        ("pause", "localhost/pause:1", ["sleep", "2147483647"], {})
    ]
    plain.append(("nats", "docker.io/library/nats:2.15-alpine", ["nats-server"], {"nats-server": nats_binary()}))
    reloader = programs / "nats-server-config-reloader"
    name = f"docker.io/natsio/{reloader.name}:0.23.0"
    plain.append(("reloader", name, [reloader.name], {reloader.name: str(reloader)}))
    for one in ("operator", "adapter"):
        name = f"docker.io/library/keda-{one}:{KEDA}"
        plain.append((f"keda-{one}", name, [f"keda-{one}"], {f"keda-{one}": str(programs / "keda" / one)}))
    for file, name, entrypoint, binaries in plain:
        if (folder / f"{file}.tar").exists():
            continue
        shutil.rmtree(root, ignore_errors=True)
        busybox(root)
        for binary, source in binaries.items():
            shutil.copy(source, root / "bin" / binary)
        pack(root, folder / f"{file}.tar", name, entrypoint)


def make_cadre(folder: Path, tag: str) -> None:
    """Make the image of the services from this checkout, as deploy/Dockerfile does: this Python with what it needs, the
    locked packages, and Cadre's wheel."""
    root, site = folder / "cadre-root", f"{_HOME}/lib/python3/site-packages"
    if not (root / ".whole").exists():
        shutil.rmtree(root, ignore_errors=True)
        busybox(root)
        _python(root, site)
        (root / "data").mkdir()
        _compile(root, root)
        (root / ".whole").touch()
    wheels = folder / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
    for old in root.joinpath(site.lstrip("/")).glob("cadre*"):
        shutil.rmtree(old)
    [wheel] = wheels.glob("*.whl")
    _install(root, site, "--no-deps", str(wheel))
    _compile(root, *root.joinpath(site.lstrip("/")).glob("cadre*"))
    pack(
        root,
        folder / f"cadre-{tag}.tar",
        f"docker.io/library/cadre:{tag}",
        ["cadre"],
        user=str(USER),
        owned=["data"],
    )


def _compile(root: Path, *folders: Path) -> None:
    """Compile the modules below folders of a root. Services cannot write there: each start would compile them again."""
    options = ["-q", "-s", str(root), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    argv = [sys.executable, "-m", "compileall", *options, *map(str, folders)]
    # Some packages have files for other versions of Python.
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL)


def busybox(root: Path) -> None:
    """Write a root that has busybox and nothing else."""
    for name in ("bin", "etc", "tmp", "usr/bin", "var/run", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    binary = shutil.which("busybox")
    assert binary is not None
    shutil.copy(binary, root / "bin" / "busybox")
    for applet in subprocess.check_output([binary, "--list"], text=True).split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/:/bin/sh\ncadre:x:{USER}:{USER}::/tmp:/bin/sh\n")
    (root / "etc" / "group").write_text(f"root:x:0:\ncadre:x:{USER}:\n")


def _python(root: Path, site: str) -> None:
    """The interpreter at its own place, so that it finds its library, and an environment with the locked packages."""
    base, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(base)}))
    binary = Path(os.path.realpath(sys.executable))
    for source in (library, binary):
        to = root / source.relative_to("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, ignore=_LEFT_OUT, symlinks=True)
        else:
            shutil.copy(source, to)
    home = root / _HOME.lstrip("/")
    (home / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(binary)
    (home / "pyvenv.cfg").write_text(f"home = {binary.parent}\ninclude-system-site-packages = false\n")
    (home / "lib" / version).mkdir(parents=True)
    (home / "lib" / "python3").symlink_to(version)
    _install(root, site, "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    for one in {*libraries(binary, library.rglob("*.so"), (root / site.lstrip("/")).rglob("*.so"))}:
        to = root / one.relative_to("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(one), to)
    for name in ("/etc/ssl/certs/ca-certificates.crt", "/usr/share/zoneinfo/UTC"):
        if Path(name).exists():
            (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, root / name.lstrip("/"))


def libraries(binary: Path, *more: Iterable[Path]) -> Iterator[Path]:
    """Return the shared libraries of the system that these files are linked with."""
    files = [binary, *(one for many in more for one in many)]
    told = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", told, re.MULTILINE):
        if path.startswith(("/lib", "/usr/lib", sys.base_prefix)):
            yield Path(path)


def _install(root: Path, site: str, *what: str) -> None:
    to = root / site.lstrip("/")
    _run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--no-compile",
        "--target",
        str(to),
        *what,
    )
    scripts = root / _HOME.lstrip("/") / "bin"
    for one in (to / "bin").glob("*"):
        body = one.read_text(errors="replace").partition("\n")[2]
        (scripts / one.name).write_text(f"#!{_HOME}/bin/python\n{body}")
        (scripts / one.name).chmod(0o755)
    shutil.rmtree(to / "bin", ignore_errors=True)


def _run(*argv: str) -> None:
    subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def pack(
    root: Path, to: Path, name: str, entrypoint: Sequence[str], *, user: str = "", owned: Sequence[str] = ()
) -> None:
    """Pack a folder as an image of one layer. All of it is root's, but for `owned`, which are the services' user's."""

    def plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
        about.uid = about.gid = USER if about.name.removeprefix("./") in owned else 0
        about.uname = about.gname = ""
        if about.isdir() and about.mode & 0o700 == 0o700:
            about.mode |= 0o055
        return about

    layer = to.with_suffix(".layer")
    with tarfile.open(layer, "w") as packed:
        packed.add(root, ".", filter=plain)
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    environment: Mapping[str, str] = {
        "PATH": f"{_HOME}/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
    }
    settings = {
        "Entrypoint": [*entrypoint],
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "User": user,
        "WorkingDir": "/tmp",
    }
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    index = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(to.with_suffix(".part"), "w") as whole:
        for file, content in (("manifest.json", index), ("config.json", about)):
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            whole.addfile(entry, io.BytesIO(data))
        whole.add(layer, "layer.tar")
    layer.unlink()
    to.with_suffix(".part").rename(to)
