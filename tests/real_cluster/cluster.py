"""A Kubernetes of one node, as processes in this one's network namespace.

Everything that it writes is below one folder, and `down` leaves neither a process nor a mount behind.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.patience import eventually
from real_cluster.names import NameServer
from real_cluster.programs import CNI

ADDRESS = "10.240.0.1"
"""Of the node, on the bridge that the pods are on."""
_PODS, _SERVICES, _KUBERNETES = "10.240.0.0/24", "10.241.0.0/24", "10.241.0.1"
_API = f"https://{ADDRESS}:6443"
_TOKEN = "of-the-tests"
_VOLUMES = 12
_OURS = ("servers", "etcd", "containerd", "containerd-shim-runc-v2")


class Refused(Exception):
    """A command has failed; says with what words."""


class Cluster:
    """What the tests use of it."""

    def __init__(self, folder: Path, images: Path) -> None:
        self._bin, self._state, self._images = folder / "bin", folder / "state", images
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._names: NameServer | None = None
        self.kubeconfig = self._state / "kubeconfig"

    # --- its use

    def kubectl(self, *arguments: str, given: str = "", timeout: float = 300) -> str:
        """Return what kubectl prints. Raise Refused."""
        return self._out([str(self._bin / "kubectl"), *arguments], given, timeout)

    def helm(self, *arguments: str, timeout: float = 600) -> str:
        """Return what Helm prints. Raise Refused."""
        return self._out([str(self._bin / "helm"), *arguments], "", timeout)

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
            pod["metadata"]["name"]: sum(
                one["restartCount"] for one in pod["status"].get("containerStatuses", [])
            )
            for pod in self.find("pods", "-n", namespace)["items"]
        }

    def stop(self, name: str) -> None:
        """Stop one of the servers; pods go on."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()  # the API server waits for its watchers
            process.wait()

    def _out(self, argv: Sequence[str], given: str, timeout: float) -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self._state)}
        done = subprocess.run(
            argv, env=environment, input=given, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise Refused(f"{' '.join(argv)[:300]}\n{done.stdout}{done.stderr}")
        return done.stdout

    # --- its life

    def up(self) -> None:
        """Start it, and return once a pod can be had. What an earlier one left behind is removed first."""
        self.down()
        self._state.mkdir(parents=True)
        self._network()
        self._credentials()
        self._start(
            "etcd",
            str(self._bin / "etcd"),
            "--data-dir",
            str(self._state / "etcd"),
            "--quota-backend-bytes=536870912",
        )
        self._server("kube-apiserver", *self._of_api())
        self._until(lambda: self.kubectl("get", "--raw", "/readyz") == "ok", "the API server is ready")
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--bind-address=127.0.0.1"]
        self._server(
            "kube-controller-manager",
            *common,
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._state / 'accounts.key'}",
            f"--root-ca-file={self._authority}",
        )
        self._server("kube-scheduler", *common)
        self._containerd()
        self._names = NameServer(ADDRESS, self._lists)
        self._names.start()
        self._kubelet()
        self._proxy()
        self._until(self._is_ready, "the node is ready")
        self.kubectl("apply", "-f", "-", given=self._volumes())

    def down(self) -> None:
        """Stop everything and remove what it has written."""
        if self._names is not None:
            self._names.stop()
        for name in ("kube-proxy", "kubelet"):
            if name in self._processes:
                self.stop(name)
        self._end_containers()
        for name in list(self._processes):
            self.stop(name)
        _unmount(self._state)
        shutil.rmtree(self._state, ignore_errors=True)
        for one in Path("/sys/fs/cgroup").glob("*/cadre-test"):
            _remove_group(one)
        if (one := Path("/sys/fs/cgroup/cadre-test")).exists():
            _remove_group(one)

    def log(self, name: str) -> str:
        """Return the last lines of a server's log."""
        return "".join(
            (self._state / "log" / f"{name}.log").read_text(errors="replace").splitlines(True)[-30:]
        )

    # --- its parts

    def _start(self, name: str, *argv: str) -> None:
        logs = self._state / "log"
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _server(self, name: str, *arguments: str) -> None:
        self._start(name, str(self._bin / "servers"), name, *arguments)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} has ended:\n{self.log(name)}"
            with contextlib.suppress(Refused):
                return condition()
            return False

        eventually(holds, what=what, within=180)

    def _network(self) -> None:
        """A bridge for the pods, with a port so that it is up, and a route for the addresses of services."""
        if "cadre0" in subprocess.check_output(["ip", "-o", "link"], text=True):
            return
        for words in (
            "link set lo up",
            "link add cadre0 type bridge",
            f"addr add {ADDRESS}/24 dev cadre0",
            "link set cadre0 up",
            "link add cadre-a type veth peer name cadre-b",
            "link set cadre-a master cadre0 up",
            "link set cadre-b up",
            "route add default dev cadre0",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        settings = [
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.all.route_localnet=1",
        ]
        subprocess.run(["sysctl", "-qw", *settings], check=True)
        subprocess.run(["sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=False)

    def _credentials(self) -> None:
        """A token that may do everything, and the key that the tokens of service accounts are signed with."""
        key = subprocess.check_output(["openssl", "genrsa", "2048"], stderr=subprocess.DEVNULL)
        (self._state / "accounts.key").write_bytes(key)
        (self._state / "tokens.csv").write_text(f"{_TOKEN},tests,tests,system:masters\n")
        cluster = {"server": _API, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "one", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        self.kubeconfig.write_text(json.dumps(config))

    @property
    def _authority(self) -> Path:
        """The certificate that the API server makes for itself."""
        return self._state / "certificates" / "apiserver.crt"

    def _of_api(self) -> list[str]:
        key = self._state / "accounts.key"
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={ADDRESS}",
            f"--cert-dir={self._state / 'certificates'}",
            f"--service-cluster-ip-range={_SERVICES}",
            f"--token-auth-file={self._state / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--allow-privileged=true",
            "--profiling=false",
        ]

    def _containerd(self) -> None:
        settings = self._state / "containerd.toml"
        socket = self._state / "containerd.sock"
        network = self._state / "cni"
        network.mkdir()
        ranges = [[{"subnet": _PODS, "rangeStart": "10.240.0.10"}]]
        ipam = {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self._state / "ipam"),
        }
        bridge = {"type": "bridge", "bridge": "cadre0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        plugins = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }
        (network / "pods.conflist").write_text(json.dumps(plugins))
        settings.write_text(f"""version = 2
root = "{self._state}/containerd"
state = "{self._state}/containerd-run"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
disable_apparmor = true
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI}"
conf_dir = "{network}"
""")
        self._start("containerd", "containerd", "-c", str(settings))
        self._until(lambda: bool(self._ctr("version")), "containerd answers")
        for one in sorted(self._images.glob("*.tar")):
            self._ctr("-n", "k8s.io", "images", "import", str(one))

    def _ctr(self, *arguments: str) -> str:
        return subprocess.check_output(
            ["ctr", "-a", str(self._state / "containerd.sock"), *arguments],
            text=True,
            stderr=subprocess.STDOUT,
        )

    def _kubelet(self) -> None:
        nothing = {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        }
        (self._state / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self._state / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/cadre-test",
            "failSwapOn": False,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": f"unix://{self._state / 'containerd.sock'}",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": nothing,
            "volumePluginDir": str(self._state / "plugins"),
            "podLogsDir": str(self._state / "pods"),
        }
        (self._state / "kubelet.json").write_text(json.dumps(settings))
        _make_group("cadre-test")
        self._server(
            "kubelet",
            f"--config={self._state / 'kubelet.json'}",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={self._state / 'kubelet'}",
            f"--cert-dir={self._state / 'kubelet-pki'}",
            "--hostname-override=node",
            f"--node-ip={ADDRESS}",
        )

    def _proxy(self) -> None:
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": ADDRESS,
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": _PODS,
            "hostnameOverride": "node",
            "mode": "iptables",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        (self._state / "proxy.json").write_text(json.dumps(settings))
        self._server("kube-proxy", f"--config={self._state / 'proxy.json'}")

    def _is_ready(self) -> bool:
        node = self.find("node", "node")
        told = (node or {}).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in told)

    def _lists(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return self.find("services", "-A")["items"], self.find("endpointslices", "-A")["items"]

    def _volumes(self) -> str:
        """Folders that any claim can have, as the provisioner of a cloud would bring them."""
        classes = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "folders",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        items: list[dict[str, Any]] = [classes]
        for number in range(_VOLUMES):
            folder = self._state / "volumes" / str(number)
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
            spec = {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "folders",
                "hostPath": {"path": str(folder)},
            }
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"folder-{number}"},
                    "spec": spec,
                }
            )
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def _pids(self) -> set[int]:
        return {process.pid for process in self._processes.values()}

    def _end_containers(self) -> None:
        if "containerd" in self._processes:
            for one in self._ctr("-n", "k8s.io", "tasks", "ls", "-q").split():
                subprocess.run(
                    [
                        "ctr",
                        "-a",
                        str(self._state / "containerd.sock"),
                        "-n",
                        "k8s.io",
                        "tasks",
                        "kill",
                        "-s",
                        "SIGKILL",
                        one,
                    ],
                    capture_output=True,
                    check=False,
                )
            self.stop("containerd")
        # Shims outlive containerd, and the servers a run of the tests that was killed: those of this folder alone.
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().decode(errors="replace").split("\0")
                is_here = any(str(self._state) in word for word in words)
                if is_here and Path(words[0]).name in _OURS and int(entry.parent.name) not in self._pids():
                    os.kill(int(entry.parent.name), signal.SIGKILL)
        for group in (*Path("/sys/fs/cgroup").glob("*/cadre-test"), Path("/sys/fs/cgroup/cadre-test")):
            for file in group.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    for pid in file.read_text().split():
                        os.kill(int(pid), signal.SIGKILL)


def _make_group(name: str) -> None:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        (root / name).mkdir(exist_ok=True)
        return
    for group in root.iterdir():
        if not (group / "tasks").exists():
            continue
        (group / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists():
                (group / name / file).write_text((group / file).read_text())


def _remove_group(group: Path) -> None:
    for one in sorted(group.rglob("*"), key=lambda path: -len(path.parts)):
        if one.is_dir():
            with contextlib.suppress(OSError):
                one.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()


def _unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for one in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", one], check=False)
    for namespace in Path("/run/netns").glob("cni-*"):
        if not _is_of_another(namespace):
            subprocess.run(["ip", "netns", "del", namespace.name], check=False)


def _is_of_another(namespace: Path) -> bool:
    """Return whether a process lives in the network namespace."""
    inode = namespace.stat().st_ino
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if entry.stat().st_ino == inode:
                return True
    return False
