"""What an agent's YAML may say: read, checked and explained here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from cadre.errors import SpecError

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A name is one token of a NATS subject and a function name for a model."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which model an agent asks, and how. What is left out comes from the environment:
    `CADRE_MODEL_URL`, `CADRE_MODEL_KEY`, `CADRE_MODEL`."""

    name: str = ""
    url: str = ""
    key_env: str = "CADRE_MODEL_KEY"
    """Name of the environment variable that holds the key; the key itself is never in a spec."""
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: Literal["auto", "required"] = "required"
    stop: bool = True
    """Send stop sequences; false for models that refuse the parameter (answers are cut here all the same)."""
    stream: bool = True
    timeout: float = 120.0
    """Seconds without a byte from the endpoint."""
    retries: int = 6
    """Tries after a failure that is not a rate limit."""
    patience: float = 3600.0
    """Seconds that a run goes on waiting through rate limits before it gives up."""
    extra_body: dict[str, Any] = {}


class Selector(msgspec.Struct, frozen=True):
    """Every agent that has all these labels is a team member."""

    labels: dict[str, str]

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    max_steps: int = 20
    depth: int = 8
    """Levels of delegation below the root run."""
    cycles: int = 0
    """How often an agent may appear again below itself."""
    observation_chars: int = 20_000
    """A longer observation is cut in the middle before the model reads it."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent. Built from YAML by `read_agent`, or in Python."""

    name: str
    description: str
    kind: Literal["tool_calling"] = "tool_calling"
    model: ModelSpec = ModelSpec()
    instructions: str = ""
    tools: list[str] = []
    team: list[str | Selector] = []
    limits: Limits = Limits()
    planning_interval: int | None = None
    prompts: str | None = None
    """Path of a prompt file that replaces the shipped one."""
    labels: dict[str, str] = {}
    version: str = ""

    def __post_init__(self) -> None:
        for what, name in [
            ("agent", self.name),
            *(("tool", t) for t in self.tools),
            *(("team member", m) for m in self.team if isinstance(m, str)),
        ]:
            check_name(what, name)
        if not self.description.strip():
            raise SpecError(f"agent {self.name}: write a description: managers' models read it")
        if self.limits.max_steps < 1:
            raise SpecError(f"agent {self.name}: limits.max_steps must be at least 1")
        if self.planning_interval is not None and self.planning_interval < 1:
            raise SpecError(f"agent {self.name}: planning_interval must be at least 1, or left out")
        if "final_answer" in (*self.tools, *self.team):
            raise SpecError(f"agent {self.name}: final_answer is every agent's own; leave it out")
        both = {m for m in self.team if isinstance(m, str)} & set(self.tools)
        if both:
            raise SpecError(
                f"agent {self.name}: {', '.join(sorted(both))} is named as tool and as team member"
            )


def check_name(what: str, name: str) -> None:
    """Raises SpecError unless `name` can be a subject token and a function name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{what} name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (it becomes part of NATS subjects and of the model's function list)"
        )


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class _Body(msgspec.Struct, kw_only=True):
    description: str
    kind: Literal["tool_calling"] = "tool_calling"
    model: ModelSpec = ModelSpec()
    instructions: str = ""
    tools: list[str] = []
    team: list[str | Selector] = []
    limits: Limits = Limits()
    planning_interval: int | None = None
    prompts: str | None = None
    version: str = ""


class _Document(msgspec.Struct):
    api_version: Literal["cadre.dev/v1"] = msgspec.field(name="apiVersion")
    kind: Literal["Agent"]
    metadata: _Metadata
    spec: _Body


def read_agent(path: Path) -> AgentSpec:
    """Reads one agent from a YAML file of the form `apiVersion: cadre.dev/v1, kind: Agent, metadata, spec`.

    Raises SpecError with the file, the key and what is expected there.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text") from error
    try:
        data = load_yaml(text)
    except NOT_YAML as error:
        raise SpecError(f"{path}: not YAML: {yaml_problem(error)}") from error
    try:
        _check_keys(data)
        document = msgspec.convert(data, _Document)
        fields: dict[str, Any] = {f: getattr(document.spec, f) for f in document.spec.__struct_fields__}
        if document.spec.prompts is not None:
            fields["prompts"] = str((path.parent / document.spec.prompts).resolve())
        return AgentSpec(name=document.metadata.name, labels=document.metadata.labels, **fields)
    except msgspec.ValidationError as error:
        raise SpecError(f"{path}: {_explain(error)}") from error
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a key that stands twice in a mapping: YAML would silently drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} stands there twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def load_yaml(text: str) -> Any:
    """What the text says. Raises one of NOT_YAML."""
    return yaml.load(text, Loader=_UniqueKeys)


NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What reading YAML may raise: wrong syntax, a date that no calendar has, nesting without end."""


def yaml_problem(error: Exception) -> str:
    """Line and problem of a YAML error, in one line."""
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    return text if mark is None else f"line {mark.line + 1}: {text}"


_KEYS: dict[str, tuple[str, ...]] = {
    "": ("apiVersion", "kind", "metadata", "spec"),
    "metadata": _Metadata.__struct_fields__,
    "spec": _Body.__struct_fields__,
    "spec.model": ModelSpec.__struct_fields__,
    "spec.limits": Limits.__struct_fields__,
}
_CHOICES = {
    "apiVersion": "cadre.dev/v1",
    "kind": "Agent",
    "spec.kind": "tool_calling",
    "spec.model.tool_choice": "auto or required",
}


def _check_keys(data: Any) -> None:
    """Raises SpecError for a key that no struct has.

    The structs themselves let one pass: journals hold them, and a newer version's key must not make an
    older version's service unable to read.
    """
    for path, known in _KEYS.items():
        found = data
        for key in filter(None, path.split(".")):
            found = found.get(key) if isinstance(found, dict) else None
        _check_mapping(found, path or "the document", known)
    team = (
        data.get("spec", {}).get("team")
        if isinstance(data, dict) and isinstance(data.get("spec"), dict)
        else None
    )
    for member in team if isinstance(team, list) else ():
        _check_mapping(member, "spec.team", Selector.__struct_fields__)


def _check_mapping(found: Any, where: str, known: tuple[str, ...]) -> None:
    for key in found if isinstance(found, dict) else ():
        if key not in known:
            raise SpecError(f"unknown key {key!r} in {where}; known keys: {', '.join(known)}")


def _explain(error: msgspec.ValidationError) -> str:
    what, _, where = str(error).partition(" - at ")
    key = where.strip("`").removeprefix("$").lstrip(".")
    known = f"; known keys: {', '.join(_KEYS[key])}" if key in _KEYS else ""
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"key {missing[1]!r} is missing in {key or 'the document'}{known}"
    if key in _CHOICES:
        return f"{key}: {what[:1].lower()}{what[1:]}; write {_CHOICES[key]}"
    return f"{key}: {what}" if key else f"{what}{known}"
