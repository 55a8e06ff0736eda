"""A Kubernetes of one node or more, as processes in the namespaces of this one.

They end with the PID namespace, and everything that they write is below one folder.
"""

import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from real_cluster.names import NameServer
from real_cluster.node import CABLE, GROUP, STATE, Node, Refused, Servers, ends_of_cable

_SERVICES = "10.241.0.0/24"
_PORT = 6443
_TOKEN = "of-the-tests"
_VOLUMES = 40
"""More than all tests claim: one that was used is not given again."""


class Cluster:
    """The cluster as tests use it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.programs, self._state = folder, folder / "bin", folder / STATE
        self._servers = Servers(self._state / "log")
        self._first = Node(folder, 0, self._servers)
        self.further: dict[int, subprocess.Popen[bytes]] = {}
        """The further nodes that have power, by number."""
        self._api = f"https://{self._first.address}:{_PORT}"
        self.kubeconfig = self._state / "kubeconfig"

    # --- its use

    def kubectl(self, *arguments: str, given: str = "", timeout: float = 300) -> str:
        """Return what kubectl prints. Raise Refused."""
        return self._out([str(self.programs / "kubectl"), *arguments], given, timeout)

    def helm(self, *arguments: str, timeout: float = 600) -> str:
        """Return what Helm prints. Raise Refused."""
        return self._out([str(self.programs / "helm"), *arguments], "", timeout)

    def find(self, *arguments: str) -> Any:
        """Return objects as kubectl gets them; None when there is no such object."""
        try:
            return json.loads(self.kubectl("get", *arguments, "-o", "json"))
        except Refused as error:
            if "NotFound" in str(error):
                return None
            raise

    def restarts(self, namespace: str) -> dict[str, int]:
        """Return how often the containers of each pod were started again."""
        return {
            pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
            for pod in self.find("pods", "-n", namespace)["items"]
        }

    def tag(self, image: str, name: str) -> None:
        """Give an image of the first node another name as well."""
        self._first.tag(image, name)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that find `kubectl`, `helm`, `cadre`, and by them this cluster."""
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self._state)}

    def _out(self, argv: Sequence[str], given: str, timeout: float) -> str:
        done = subprocess.run(
            argv,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise Refused(f"{' '.join(argv)[:300]}\n{done.stdout}{done.stderr}")
        return done.stdout

    # --- its life

    def up(self) -> None:
        """Start it, and return once it takes pods."""
        self._first.connect()
        self._credentials()
        self._servers.start(
            "etcd",
            str(self.programs / "etcd"),
            "--data-dir",
            str(self._state / "etcd"),
            "--quota-backend-bytes=536870912",
        )
        self._of_kubernetes("kube-apiserver", *self._of_api())
        self._servers.until(lambda: self.kubectl("get", "--raw", "/readyz") == "ok", "the API server is ready")
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--bind-address=127.0.0.1"]
        self._of_kubernetes(
            "kube-controller-manager",
            *common,
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._state / 'accounts.key'}",
            f"--root-ca-file={self._authority}",
        )
        self._of_kubernetes("kube-scheduler", *common)
        NameServer(self._first.address, self._lists).start()
        self._first.start(self._first.address)
        self._servers.until(lambda: self._is_ready(self._first.name), "the first node is ready")
        self.kubectl("apply", "-f", "-", given=self._volumes())

    def add_node(self, number: int) -> None:
        """Start a further node, and return once it takes pods."""
        node = Node(self._folder, number, self._servers)
        argv = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += [
            sys.executable,
            "-m",
            "real_cluster.node",
            str(self._folder),
            str(number),
            self._first.address,
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.stdout is not None
        with process.stdout as begun:
            assert begun.readline(), "a node has not begun"
        hub, own = ends_of_cable(number)
        for words in (
            f"link add cable{number} type veth peer name {CABLE} netns {process.pid}",
            f"addr add {hub}/30 dev cable{number}",
            f"link set cable{number} up",
            f"route add {node.network} via {own}",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        self.further[number] = process
        self._servers.until(lambda: self._is_ready(node.name), f"{node.name} is ready")

    def kill_node(self, number: int) -> None:
        """Take the power from a further node: all its processes end at once, and nothing answers in its place."""
        network = Node(self._folder, number, self._servers).network
        subprocess.run(["iptables", "-I", "FORWARD", "-d", network, "-j", "DROP"], check=True)
        process = self.further.pop(number)
        process.kill()
        process.wait()

    def add_small_volume(self, name: str, size: str) -> Path:
        """Add a storage class with one volume, on the first node, that holds no more than `size` (as of tmpfs); return
        its folder."""
        folder = self._state / "volumes" / name
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", str(folder)], check=True)
        self.kubectl("apply", "-f", "-", given=json.dumps(_storage_class(name)))
        self.kubectl("apply", "-f", "-", given=json.dumps(_volume(name, name, folder)))
        return folder

    # --- its parts

    def _of_kubernetes(self, name: str, *arguments: str) -> None:
        self._servers.start(name, str(self.programs / "servers"), name, *arguments)

    def _credentials(self) -> None:
        """A token that may do everything, and the key that the tokens of service accounts are signed with."""
        key = subprocess.check_output(["openssl", "genrsa", "2048"], stderr=subprocess.DEVNULL)
        (self._state / "accounts.key").write_bytes(key)
        self._front_proxy()
        (self._state / "tokens.csv").write_text(f"{_TOKEN},tests,tests,system:masters\n")
        cluster = {"server": self._api, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "one", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def _front_proxy(self) -> None:
        """Make the certificate with which the API server asks APIs that pods serve, and its authority."""
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
        authority = ["-CA", str(self._state / "front-ca.crt"), "-CAkey", str(self._state / "front-ca.key")]
        for name, more in (("front-ca", []), ("front", authority)):
            out = ["-keyout", str(self._state / f"{name}.key"), "-out", str(self._state / f"{name}.crt")]
            subprocess.run([*make, "-subj", f"/CN={name}", *more, *out], check=True, capture_output=True)

    @property
    def _authority(self) -> Path:
        """The certificate that the API server makes for itself."""
        return self._state / "certificates" / "apiserver.crt"

    def _of_api(self) -> list[str]:
        key = self._state / "accounts.key"
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={self._first.address}",
            f"--cert-dir={self._state / 'certificates'}",
            f"--service-cluster-ip-range={_SERVICES}",
            f"--token-auth-file={self._state / 'tokens.csv'}",
            f"--secure-port={_PORT}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--requestheader-client-ca-file={self._state / 'front-ca.crt'}",
            "--requestheader-allowed-names=front",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._state / 'front.crt'}",
            f"--proxy-client-key-file={self._state / 'front.key'}",
            "--enable-aggregator-routing=true",
            "--allow-privileged=true",
            "--profiling=false",
        ]

    def _is_ready(self, name: str) -> bool:
        node = self.find("node", name)
        told = (node or {}).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in told)

    def _lists(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return self._listed("api/v1/services"), self._listed("apis/discovery.k8s.io/v1/endpointslices")

    def _listed(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of a list, without a process of kubectl for each look."""
        request = Request(f"{self._api}/{path}", headers={"Authorization": f"Bearer {_TOKEN}"})
        context = ssl.create_default_context(cafile=str(self._authority))
        with urlopen(request, timeout=10, context=context) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
            return items

    def _volumes(self) -> str:
        """Folders that any claim can have, as the provisioner of a cloud would bring them."""
        items = [_storage_class("folders", {"storageclass.kubernetes.io/is-default-class": "true"})]
        for number in range(_VOLUMES):
            folder = self._state / "volumes" / str(number)
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
            items.append(_volume(f"folder-{number}", "folders", folder))
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _storage_class(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations or {}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(name: str, storage_class: str, folder: Path) -> dict[str, Any]:
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": storage_class,
        "hostPath": {"path": str(folder)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def remove_groups() -> None:
    """Remove the control groups of pods that have ended."""
    root = Path("/sys/fs/cgroup")
    for group in (*root.glob(f"*/{GROUP}-*"), *root.glob(f"{GROUP}-*")):
        _remove_group(group)


def _remove_group(group: Path) -> None:
    for one in sorted(group.rglob("*"), key=lambda path: -len(path.parts)):
        if one.is_dir():
            with contextlib.suppress(OSError):
                one.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()
