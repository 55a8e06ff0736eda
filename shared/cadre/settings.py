"""The only reader of the environment."""

from __future__ import annotations

import os
import re
import socket
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from cadre.errors import SettingError
from cadre.protocol.nats_addresses import addresses
from cadre.protocol.topology import DEFAULT_PREFIX

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_FORMATS = ("text", "json")
METRICS = ("on", "off")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SYNC_ALWAYS = "always"

# What also stands for itself as a variable in a server's file, where `2m` would be two million.
_INTERVAL = re.compile(r"[1-9][0-9]{0,6}(s|ms)")

_LEAST: dict[str, float] = {
    "shards": 1,
    "replicas": 1,
    "concurrency": 1,
    "drain_seconds": 0,
    "keep_days": 0,
    "max_bytes": 0,
    "file_bytes": 1,
}

_LEAST_OF_SANDBOX: dict[str, float] = {
    "sessions": 1,
    "concurrency": 0,
    "ready": 0,
    "idle_seconds": 0,
    "seconds": 0.1,
    "memory_mb": 16,
}

_LEAST_OF_MEMORY: dict[str, float] = {
    "keep_days": 0,
    "embeddings_dim": 0,
    "embeddings_seconds": 0.05,
    "embeddings_batch": 1,
}

S = TypeVar("S", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every service of a deployment must agree on, and what one process may choose.

    Each field is set by the environment variable `CADRE_<FIELD>`.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str = ""
    """File with the key of this service's NATS user, as `cadre auth init` makes it; empty: the server asks for none."""
    nats_tls_ca: str = ""
    """File with the certificate that vouches for the server's, where the system knows it not."""
    nats_tls_cert: str = ""
    """File with this client's own certificate, for a server that asks for one."""
    nats_tls_key: str = ""
    """File with that certificate's private key."""
    prefix: str = DEFAULT_PREFIX
    shards: int = 4
    """Streams to create on an empty server; an existing deployment keeps its own number."""
    replicas: int = 1
    """Copies of each stream (3 on a cluster)."""
    gateway_url: str = "http://127.0.0.1:8080"
    host: str = "127.0.0.1"
    """Address that a service's HTTP endpoints listen on."""
    port: int = 0
    """Port of a service's HTTP endpoints; 0 takes a free one."""
    drain_seconds: float = 20.0
    """After SIGTERM: how long work in flight may take before it is handed back."""
    concurrency: int = 256
    """Records that one service works on at once."""
    keep_days: float = 30.0
    """Days after its end at which a run is removed with all that belongs to it; 0 keeps it for ever."""
    max_bytes: int = 0
    """Bytes that one shard may hold before no run is begun in it any more; 0: as many as the server stores."""
    file_bytes: int = 16 * 1024 * 1024
    """Bytes that one file may have: of a run's workspace, or in a tool's output."""
    prices: str = ""
    """A YAML file with the price of each model; without it budgets in cost cannot be kept."""
    log_level: str = "INFO"
    log_format: str = "text"
    """`text`, or `json` with one object per line."""
    instance: str = ""
    """Name of this replica in the registry; `<host>-<pid>` unless set."""

    def instance_name(self) -> str:
        name = self.instance or f"{socket.gethostname().split('.')[0]}-{os.getpid()}"
        return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


_COMPRESSIONS = ("none", "gzip", "deflate")
_TLS_FILES = ("certificate", "client_key", "client_certificate")
_CONTENT_ON_SPANS = ("true", "1", "span_only", "span_and_event")

TIERS = ("ns", "landlock")
"""Of isolation, the best first; what they mean is in docs/sandbox.md."""


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one `cadre sandbox` is: each field is set by `CADRE_SANDBOX_<FIELD>`."""

    pool: str = "default"
    """Whose code it runs: that of agents which name this pool."""
    tier: str = "landlock"
    """The least isolation; below it no code is run."""
    sessions: int = 32
    """Interpreters at once, those at work and those kept warm between the steps of a run."""
    concurrency: int = 0
    """Blocks of code at work at once; 0: two per processor."""
    ready: int = 2
    """Fresh interpreters that wait for their run."""
    idle_seconds: float = 600.0
    """How long an interpreter is kept for a run that does not come back."""
    seconds: float = 300.0
    """The most that any block may compute, whatever its agent asks for."""
    memory_mb: int = 2048
    """The most that any interpreter may have, whatever its agent asks for."""
    modules: str = ""
    """Imported once for all interpreters, separated by commas: numpy,pandas."""
    python: str = ""
    """The Python that runs the code, with the packages that code may import; empty: this one."""


class StandardToolsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the standard tools may reach: `CADRE_SEARCH`, `CADRE_VISIT_PRIVATE`."""

    search: str = "folder:documents"
    """Where `web_search` looks: `folder:PATH` or `searxng:URL`."""
    visit_private: str = ""
    """What `visit_webpage` may read beside the public internet: `1` for all, or networks such as 10.1.0.0/16."""


EMBEDDINGS = ("auto", "openai", "local", "none")
"""Where the memory service has its dense vectors from; what they mean is in docs/memory.md."""


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one `cadre memory` is: each field is set by `CADRE_MEMORY_<FIELD>`, the last one by `QDRANT_URL`.

    The key of a Qdrant server is read where it is used, from `QDRANT_API_KEY`.
    """

    directory: str = ".cadre/memory"
    """Of the embedded index, and of what the local embeddings model builds."""
    keep_days: float = 0.0
    """Days after which a memory is removed; 0 keeps it for ever."""
    embeddings: str = "auto"
    """`openai`, `local`, `none`; `auto` is the first of them that is configured or installed."""
    embeddings_url: str = ""
    """Base URL of an OpenAI-compatible endpoint, with its /v1."""
    embeddings_model: str = ""
    embeddings_key: str = "CADRE_EMBEDDINGS_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    embeddings_dim: int = 0
    """Dimensions to ask the endpoint for; 0: as many as its model has."""
    embeddings_seconds: float = 2.0
    """How long a search waits for the vector of its query before it compares words only."""
    embeddings_batch: int = 16
    """Texts per request to the endpoint."""
    collections: str = "mem"
    """Begins the names of the collections, on a server that others use too."""
    qdrant_url: str = ""
    """Of a Qdrant server; without it the embedded engine keeps the index."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The model endpoint when an agent's spec names none: `CADRE_MODEL_URL`, `CADRE_MODEL`."""

    url: str = ""
    name: str = ""


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces go and what is in them: the standard variables of OpenTelemetry."""

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
    """Whether spans hold what people, models and tools wrote."""
    attributes: dict[str, str] = {}
    """Of every resource."""


class MetricsSettings(TracingSettings, frozen=True, kw_only=True):
    """Whether metrics are counted (`CADRE_METRICS`), and where they go beside /metrics, by the same variables."""

    on: bool = True
    interval: float = 60.0
    """Seconds between exports."""


def read_settings(**options: object) -> Settings:
    """Settings from the environment; an option that is not None wins over its variable.

    Raises SettingError with the name of the variable and what it should be.
    """
    settings = _read(Settings, "CADRE_", options, _LEAST)
    addresses(settings.nats_url)
    if not 0 <= settings.port <= 65535:
        raise SettingError(f"CADRE_PORT={settings.port}: must be from 0 (any free port) to 65535")
    _one_of("CADRE_LOG_LEVEL", settings.log_level, LOG_LEVELS)
    _one_of("CADRE_LOG_FORMAT", settings.log_format, LOG_FORMATS)
    if not NAME.fullmatch(settings.prefix):
        raise SettingError(
            f"CADRE_PREFIX={settings.prefix!r}: use 1 to 64 letters, digits, '_' and '-' (it begins NATS subjects)"
        )
    return settings


def read_sandbox_settings(**options: object) -> SandboxSettings:
    """As `read_settings`, of the variables `CADRE_SANDBOX_…`. Raises SettingError."""
    settings = _read(SandboxSettings, "CADRE_SANDBOX_", options, _LEAST_OF_SANDBOX)
    _one_of("CADRE_SANDBOX_TIER", settings.tier, TIERS)
    if not NAME.fullmatch(settings.pool):
        raise SettingError(
            f"CADRE_SANDBOX_POOL={settings.pool!r}: use 1 to 64 letters, digits, '_' and '-'"
            " (it becomes part of NATS subjects)"
        )
    return settings


def read_memory_settings(**options: object) -> MemorySettings:
    """As `read_settings`, of the variables `CADRE_MEMORY_…` and `QDRANT_URL`. Raises SettingError."""
    options = {"qdrant_url": os.environ.get("QDRANT_URL") or None, **options}
    settings = _read(MemorySettings, "CADRE_MEMORY_", options, _LEAST_OF_MEMORY)
    _one_of("CADRE_MEMORY_EMBEDDINGS", settings.embeddings, EMBEDDINGS)
    if settings.embeddings == "openai" and not settings.embeddings_url:
        raise SettingError("CADRE_MEMORY_EMBEDDINGS=openai needs CADRE_MEMORY_EMBEDDINGS_URL")
    if settings.embeddings_url and not settings.embeddings_url.startswith(("http://", "https://")):
        raise SettingError(
            f"CADRE_MEMORY_EMBEDDINGS_URL={settings.embeddings_url}: must begin with http:// or https://"
        )
    asked = settings.embeddings in ("auto", "openai") and settings.embeddings_url
    if asked and not settings.embeddings_model:
        raise SettingError(
            "CADRE_MEMORY_EMBEDDINGS_URL needs CADRE_MEMORY_EMBEDDINGS_MODEL: its model's name"
        )
    if not settings.directory.strip():
        raise SettingError("CADRE_MEMORY_DIRECTORY is empty: name a folder")
    return settings


def _read(kind: type[S], prefix: str, options: dict[str, object], least: dict[str, float]) -> S:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        variable = f"{prefix}{field.name.upper()}"
        text = os.environ.get(variable) or None
        given = options.get(field.name)
        if given is None and text is None:
            continue
        try:
            value = msgspec.convert(text if given is None else given, field.type, strict=False)
        except msgspec.ValidationError as error:
            wanted = "a whole number" if field.type is int else "a number"
            raise SettingError(f"{variable}={text or given!r}: must be {wanted}") from error
        if field.name in least and not value >= least[field.name]:
            raise SettingError(f"{variable}={value}: must be at least {least[field.name]:g}")
        values[field.name] = value
    return kind(**values)


def read_tracing_settings() -> TracingSettings:
    """`OTEL_EXPORTER_OTLP_…` (with `TRACES_` before what is for spans alone), `OTEL_RESOURCE_ATTRIBUTES`,
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`, `OTEL_SDK_DISABLED`. Raises SettingError."""
    content = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
    return TracingSettings(**_receiver("TRACES"), content=content in _CONTENT_ON_SPANS)


def read_metrics_settings() -> MetricsSettings:
    """`CADRE_METRICS`, `OTEL_EXPORTER_OTLP_…` (with `METRICS_` before what is for metrics alone),
    `OTEL_METRICS_EXPORTER=none`, `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds). Raises SettingError."""
    mode = os.environ.get("CADRE_METRICS") or "on"
    _one_of("CADRE_METRICS", mode, METRICS)
    receiver = _receiver("METRICS")
    if os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none":
        receiver["endpoint"] = ""
    interval = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or "60000"
    if not interval.isdecimal() or int(interval) < 100:
        raise SettingError(f"OTEL_METRIC_EXPORT_INTERVAL={interval}: must be milliseconds, at least 100")
    return MetricsSettings(**receiver, on=mode == "on", interval=int(interval) / 1000)


def _receiver(signal: str) -> dict[str, Any]:
    """Where a signal goes. Raises SettingError."""
    endpoint = _otlp(signal, "ENDPOINT", path=f"/v1/{signal.lower()}")
    compression, protocol = _otlp(signal, "COMPRESSION") or "none", _otlp(signal, "PROTOCOL")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise SettingError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}: must be a URL such as http://127.0.0.1:4318"
        )
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


def _one_of(variable: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(f"{variable}={value}: must be one of {', '.join(allowed)}")


def _otlp(signal: str, name: str, path: str = "") -> str:
    """The variable for one signal alone, else the one for all of them, with `path` behind it."""
    own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "").strip()
    shared = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()
    return own or (f"{shared.rstrip('/')}{path}" if shared else "")


def _pairs(text: str) -> dict[str, str]:
    """`key=value,key=value`, percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs if key.strip()}


def read_model_settings() -> ModelSettings:
    return ModelSettings(url=os.environ.get("CADRE_MODEL_URL", ""), name=os.environ.get("CADRE_MODEL", ""))


def read_standard_tools_settings() -> StandardToolsSettings:
    return _read(StandardToolsSettings, "CADRE_", {}, {})


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


def read_secret(variable: str) -> str:
    """A secret is read where it is used and kept nowhere else."""
    return os.environ.get(variable, "")


def debugging() -> bool:
    """Whether errors are shown with their traceback: `CADRE_DEBUG` is set to anything but 0."""
    return os.environ.get("CADRE_DEBUG", "0") not in ("", "0")


def colourless() -> bool:
    """Whether output is to be without colours: `NO_COLOR` is set to anything (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def gateway_url_given() -> str | None:
    """`CADRE_GATEWAY_URL`, or None when the gateway of a local `cadre up` may be looked for."""
    return os.environ.get("CADRE_GATEWAY_URL") or None


def prefer_nats(url: str) -> None:
    """For this process, where the environment names no NATS server."""
    os.environ.setdefault("CADRE_NATS_URL", url)


def child_environment(**variables: str) -> dict[str, str]:
    """The environment of a child process: this one's, with `variables` set over it."""
    return {**os.environ, **variables}
