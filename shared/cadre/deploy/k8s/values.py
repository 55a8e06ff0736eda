"""The values of a deployment: where NATS is, how many replicas, and any field of any pod; and one value as the command
line gives it: `--set KEY=VALUE`."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import NAME, merged
from cadre.errors import SpecError
from cadre.spec.model import Price
from cadre.spec.names import check_name, checked_path
from cadre.spec.prices import check_prices
from cadre.spec.yaml_file import parse_yaml
from cadre.structs import misfit_of


def _container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def _resources(cpu: str, memory: str, limits: dict[str, str]) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


def _tmp(size: str) -> dict[str, Any]:
    # In memory, so that the size is a hard limit: a folder on disk that outgrows its limit evicts the pod.
    return {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]}


_WORKLOADS: dict[str, dict[str, Any]] = {
    # Measured, as docs/kubernetes.md has it. A service that waits for its model or its bus needs hardly any processor,
    # and when it has work it may take what is idle: no limit.
    "*": {
        "drain": 60,
        "pod": {**_container(resources=_resources("10m", "96Mi", {"memory": "512Mi"})), **_tmp("64Mi")},
    },
    "agent/*": {"drain": 120, "internet": True, "scale": {"min": 1, "max": 10, "lag": 64}},
    "tools/*": {"scale": {"min": 1, "max": 10, "lag": 32}},
    "sandbox/*": {
        "drain": 30,
        "scale": {"min": 1, "max": 10, "lag": 8},
        # Blocks at work are bounded by the pod's limits, not by the processors of its node.
        "env": {"CADRE_SANDBOX_TIER": "landlock", "CADRE_SANDBOX_CONCURRENCY": "4"},
        "pod": {
            **_container(resources=_resources("50m", "128Mi", {"cpu": "2", "memory": "3Gi"})),
            **_tmp("512Mi"),
        },
    },
    "memory": {"drain": 30, "pod": _container(resources=_resources("20m", "128Mi", {"memory": "1Gi"}))},
    "gateway": {
        "replicas": 2,
        "drain": 35,
        "linger": 5,
        "pod": _container(resources=_resources("20m", "128Mi", {})),
    },
    "provision": {},
}
"""Defaults of each kind of service, in the form of the value `workloads`."""

GATEWAY_SECRET = "cadre-gateway"
"""The Secret with the key of the gateway's first administrator, and with what it proves itself by to a provider."""

_ROLES = ("agent", "tools", "sandbox", "memory", "gateway", "tracer", "provision")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([kMGTPE]i?)?")
_HOST = re.compile(r"[A-Za-z0-9.*_-]+(:\d{1,5})?")
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:/]+):\d{1,5}")


def _named(name: str) -> Any:
    return msgspec.field(default_factory=lambda: {NAME: name})


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings with which KEDA scales replicas by the messages that wait in the queues."""

    min: int = 1
    max: int = 10
    lag: int = 64
    """Messages, waiting or at work, that one replica is meant to have."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of one service."""

    replicas: int | None = 1
    """Replicas where nothing scales them; null: somebody else counts them."""
    scale: Scale | None = None
    drain: int = 60
    """Seconds that work in flight is given after SIGTERM."""
    failover: int = 0
    """Seconds after which its pods leave a node that Kubernetes holds for dead; not those that own a volume."""
    linger: int = 0
    """Seconds between the end of its pod being decided and SIGTERM, for proxies to stop sending requests."""
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    """Variables from Secrets: `<secret>/<key>` by variable."""
    internet: bool = False
    """True if it may reach any address, except link-local ones, on the ports of HTTPS and of the model endpoint."""
    hosts: list[str] = []
    """With `cilium`: the hosts that it may reach besides the endpoints that it is given, as `NAME` or `NAME:PORT`."""
    tools: list[str] = []
    """Names of the module's tools, where it cannot be imported to find them."""
    pod: dict[str, Any] = {}
    """Laid over the whole PodSpec; the service's container is named `main`."""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that services talk to."""

    url: str = ""
    pods: dict[str, str] = {}
    """Labels of its pods; none when it is outside the cluster."""
    namespace: str = ""
    """Namespace of its pods; the services' own when empty."""

    @property
    def urls(self) -> list[str]:
        """Return the URL of each of its servers."""
        return [self.url]


class NatsTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The certificates by which services and the NATS server authenticate each other."""

    secret: str = ""
    """Secret with the key ca.crt of the server's authority; empty: that of the system, or no TLS."""
    client: bool = False
    """True if the Secret has tls.crt and tls.key as well, for a server that asks its clients for a certificate."""


class Nats(Peer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NATS server or cluster, and what Cadre has on it."""

    url: str = "nats://nats:4222"
    """Of each server where there are several, with commas between them."""
    pods: dict[str, str] = _named("nats")
    monitor: str = ""
    """Host and port of its monitoring, for KEDA: its headless service, or a cluster's followers answer as well."""
    account: str = "$G"
    prefix: str = "cadre"
    shards: Annotated[int, Meta(ge=1, le=256)] = 4
    """Streams; the bounds are those of CADRE_SHARDS."""
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """Copies of each stream; the bounds are those of CADRE_REPLICAS."""
    tls: NatsTls = NatsTls()
    credentials: str = "cadre-nats-{workload}"
    """Name of the Secret that each service has its NATS credentials from, `{role}` (agent, tools, …) and
    `{workload}` (agent-manager, …) in it replaced; empty: none is mounted, for a server that asks for no user."""

    @property
    def urls(self) -> list[str]:
        """Return the URL of each server."""
        return [one.strip() for one in self.url.split(",")]


class Qdrant(Peer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Qdrant server of the memory service."""

    url: str = "http://qdrant:6333"
    pods: dict[str, str] = _named("qdrant")
    secret: str = ""
    """Secret with the key QDRANT_API_KEY; empty: the server asks for none."""


class Index(Peer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The PostgreSQL server that the gateways share their index of runs in; without `secret` each has a file."""

    url: str = "postgresql://postgresql:5432"
    """Its URL, for the NetworkPolicy alone: the one to which the gateways connect is in the Secret, with the
    password."""
    pods: dict[str, str] = _named("postgresql")
    secret: str = ""
    """Secret with the key CADRE_INDEX_URL."""


class Telemetry(Peer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenTelemetry collector; without `url` nothing is sent."""

    pods: dict[str, str] = _named("opentelemetry-collector")
    scraper: str = ""
    """Namespace that may read the services' own HTTP endpoints: a Prometheus's."""


class ModelEndpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model endpoint of agents whose spec names none."""

    url: str = ""
    name: str = ""
    secret: str = "cadre-model"
    """Secret with the keys of all model endpoints, by the name of the variable that holds them."""


class Storage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A volume that a service claims."""

    size: str = "10Gi"
    class_name: str = msgspec.field(default="", name="className")
    """Its storage class; empty: the cluster's default."""


class MemoryService(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory service."""

    enabled: bool | None = None
    """True if there is one; None: where an agent's spec asks for it."""
    engine: Literal["qdrant", "embedded"] = "qdrant"
    """The place of its index: on the Qdrant server, or in a file on its own volume, with one replica."""
    storage: Storage = Storage()
    """The volume of the embedded index."""


class GatewayAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The credentials of the gateway and of its administrator, and where it is reached."""

    secret: str = GATEWAY_SECRET
    """Secret with the keys CADRE_ADMIN_KEY and CADRE_OIDC_CLIENT_SECRET, as the gateway needs them. The operator makes
    one of the default name."""
    path: str = ""
    """The path of its host name that it is below, such as `/agents`."""


class Values(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All values of a deployment, as docs/deploy.md shows them."""

    image: str = "cadre"
    namespace: str = "cadre"
    instance: str = ""
    """The prefix of the names of all objects: teams that share a namespace have one each, or all but one do."""
    keda: bool = True
    """True if replicas follow the queues (needs KEDA in the cluster)."""
    cilium: bool = False
    """True if who may leave the cluster reaches named hosts alone (needs Cilium as the cluster's network)."""
    files: str = ""
    """The path of the team's folder in the image; empty: its files travel in a ConfigMap."""
    nats: Nats = Nats()
    model: ModelEndpoint = ModelEndpoint()
    prices: dict[str, Price] = {}
    """The price table: what a million tokens of a model cost, by its name."""
    qdrant: Qdrant = Qdrant()
    index: Index = Index()
    telemetry: Telemetry = Telemetry()
    gateway: GatewayAccess = GatewayAccess()
    memory: bool | MemoryService | None = None
    """The memory service, or whether there is one; None: where an agent's spec asks for it."""
    pools: list[str] = []
    """Sandboxes besides those that the team's agents need."""
    workloads: dict[str, dict[str, Any]] = {}
    """By name (`agent/manager`, `gateway`) or pattern (`agent/*`), the narrower ones over the wider ones."""

    @property
    def monitor(self) -> str:
        """Host and port of the monitoring of NATS."""
        namespace = self.nats.namespace or self.namespace
        return self.nats.monitor or f"nats-headless.{namespace}.svc.cluster.local:8222"

    @property
    def memory_service(self) -> MemoryService:
        """Return the values of the memory service, in their long form."""
        return self.memory if isinstance(self.memory, MemoryService) else MemoryService(enabled=self.memory)

    @property
    def embeds_memories(self) -> bool:
        """Return whether the memory service keeps its index itself, on a volume."""
        return self.memory_service.engine == "embedded"

    def workload(self, key: str) -> Workload:
        """Return the values of a service, by its key. Raises SpecError."""
        return _workload(key, _matching(self.workloads, key, _matching(_WORKLOADS, key, {})))


def read_values(*layers: Mapping[str, Any]) -> Values:
    """The later layers lie over the earlier ones. Raises SpecError naming the key."""
    data = merged_layers(*layers)
    workloads = data.pop("workloads", None)
    data = merged({}, data)
    for key, one in workloads.items() if isinstance(workloads, dict) else ():
        if not isinstance(one, dict):
            raise SpecError(f"workloads: {key}: must be a mapping, as docs/deploy.md shows")
    if workloads is not None:  # what stands null there takes away what a default says
        data["workloads"] = workloads
    try:
        values = msgspec.convert(data, Values)
    except msgspec.ValidationError as error:
        raise SpecError(str(misfit_of(error))) from error
    _check_names(values)
    _check_addresses(values)
    _check_nats(values.nats)
    try:
        check_prices(values.prices)
    except SpecError as error:
        raise SpecError(f"prices: {error}") from error
    for key, settings in values.workloads.items():
        _check_workload(key, settings)
    return values


def _check_names(values: Values) -> None:
    if values.instance and object_name(values.instance) != values.instance:
        raise SpecError(f"instance: {values.instance!r}: use at most 52 of the letters a-z, digits and '-'")
    namespaces = {
        "nats.namespace": values.nats.namespace,
        "qdrant.namespace": values.qdrant.namespace,
        "index.namespace": values.index.namespace,
        "telemetry.namespace": values.telemetry.namespace,
        "telemetry.scraper": values.telemetry.scraper,
    }
    for key, name in {"namespace": values.namespace, **{k: n for k, n in namespaces.items() if n}}.items():
        if not _NAMESPACE.fullmatch(name):
            raise SpecError(f"{key}: {name!r}: a namespace has 1 to 63 of the letters a-z, digits and '-'")
    if not values.gateway.secret:
        raise SpecError("gateway.secret: name the Secret that has CADRE_ADMIN_KEY")
    try:
        checked_path(values.gateway.path)
    except ValueError as error:
        raise SpecError(f"gateway.path: {values.gateway.path!r}: {error}") from error
    storage = values.memory_service.storage
    if not _QUANTITY.fullmatch(storage.size):
        raise SpecError(f"memory.storage.size: {storage.size!r}: write a size, as in 10Gi")
    if values.image.split() != [values.image]:
        raise SpecError(f"image: {values.image!r}: name an image, as in registry.example/cadre:TAG")
    if values.files and not values.files.startswith("/"):
        raise SpecError(f"files: {values.files!r}: write where the folder is in the image, from the root /")
    for pool in values.pools:
        check_name("pools: the", pool)


def _check_addresses(values: Values) -> None:
    asked = [
        *(("nats.url", url, ("nats", "tls")) for url in values.nats.urls),
        ("qdrant.url", values.qdrant.url, ("http", "https")),
        ("index.url", values.index.url, ("postgresql", "postgres")),
    ]
    if values.telemetry.url:
        asked.append(("telemetry.url", values.telemetry.url, ("http", "https")))
    if values.model.url:
        asked.append(("model.url", values.model.url, ("http", "https")))
    for key, url, schemes in asked:
        try:
            port_of(url)
        except SpecError as error:
            raise SpecError(f"{key}: {error}") from error
        parts = urlsplit(url)
        if not parts.hostname:
            raise SpecError(f"{key}: {url!r} is no URL with a host")
        if parts.scheme not in schemes:
            raise SpecError(f"{key}: {url!r}: must begin with {' or '.join(f'{one}://' for one in schemes)}")


def _check_nats(nats: Nats) -> None:
    check_name("nats.prefix: the", nats.prefix)
    if re.search(r"[{}]", re.sub(r"\{(role|workload)\}", "", nats.credentials)):
        raise SpecError(f"nats.credentials: {nats.credentials!r}: only {{role}} and {{workload}} stand in braces")
    if nats.tls.client and not nats.tls.secret:
        raise SpecError("nats.tls.client: name the Secret that has tls.crt and tls.key, in nats.tls.secret")
    if nats.monitor and not _HOST_AND_PORT.fullmatch(nats.monitor):
        raise SpecError(f"nats.monitor: {nats.monitor!r}: write HOST:PORT, as in nats.example:8222")


def _check_workload(key: str, settings: Mapping[str, Any]) -> None:
    role, *_ = key.split("/")
    if "*" in key and not any(fnmatchcase(one, role) for one in _ROLES):
        raise SpecError(f"workloads: {key!r} matches no service; they begin with {', '.join(_ROLES)}")
    for host in _workload(key, settings).hosts:
        if not _HOST.fullmatch(host):
            raise SpecError(f"workloads: {key}: hosts: {host!r}: write NAME or NAME:PORT")


def _workload(key: str, settings: Mapping[str, Any]) -> Workload:
    # What is null in a pod takes away what the service's own has.
    pod = settings.get("pod")
    found = merged({}, {name: value for name, value in settings.items() if name != "pod"})
    if "replicas" in settings:
        found["replicas"] = settings["replicas"]
    try:
        return msgspec.convert({**found, **({} if pod is None else {"pod": pod})}, Workload)
    except msgspec.ValidationError as error:
        raise SpecError(f"workloads: {key}: {misfit_of(error)}") from error


def merged_layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers as one: the later ones lie over the earlier ones, and what is null in them stays so."""
    data: dict[str, Any] = {}
    for layer in layers:
        if isinstance(enabled := layer.get("memory"), bool):
            layer = {**layer, "memory": {"enabled": enabled}}
        data = merged(data, layer, nulls=True)
    if isinstance(workloads := data.get("workloads"), dict):
        data["workloads"] = {key: one for key, one in workloads.items() if one is not None}
    return data


def check_names(values: Values, names: list[str]) -> None:
    """Raise SpecError for a workload that the deployment does not have; a pattern may match none."""
    for key in values.workloads:
        if "*" not in key and key not in names:
            raise SpecError(f"workloads: there is no {key!r}; there are: {', '.join(names)}")


def port_of(url: str) -> int:
    """Port of a URL; that of its scheme when it names none. Raises SpecError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError(f"{url!r} is no URL: {error}") from error
    return port or {"http": 80, "nats": 4222, "tls": 4222, "postgresql": 5432}.get(parts.scheme, 443)


def is_address(url: str) -> bool:
    """Return whether the URL's host needs no name server."""
    try:
        ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    return True


def _matching(workloads: Mapping[str, Mapping[str, Any]], key: str, found: Any) -> Any:
    patterns = [pattern for pattern in workloads if fnmatchcase(key, pattern)]
    for pattern in sorted(patterns, key=lambda p: ("*" not in p, len(p))):
        # Null is a value of these; elsewhere it is what the wider ones say.
        over = {
            name: one for name, one in workloads[pattern].items() if one is not None or name in ("replicas", "scale")
        }
        found = merged(found, over, nulls=True)
    return found


_ASSIGNMENT = re.compile(r"((?:\\.|[^\\=])+)=(.*)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\.])+")
_INDEX = re.compile(r"\[\d*\]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")

_DOTS = r"a dot that belongs to a key is written \., as in 'nats.pods.app\.kubernetes\.io/name=nats'"

_NEEDED = {int: "a whole number", float: "a number", bool: "true or false"}


def setting(assignment: str) -> dict[str, Any]:
    """Return the layer that `a.b=value` stands for. Raises SpecError.

    `\\.` is a dot within a key. Where the value is a text, VALUE is it as it stands; else it is a number, true, false,
    null, or in brackets, braces or quotes YAML, so JSON too.
    """
    found = _ASSIGNMENT.fullmatch(assignment)
    path = found[1] if found else ""
    keys = [re.sub(r"\\(.)", r"\1", key) for key in _KEY.findall(path)]
    if found is None or not keys or len(keys) != len(re.findall(r"(?<!\\)\.", path)) + 1:
        raise SpecError(f"--set {assignment!r}: write KEY=VALUE, as in nats.shards=8")
    value = _value(assignment, found[2], _kind_of(assignment, keys))
    for key in reversed(keys):
        value = {key: value}
    layer: dict[str, Any] = value
    return layer


def _kind_of(assignment: str, keys: list[str]) -> Any:
    """Return the type of the value at this place. Raises SpecError for a key that there is not."""
    kind: Any = Values
    for place, key in enumerate(keys):
        so_far = ".".join(keys[:place])
        if _INDEX.search(key):
            raise SpecError(f"--set {assignment!r}: a list is set as a whole: --set '{_cut(key, so_far)}=[…]'")
        if kind is Any:
            return Any
        # What is given in short or as a mapping: below it there are the mapping's keys.
        if get_origin(kind) in (Union, UnionType):
            kind = next((one for one in get_args(kind) if _is_struct(one)), kind)
        if _is_struct(kind):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            if key not in fields:
                there_are = f"{so_far or 'the values'}: no key `{key}`; there are {', '.join(fields)}"
                raise SpecError(f"--set {assignment!r}: {there_are}" + f"; {_DOTS}" * (place > 1))
            kind = _bare(fields[key])
        elif get_origin(kind) is dict:
            # The values of a workload are checked once all layers are one: until then they are any mapping.
            kind = Workload if place == 1 and keys[0] == "workloads" else get_args(kind)[1]
        else:
            raise SpecError(f"--set {assignment!r}: {so_far} has no keys below it; {_DOTS}")
    return kind


def _cut(key: str, before: str) -> str:
    return ".".join(filter(None, [before, _INDEX.sub("", key)]))


def _bare(kind: Any) -> Any:
    """Return the type without bounds and without None."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    options = [one for one in get_args(kind) if one is not NoneType]
    return options[0] if NoneType in get_args(kind) and len(options) == 1 else kind


def _value(assignment: str, text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        return None
    is_list, is_mapping = get_origin(kind) is list, get_origin(kind) is dict or _is_struct(kind)
    if text[:1] in ("{", "[", '"', "'"):
        if is_list and text.startswith("{"):
            # As Helm writes a list.
            text = f"[{text[1:].removesuffix('}')}]"
        try:
            return parse_yaml(text, f"--set {assignment!r}", SpecError)
        except SpecError as error:
            raise SpecError(f"{error}; the shell needs quotes around the whole: --set 'KEY={{…}}'") from error
    if is_list or is_mapping:
        raise SpecError(
            f"--set {assignment!r}: needs a {'list' if is_list else 'mapping'}: --set"
            f" 'KEY={'[…]' if is_list else '{…}'}', or null for none"
        )
    if kind is float and _NUMBER.fullmatch(text):
        return float(text)
    try:
        return int(text)
    except ValueError:
        if kind in _NEEDED:
            more = "; give each value its own --set" * ("," in text)
            raise SpecError(f"--set {assignment!r}: needs {_NEEDED[kind]}{more}") from None
        return text


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
