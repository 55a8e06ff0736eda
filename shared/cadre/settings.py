"""Settings from the environment, which nothing else reads; a service reads its own ones with `read`."""

import os
import re
import socket
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from cadre.errors import SettingError
from cadre.protocol.nats_users import addresses
from cadre.protocol.topology import DEFAULT_PREFIX
from cadre.spec.names import checked_path

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SYNC_ALWAYS = "always"

OPEN_DOORS = ("openai", "a2a", "agui")
"""The protocols that a gateway speaks in addition to the native API by default: they need no further package."""
# What also stands for itself as a variable in a server's file, where `2m` would be two million.
_INTERVAL = re.compile(r"[1-9][0-9]{0,6}(s|ms)")
_AUTH_WAYS = ("keys", "oidc")
_COMPRESSIONS = ("none", "gzip", "deflate")
_MIN_ADMIN_KEY_CHARS = 32
_TLS_FILES = ("certificate", "client_key", "client_certificate")
_SAMPLERS = (
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
    "always_on",
    "always_off",
    "traceidratio",
)
_Sending = Literal["spans", "ended"]
_CONTENT_ON_SPANS = ("true", "1", "span_only", "span_and_event")

S = TypeVar("S", bound=msgspec.Struct)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a process, and the name that the process has in it: `CADRE_<FIELD>`."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """The least level that is logged: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    log_format: Literal["text", "json"] = "text"
    """`text`, or `json` with one object per line."""
    instance: str = ""
    """Name of this replica in the registry; `<host>-<pid>` unless set."""

    def instance_name(self) -> str:
        """The name of this replica, fit for a NATS subject."""
        name = self.instance or f"{socket.gethostname().split('.')[0]}-{os.getpid()}"
        return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


class Settings(LogSettings, frozen=True, kw_only=True):
    """The settings that all services of a deployment share, and those that one process may choose.

    Each field is set by the environment variable `CADRE_<FIELD>`.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    """URL of NATS; unless set, that of the `cadre up` of this folder or a parent, else this one."""
    nats_credentials: str = ""
    """File with the key of this service's NATS user, as `cadre auth init` makes it; empty if the server needs none."""
    nats_tls_ca: str = ""
    """File with the CA certificate of the server, if the system does not know it."""
    nats_tls_cert: str = ""
    """File with this client's own certificate, for a server that asks for one."""
    nats_tls_key: str = ""
    """File with that certificate's private key."""
    prefix: str = DEFAULT_PREFIX
    """Begins every subject, so that several deployments can share a server."""
    shards: Annotated[int, Meta(ge=1, le=256)] = 4
    """Number of streams to create on an empty server; an existing deployment keeps its own."""
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """Copies of each stream (3 on a cluster)."""
    gateway_url: str = "http://127.0.0.1:8080"
    """URL of the gateway; unless set, that of the `cadre up` of this folder or a parent, else this one."""
    host: str = "127.0.0.1"
    """Address that a service's HTTP endpoints listen on."""
    port: int = 0
    """Port of a service's HTTP endpoints; 0 takes a free one."""
    drain_seconds: Annotated[float, Meta(ge=0)] = 20.0
    """After SIGTERM: how long work in flight may take before it is handed back."""
    setup_seconds: Annotated[float, Meta(ge=0)] = 120.0
    """Seconds for which a service that starts waits for others to set up its NATS user, the streams and its queues."""
    hang_seconds: Annotated[float, Meta(ge=0)] = 60.0
    """A process whose event loop does not turn for so long ends itself; 0: never."""
    clock_skew_seconds: Annotated[float, Meta(ge=1)] = 300.0
    """The largest difference between this machine's clock and the NATS server's; beyond it, a service is not ready."""
    concurrency: Annotated[int, Meta(ge=1)] = 256
    """Records that one service works on at once."""
    keep_days: Annotated[float, Meta(ge=0)] = 30.0
    """Days after its end at which a run is removed with all that belongs to it; 0 keeps it for ever."""
    away_days: Annotated[float, Meta(gt=0)] = 7.0
    """Days for which what nothing serves any more stays known."""
    max_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes in one shard above which no new run begins; 0 is as many as the server stores."""
    file_bytes: Annotated[int, Meta(ge=1)] = 16 * 1024 * 1024
    """The most bytes of one file in a workspace or in a tool's output."""
    notice_private: str = ""
    """The private networks that notices may also be sent to: `1` for all, or networks such as 10.1.0.0/16."""
    prices: str = ""
    """A YAML file with the price of each model; without it budgets in cost cannot be kept."""
    beside: str = ""
    """For an agent that is a second revision with its own objects next to those of the first: their name."""

    def __post_init__(self) -> None:
        addresses(self.nats_url)
        if not 0 <= self.port <= 65535:
            raise SettingError(f"CADRE_PORT={self.port}: must be from 0 (any free port) to 65535")
        if not NAME.fullmatch(self.prefix):
            raise SettingError(f"CADRE_PREFIX={self.prefix!r}: use 1 to 64 letters, digits, '_' and '-'")


class HttpBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds on what one process takes in over HTTP: `CADRE_HTTP_<FIELD>`."""

    header_seconds: Annotated[float, Meta(ge=0.1)] = 10.0
    """The longest that a connection may take to send the head of a request."""
    body_seconds: Annotated[float, Meta(ge=0.1)] = 30.0
    """In each such time a body brings 1 KiB for each second of it, or ends."""
    peer_connections: Annotated[int, Meta(ge=1)] = 1000
    """Connections from one address at a time."""
    body_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes of large bodies that the gateway holds in memory, those of all requests together; 0: an eighth of what its
    container may have, and 128 MiB at most."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for access to the gateway: `CADRE_<FIELD>`."""

    auth: str = ""
    """`keys`: holders of a key have access; `oidc`: users of a provider have access; or both, with a comma. `off`:
    everybody, wherever it listens. Left out: everybody, and it listens on loopback only."""
    admin_key: str = ""
    """A key that is an administrator's, to make the others with."""
    allowed_hosts: str = ""
    """Names, with commas, that the gateway may be called by in addition to its addresses and private names."""
    key_rate: Annotated[float, Meta(ge=0.01)] = 100.0
    """Requests a second for a key that sets no rate."""

    def __post_init__(self) -> None:
        for way in self.auth.split(",") if self.auth else ():
            _one_of("CADRE_AUTH", way, _AUTH_WAYS if "," in self.auth else (*_AUTH_WAYS, "off"))
        if 0 < len(self.admin_key) < _MIN_ADMIN_KEY_CHARS:
            raise SettingError(
                f"CADRE_ADMIN_KEY has {len(self.admin_key)} characters: take {_MIN_ADMIN_KEY_CHARS} random ones or"
                " more, such as `openssl rand -hex 32` prints"
            )

    def ways(self) -> frozenset[str]:
        """Return how people and programs say who they are; empty: no identification is required."""
        return frozenset(self.auth.split(",")).intersection(_AUTH_WAYS)

    def hosts(self) -> list[str]:
        """The names of `allowed_hosts`, in lower case."""
        return [name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip()]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The model endpoint when an agent's spec names none: `CADRE_MODEL_URL`, `CADRE_MODEL`."""

    url: str = ""
    """Base URL of the endpoint for agents whose files name none; `CADRE_MODEL_KEY` holds its key."""
    name: str = msgspec.field(default="", name="CADRE_MODEL")
    """Name of the model for agents whose files name none."""

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            shown = self.url.rpartition("@")[2]
            raise SettingError(f"CADRE_MODEL_URL={shown} is no URL: it must begin with http:// or https://")


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for traces, their destination and their content: the standard variables of OpenTelemetry."""

    endpoint: str = ""
    """Whole URL for spans; empty: traces are exported nowhere."""
    headers: dict[str, str] = {}
    timeout: float = 5.0
    """Seconds for one request, its repetitions included."""
    compression: str = "none"
    certificate: str | None = None
    """File with the certificates to trust."""
    client_key: str | None = None
    client_certificate: str | None = None
    content: bool = False
    """True if spans hold what people, models and tools wrote."""
    attributes: dict[str, str] = {}
    """Attributes of every resource."""
    sampler: str = _SAMPLERS[0]
    """The selection of trees that are sent."""
    sampler_ratio: float = 1.0
    """The share of trees that a sampler by ratio takes."""
    send: _Sending = "spans"
    """The time at which spans are sent: each as it ends, or a whole tree once it has ended (`CADRE_TRACES_SEND`)."""


class MetricsSettings(TracingSettings, frozen=True, kw_only=True):
    """The settings for metrics (`CADRE_METRICS`) and where they go in addition to /metrics, by the same variables."""

    on: bool = True
    interval: float = 60.0
    """Seconds between exports."""


def read(kind: type[S], prefix: str, **options: object) -> S:
    """The settings struct `kind` from the environment; an option that is not None wins over its variable.

    A field is read from the variable `prefix` plus the field's name in capitals, unless `msgspec.field(name=…)` names
    another one. Numbers may have a `Meta(ge=…)`; what else a struct checks it checks in its `__post_init__`. Raises
    SettingError with the name of the variable and what it should be.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        renamed = field.encode_name != field.name
        variable = field.encode_name if renamed else f"{prefix}{field.name.upper()}"
        value = options.get(field.name)
        if value is None:
            value = os.environ.get(variable) or None
        if value is not None:
            values[field.name] = _convert(variable, value, field.type)
    return kind(**values)


def _convert(variable: str, value: Any, annotation: Any) -> Any:
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(plain) is Literal:
        return _one_of(variable, value, get_args(plain))
    try:
        number = msgspec.convert(value, plain, strict=False)
    except msgspec.ValidationError as error:
        wanted = "a whole number" if plain is int else "a number"
        raise SettingError(f"{variable}={value!r}: must be {wanted}") from error
    for least in (meta.ge for meta in get_args(annotation)[1:]):
        if not number >= least:
            raise SettingError(f"{variable}={number}: must be at least {least:g}")
    return number


def read_settings(**options: object) -> Settings:
    """The settings of this process, as `read` reads them. Raises SettingError."""
    return read(Settings, "CADRE_", **options)


def read_http_bounds() -> HttpBounds:
    """Return what this process takes in over HTTP. Raises SettingError."""
    return read(HttpBounds, "CADRE_HTTP_")


def read_access_settings(**options: object) -> AccessSettings:
    """Return the settings for access to the gateway. Raises SettingError."""
    return read(AccessSettings, "CADRE_", **options)


def read_tracing_settings() -> TracingSettings:
    """`OTEL_EXPORTER_OTLP_…` (with `TRACES_` before what is for spans alone), `OTEL_RESOURCE_ATTRIBUTES`,
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`, `OTEL_SDK_DISABLED`, `OTEL_TRACES_SAMPLER`,
    `OTEL_TRACES_SAMPLER_ARG`, `CADRE_TRACES_SEND`. Raises SettingError."""
    content = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or _SAMPLERS[0]
    _one_of("OTEL_TRACES_SAMPLER", sampler, _SAMPLERS)
    send = _convert("CADRE_TRACES_SEND", os.environ.get("CADRE_TRACES_SEND") or "spans", _Sending)
    return TracingSettings(
        **_receiver("TRACES"),
        content=content in _CONTENT_ON_SPANS,
        sampler=sampler,
        sampler_ratio=_ratio(os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()),
        send=send,
    )


def _ratio(text: str) -> float:
    try:
        ratio = float(text or 1.0)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise SettingError(f"OTEL_TRACES_SAMPLER_ARG={text}: must be a share of the traces, from 0 to 1")
    return ratio


def read_metrics_settings() -> MetricsSettings:
    """`CADRE_METRICS`, `OTEL_EXPORTER_OTLP_…` (with `METRICS_` before what is for metrics alone),
    `OTEL_METRICS_EXPORTER=none`, `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds). Raises SettingError."""
    mode = os.environ.get("CADRE_METRICS") or "on"
    _one_of("CADRE_METRICS", mode, ("on", "off"))
    receiver = _receiver("METRICS")
    if os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none":
        receiver["endpoint"] = ""
    interval = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or "60000"
    if not interval.isdecimal() or int(interval) < 100:
        raise SettingError(f"OTEL_METRIC_EXPORT_INTERVAL={interval}: must be milliseconds, at least 100")
    return MetricsSettings(**receiver, on=mode == "on", interval=int(interval) / 1000)


def _receiver(signal: str) -> dict[str, Any]:
    """Return where a signal goes. Raises SettingError."""
    endpoint = _otlp(signal, "ENDPOINT", path=f"/v1/{signal.lower()}")
    compression, protocol = _otlp(signal, "COMPRESSION") or "none", _otlp(signal, "PROTOCOL")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise SettingError(f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}: must be a URL such as http://127.0.0.1:4318")
    if protocol not in ("", "http/protobuf"):
        raise SettingError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: Cadre speaks http/protobuf (port 4318 of most receivers)"
        )
    _one_of("OTEL_EXPORTER_OTLP_COMPRESSION", compression, _COMPRESSIONS)
    timeout = _otlp(signal, "TIMEOUT")
    try:
        seconds = float(timeout or 5.0)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise SettingError(f"OTEL_EXPORTER_OTLP_TIMEOUT={timeout}: must be seconds above 0")
    return {
        "endpoint": "" if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" else endpoint,
        "headers": _pairs(_otlp(signal, "HEADERS")),
        "timeout": seconds,
        "compression": compression,
        **{name: _otlp(signal, name.upper()) or None for name in _TLS_FILES},
        "attributes": _pairs(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")),
    }


def _one_of(variable: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SettingError(f"{variable}={value}: must be one of {', '.join(allowed)}")
    return value


def _otlp(signal: str, name: str, path: str = "") -> str:
    """The variable for one signal alone, else the one for all of them, with `path` behind it."""
    own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "").strip()
    shared = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()
    return own or (f"{shared.rstrip('/')}{path}" if shared else "")


def _pairs(text: str) -> dict[str, str]:
    """`key=value,key=value`, percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs if key.strip()}


def certificate_variables() -> dict[str, str]:
    """Return the variables by which the environment names certificates to trust, as far as they are set."""
    return {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)}


def read_model_settings() -> ModelSettings:
    """The model endpoint of agents whose spec names none. Raises SettingError."""
    return read(ModelSettings, "CADRE_MODEL_")


def read_nats_sync() -> str:
    """`CADRE_NATS_SYNC`: when the NATS server of `cadre up` brings to disk what it has acknowledged.

    `always` is before it acknowledges, an interval (`10s`, `500ms`) is that much later at worst. Raises SettingError.
    """
    text = os.environ.get("CADRE_NATS_SYNC") or SYNC_ALWAYS
    if text != SYNC_ALWAYS and not _INTERVAL.fullmatch(text):
        raise SettingError(
            f"CADRE_NATS_SYNC={text!r}: must be `always`, or an interval in seconds or milliseconds such as"
            " 10s or 500ms"
        )
    return text


class PathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for where the gateway is below its host name: `CADRE_<FIELD>`."""

    gateway_path: str = ""
    """The path of its host name that the gateway is below, such as `/agents`."""


def read_gateway_path() -> str:
    """Return the prefix of the gateway's paths, without a slash at its end; "" for none. Raises SettingError."""
    given = read(PathSettings, "CADRE_").gateway_path
    try:
        return checked_path(given)
    except ValueError as error:
        raise SettingError(f"CADRE_GATEWAY_PATH={given!r}: {error}") from error


def read_doors() -> frozenset[str]:
    """`CADRE_DOORS`: the protocols that a gateway speaks in addition to the native API; `none`: nothing else."""
    text = os.environ.get("CADRE_DOORS") or ",".join(OPEN_DOORS)
    return frozenset(name.strip() for name in text.split(",") if name.strip()) - {"none"}


def read_secret(variable: str) -> str:
    """Read a secret where it is used; it is kept nowhere else."""
    return os.environ.get(variable, "")


def api_server_of_pod() -> str:
    """`KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`: the URL of the cluster's API server, "" outside."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT') or 443}" if host else ""


def debugging() -> bool:
    """Return whether errors are shown with their traceback: `CADRE_DEBUG` is set to anything but 0."""
    return os.environ.get("CADRE_DEBUG", "0") not in ("", "0")


def colourless() -> bool:
    """Return whether output has no colours: `NO_COLOR` is set to anything (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def gateway_url_given() -> str | None:
    """`CADRE_GATEWAY_URL`, or None when the gateway of a local `cadre up` may be looked for."""
    return os.environ.get("CADRE_GATEWAY_URL") or None


def gateway_key() -> str:
    """`CADRE_API_KEY`: the key that clients send to the gateway; "" if they send none."""
    return os.environ.get("CADRE_API_KEY", "")


def use_gateway_key(key: str) -> None:
    """Set the key that this process sends to the gateway."""
    os.environ["CADRE_API_KEY"] = key


_preferred: list[str] = []


def prefer_nats(url: str) -> None:
    """Set the NATS server of this process, unless the environment names one."""
    if "CADRE_NATS_URL" not in os.environ:
        os.environ["CADRE_NATS_URL"] = url
        _preferred.append(url)


def preferred_nats() -> str | None:
    """The NATS server that this process uses by default; None if the environment names another."""
    url = os.environ.get("CADRE_NATS_URL")
    return Settings().nats_url if url is None else url if url in _preferred else None


_OF_INTERPRETER = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ")


def child_environment(**variables: str) -> dict[str, str]:
    """The environment of a child process: this one's, with `variables` set over it."""
    return {**os.environ, **variables}


def interpreter_environment() -> dict[str, str]:
    """Return the variables that a Python interpreter and its libraries need to start; none of them is a secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _OF_INTERPRETER or name.startswith(("PYTHON", "LC_"))
    }


def replace_environment(variables: dict[str, str]) -> None:
    """Give this process, a fork, these variables and no others."""
    os.environ.clear()
    os.environ.update(variables)


def without_secrets(environment: dict[str, str], *others: str) -> dict[str, str]:
    """The environment without Cadre's keys and secrets, for code that must not have them; its own connection's stay.

    `others` are names of variables that hold keys as well.
    """
    others += (environment.get("CADRE_MEMORY_EMBEDDINGS_KEY_ENV", ""),)
    return {
        name: value
        for name, value in environment.items()
        if name == "CADRE_NATS_TLS_KEY"
        or not (
            name in (*others, "CADRE_INDEX_URL")  # it has the database's password
            or name.startswith("CADRE_SECRET_")
            or (name.startswith("CADRE_") and name.endswith(("_KEY", "_SECRET")))
        )
    }
