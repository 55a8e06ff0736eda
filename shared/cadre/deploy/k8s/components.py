"""What a team consists of, as far as a cluster is concerned: one component per kind of process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from zlib import crc32

Role = Literal["agent", "tools", "gateway", "sandbox", "memory", "tracer", "provision"]

_MAX_NAME_CHARACTERS = 52
"""Of a name: 63 less what Kubernetes hangs on the names of pods and of Jobs."""


class Files(NamedTuple):
    """Files that a container finds below a folder."""

    name: str
    """Of the ConfigMap that brings them."""
    folder: str
    contents: dict[str, bytes]
    """By path relative to the folder."""


class Component(NamedTuple):
    """One service of the team."""

    role: Role
    name: str
    """Within its role; empty where there is one of it."""
    arguments: list[str]
    """Of `cadre`."""
    consumers: Sequence[str] = ()
    """Durable consumers that it works from, one on each shard's stream."""
    provides: Sequence[str] = ()
    """As options of `cadre provision`, what it needs to be there."""
    key_variables: Sequence[str] = ()
    """That hold keys of model endpoints."""
    model_urls: Sequence[str] = ()
    files: Files | None = None

    @property
    def key(self) -> str:
        """As in `workloads` and `--only`: `agent/manager`, `gateway`."""
        return f"{self.role}/{self.name}" if self.name else self.role

    @property
    def id(self) -> str:
        """Name of its Kubernetes objects."""
        return object_name(self.role, self.name)


def object_name(*parts: str) -> str:
    """A DNS label; one that had to be changed to be one ends in a checksum, so that no two are the same."""
    wanted = "-".join(part for part in parts if part)
    name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")
    if name == wanted and len(name) <= _MAX_NAME_CHARACTERS:
        return name
    return f"{name[: _MAX_NAME_CHARACTERS - 9].rstrip('-')}-{crc32(wanted.encode()):08x}"


def names(components: Sequence[Component]) -> list[str]:
    return [component.key for component in components]
