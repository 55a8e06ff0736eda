"""A Docker daemon for the tests alone, where none runs: without a registry, in a network namespace.

The base image is Debian's, by debootstrap; NATS is this environment's binary. Compose is built from its Go module.
Jaeger is there if `make test-observability` has built it, Prometheus if Debian's package is installed.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import yaml

from containers.engine import ROOT, NoEngine
from harness.nats_server import nats_binary
from real_cluster.images import busybox, libraries, pack

FOLDER = ROOT / "build" / "compose"
COMPOSE = "2.40.3"
_JAEGER = ROOT / "build" / "observability" / "jaeger"
NAMESPACE = "cadre-compose"
_BASE = "cadre-test/python"
_NEEDED = {"dockerd": "docker.io", "debootstrap": "debootstrap", "busybox": "busybox-static", "go": "golang"}
_NOT_BUILT = ("tempo", "grafana", "collector")
"""Services of the profile `full` whose programs cannot be built here."""
_WITHOUT_QDRANT = """
services:
  memory:
    depends_on: !override
      provision: {condition: service_completed_successfully}
    environment: {QDRANT_URL: ""}
  qdrant: !reset null
"""


def settings() -> dict[str, str]:
    """Return the variables by which `docker` finds this engine and Compose."""
    return {
        "DOCKER_HOST": f"unix://{FOLDER}/docker.sock",
        "DOCKER_CONFIG": str(FOLDER / "config"),
        "DOCKER_BUILDKIT": "0",
    }


def override() -> Path:
    """Return a compose file that lets memory keep its index itself: Qdrant's image cannot be had without a registry."""
    file = FOLDER / "without-qdrant.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_WITHOUT_QDRANT)
    return file


@contextmanager
def own_engine(build_arguments: Sequence[str]) -> Iterator[list[list[str]]]:
    """Build the image `cadre` from deploy/Dockerfile, then run the daemon in a network namespace; yield the options of
    each run of the tests, by the profiles whose images are there. Raise NoEngine."""
    missing = [package for program, package in _NEEDED.items() if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise NoEngine(f"an engine of the tests needs root and {', '.join(missing) or 'root'}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    _compose_program()
    # Building fetches packages: that daemon has the machine's network, and makes none of its containers a part of it.
    with _daemon([], ["--bridge=none", "--iptables=false", "--ip6tables=false"]):
        _base_image()
        _plain_image("nats:2.15-alpine", Path(nats_binary()), "nats-server")
        tries: list[list[str]] = [[]]
        if _JAEGER.exists():
            _plain_image(_shipped("jaeger"), _JAEGER, "jaeger")
            tries = [["--profile", "jaeger"]]
        if (prometheus := shutil.which("prometheus")) is not None:
            _plain_image(_shipped("prometheus"), Path(prometheus), "prometheus")
            without = [word for one in _NOT_BUILT for word in ("--without", one)]
            tries += [["--profile", "full", "--quick", *without]]
        arguments = [part for one in build_arguments for part in ("--build-arg", one)]
        context = subprocess.Popen(["tar", "-c", *_context()], cwd=ROOT, stdout=subprocess.PIPE)
        built = ["build", "--quiet", "--network", "host", "--build-arg", f"PYTHON={_BASE}", *arguments]
        _docker(*built, "-f", "deploy/Dockerfile", "-t", "cadre", "-", stdin=context.stdout)
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    inside = ["nsenter", f"--net=/run/netns/{NAMESPACE}"]
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        with _daemon(inside, []):
            yield tries
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


def _context() -> list[str]:
    """Return what deploy/Dockerfile.dockerignore lets in."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    return ["deploy/Dockerfile", *(line[1:] for line in lines if line.startswith("!"))]


@contextmanager
def _daemon(inside: Sequence[str], options: Sequence[str]) -> Iterator[None]:
    places = ["--data-root", FOLDER / "data", "--exec-root", FOLDER / "exec", "--pidfile", FOLDER / "pid"]
    argv = [*inside, "dockerd", "-H", settings()["DOCKER_HOST"], *map(str, places), *options]
    with (FOLDER / "dockerd.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while subprocess.run(["docker", "version"], env=_environment(), capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > end:
                raise NoEngine(f"dockerd does not start: {FOLDER}/dockerd.log says why")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(timeout=120)


def _environment() -> dict[str, str]:
    return {**os.environ, **settings()}


def _docker(*arguments: str, stdin: IO[bytes] | None = None) -> str:
    done = subprocess.run(
        ["docker", *arguments], cwd=ROOT, env=_environment(), stdin=stdin, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode()


def _has(image: str) -> bool:
    return bool(_docker("images", "--quiet", image).strip())


def _base_image() -> None:
    """Debian with Python, and with the certificates that this machine trusts."""
    if _has(_BASE):
        return
    root = FOLDER / "debian"
    shutil.rmtree(root, ignore_errors=True)
    packages = "python3,python3-venv,ca-certificates"
    print("test-compose: making a base image with debootstrap", file=sys.stderr)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    trusted = Path("etc/ssl/certs/ca-certificates.crt")
    shutil.copy(Path("/") / trusted, root / trusted)
    packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    _docker("import", "-", _BASE, stdin=packed.stdout)
    shutil.rmtree(root)


def _shipped(service: str) -> str:
    """Return the image of a service of docker-compose.yml."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return str(services[service]["image"])


def _plain_image(name: str, program: Path, command: str) -> None:
    """Make an image of a program and the libraries that it is linked with."""
    root = FOLDER / "plain"
    shutil.rmtree(root, ignore_errors=True)
    busybox(root)
    shutil.copy(program, root / "bin" / command)
    for one in libraries(program):
        to = root / one.relative_to("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(one), to)
    pack(root, FOLDER / "plain.tar", name, [command])
    _docker("load", "--quiet", "--input", str(FOLDER / "plain.tar"))


def _compose_program() -> None:
    to = FOLDER / "config" / "cli-plugins" / "docker-compose"
    if to.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    source = FOLDER / "go"
    source.mkdir(exist_ok=True)
    (source / "go.mod").write_text("module example/compose\n\ngo 1.26.0\n")
    package = "github.com/docker/compose/v2/cmd"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
    print("test-compose: building Docker Compose", file=sys.stderr)
    for argv in (
        ["go", "get", "-tool", f"{package}@v{COMPOSE}"],
        ["go", "build", "-ldflags", "-s -w", "-o", str(to), package],
    ):
        subprocess.run(argv, cwd=source, env=environment, check=True, stderr=subprocess.DEVNULL)
