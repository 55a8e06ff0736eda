"""The only reader of the environment."""

from __future__ import annotations

import os
import re
import socket
from typing import Any, TypeVar

import msgspec

from cadre.errors import SettingError
from cadre.subjects import DEFAULT_PREFIX

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
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
}

_LEAST_OF_SANDBOX: dict[str, float] = {
    "sessions": 1,
    "concurrency": 0,
    "ready": 0,
    "idle_seconds": 0,
    "seconds": 0.1,
    "memory_mb": 16,
}

S = TypeVar("S", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every service of a deployment must agree on, and what one process may choose.

    Each field is set by the environment variable `CADRE_<FIELD>`.
    """

    nats_url: str = "nats://127.0.0.1:4222"
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
    prices: str = ""
    """A YAML file with the price of each model; without it budgets in cost cannot be kept."""
    log_level: str = "INFO"
    instance: str = ""
    """Name of this replica in the registry; `<host>-<pid>` unless set."""

    def instance_name(self) -> str:
        host = socket.gethostname().split(".")[0]
        name = self.instance or f"{host}-{os.getpid()}"
        return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


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


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The model endpoint when an agent's spec names none: `CADRE_MODEL_URL`, `CADRE_MODEL`."""

    url: str = ""
    name: str = ""


def read_settings(**options: object) -> Settings:
    """Settings from the environment; an option that is not None wins over its variable.

    Raises SettingError with the name of the variable and what it should be.
    """
    settings = _read(Settings, "CADRE_", options, _LEAST)
    if not 0 <= settings.port <= 65535:
        raise SettingError(f"CADRE_PORT={settings.port}: must be from 0 (any free port) to 65535")
    if settings.log_level not in LOG_LEVELS:
        raise SettingError(f"CADRE_LOG_LEVEL={settings.log_level}: must be one of {', '.join(LOG_LEVELS)}")
    if not NAME.fullmatch(settings.prefix):
        raise SettingError(
            f"CADRE_PREFIX={settings.prefix!r}: use 1 to 64 letters, digits, '_' and '-' (it begins NATS subjects)"
        )
    return settings


def read_sandbox_settings(**options: object) -> SandboxSettings:
    """As `read_settings`, of the variables `CADRE_SANDBOX_…`. Raises SettingError."""
    settings = _read(SandboxSettings, "CADRE_SANDBOX_", options, _LEAST_OF_SANDBOX)
    if settings.tier not in TIERS:
        raise SettingError(f"CADRE_SANDBOX_TIER={settings.tier}: must be one of {', '.join(TIERS)}")
    if not NAME.fullmatch(settings.pool):
        raise SettingError(
            f"CADRE_SANDBOX_POOL={settings.pool!r}: use 1 to 64 letters, digits, '_' and '-'"
            " (it becomes part of NATS subjects)"
        )
    return settings


def _read(kind: type[S], prefix: str, options: dict[str, object], least: dict[str, float]) -> S:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        variable = f"{prefix}{field.name.upper()}"
        text = os.environ.get(variable)
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
