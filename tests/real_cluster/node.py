"""A node of a cluster of the tests: containerd, kubelet and kube-proxy, and the bridge that its pods are on.

The first node is in the namespaces of the control plane. Each other one has its own namespaces, in which this module
is the first process: it loses power when that is killed, with all that runs on it.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness.patience import eventually
from real_cluster.programs import CNI

PODS = "10.240.0.0/16"
GROUP = "cadre-test"
STATE = "state"
CABLE = "up0"
"""The interface of a further node that leads to the first one."""


class Refused(Exception):
    """A command has failed; says with what words."""


class Servers:
    """Processes that log into files of a folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *argv: str) -> None:
        """Start a server. Its parent may be the first process of its namespace, and then reaps all."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds, while all servers run. It may raise Refused."""

        def holds() -> bool:
            for name, process in self._processes.items():
                log = (self._logs / f"{name}.log").read_text(errors="replace").splitlines(True)
                assert process.poll() is None, f"{name} has ended:\n{''.join(log[-30:])}"
            with contextlib.suppress(Refused):
                return condition()
            return False

        eventually(holds, what=what, within=180)


class Node:
    """One node of the cluster below `folder`. The first has the number 0."""

    def __init__(self, folder: Path, number: int, servers: Servers) -> None:
        self.name = f"node-{number}"
        self.address = f"10.240.{number}.1"
        """On the bridge that its pods are on."""
        self.network = f"10.240.{number}.0/24"
        self._number = number
        self._servers, self._images, self._program = servers, folder / "images", folder / "bin" / "servers"
        self._kubeconfig = folder / STATE / "kubeconfig"
        self.state = folder / STATE / self.name

    def connect(self) -> None:
        """Make a bridge for the pods, with a port so that it is up, and a route to all other addresses."""
        self.state.mkdir(parents=True)
        for words in (
            "link set lo up",
            "link add cadre0 type bridge",
            f"addr add {self.address}/24 dev cadre0",
            "link set cadre0 up",
            "link add cadre-a type veth peer name cadre-b",
            "link set cadre-a master cadre0 up",
            "link set cadre-b up",
            *(self._cabled() if self._number else ["route add default dev cadre0"]),
        ):
            subprocess.run(["ip", *words.split()], check=True)
        settings = [
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
            "net.ipv4.conf.all.route_localnet=1",
        ]
        subprocess.run(["sysctl", "-qw", *settings], check=True)
        subprocess.run(["sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=False)

    def _cabled(self) -> list[str]:
        hub, own = ends_of_cable(self._number)
        return [f"addr add {own}/30 dev {CABLE}", f"link set {CABLE} up", f"route add default via {hub}"]

    def start(self, name_server: str) -> None:
        """Start its servers; it is ready some time later."""
        self._containerd()
        self._kubelet(name_server)
        self._proxy()

    def tag(self, image: str, name: str) -> None:
        """Give an image of the node another name as well."""
        library = "docker.io/library"
        self._ctr("-n", "k8s.io", "images", "tag", f"{library}/{image}", f"{library}/{name}")

    def _containerd(self) -> None:
        settings = self.state / "containerd.toml"
        socket = self.state / "containerd.sock"
        network = self.state / "cni"
        network.mkdir()
        ranges = [[{"subnet": self.network, "rangeStart": f"{self.address}0"}]]
        ipam = {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.state / "ipam"),
        }
        bridge = {"type": "bridge", "bridge": "cadre0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        plugins = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }
        (network / "pods.conflist").write_text(json.dumps(plugins))
        settings.write_text(f"""version = 2
root = "{self.state}/containerd"
state = "{self.state}/containerd-run"
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
        self._servers.start("containerd", "containerd", "-c", str(settings))
        self._servers.until(lambda: bool(self._ctr("version")), "containerd answers")
        for one in sorted(self._images.glob("*.tar")):
            self._ctr("-n", "k8s.io", "images", "import", str(one))

    def _ctr(self, *arguments: str) -> str:
        argv = ["ctr", "-a", str(self.state / "containerd.sock"), *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _kubelet(self, name_server: str) -> None:
        nothing = {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        }
        (self.state / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [name_server],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.state / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{GROUP}-{self._number}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": f"unix://{self.state / 'containerd.sock'}",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": nothing,
            "volumePluginDir": str(self.state / "plugins"),
            "podLogsDir": str(self.state / "pods"),
        }
        (self.state / "kubelet.json").write_text(json.dumps(settings))
        _make_group(f"{GROUP}-{self._number}")
        self._servers.start(
            "kubelet",
            *(str(self._program), "kubelet"),
            f"--config={self.state / 'kubelet.json'}",
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={self.state / 'kubelet'}",
            f"--cert-dir={self.state / 'kubelet-pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def _proxy(self) -> None:
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": self.address,
            "clientConnection": {"kubeconfig": str(self._kubeconfig)},
            "clusterCIDR": PODS,
            "hostnameOverride": self.name,
            "mode": "iptables",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        (self.state / "proxy.json").write_text(json.dumps(settings))
        config = f"--config={self.state / 'proxy.json'}"
        self._servers.start("kube-proxy", str(self._program), "kube-proxy", config)


def ends_of_cable(number: int) -> tuple[str, str]:
    """Return the addresses of the cable between the first node and another one, the first node's first."""
    return f"10.242.{number}.1", f"10.242.{number}.2"


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


def main(folder: Path, number: int, name_server: str) -> None:
    """Run a further node, as the first process of its namespaces, until it is killed."""
    node = Node(folder, number, Servers(folder / STATE / f"node-{number}" / "log"))
    print("in its namespaces", flush=True)
    cable = Path("/proc/sys/net/ipv4/conf") / CABLE
    eventually(cable.exists, what="the cable is there")
    node.connect()
    node.start(name_server)
    while True:
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
