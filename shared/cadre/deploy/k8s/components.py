"""The components of a team in a cluster: one for each kind of process."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from zlib import crc32

Role = Literal["agent", "tools", "gateway", "sandbox", "memory", "tracer", "provision"]

_MAX_NAME_CHARACTERS = 52
"""Length of a name: 63 less what Kubernetes appends for pods and Jobs."""


class Files(NamedTuple):
    """Files that a container finds below a folder."""

    name: str
    """Name of the ConfigMap that holds them."""
    folder: str
    contents: dict[str, bytes]
    """Contents by path relative to the folder."""


class Component(NamedTuple):
    """One service of the team."""

    role: Role
    name: str
    """Name within its role; empty where there is only one."""
    arguments: list[str]
    """Arguments of the command `cadre`."""
    consumers: Sequence[str] = ()
    """Durable consumers that it works from, each on every shard's stream."""
    provides: Sequence[str] = ()
    """Options of `cadre provision` that make what it needs on the bus."""
    at_rest: str = ""
    """Of an agent: what it is known by while it is scaled to zero, as JSON for `cadre provision --at-rest`."""
    key_variables: Sequence[str] = ()
    """Names of variables that hold keys of model endpoints."""
    model_urls: Sequence[str] = ()
    asks_for: Sequence[str] = ()
    """Names of variables of its model that must be set, as its file leaves them open."""
    files: Files | None = None
    instance: str = ""
    """The prefix of the names of its Kubernetes objects, so that several teams fit into one namespace."""
    beside: str = ""
    """The replacement for its name in the names of its objects, if it is a second revision of an agent."""
    is_shared: bool = False
    """True if two revisions of the agent run side by side: only the gateway knows which queue belongs to which."""

    @property
    def key(self) -> str:
        """Return how `workloads` and `--only` call it: `agent/manager`, `gateway`."""
        return f"{self.role}/{self.name}" if self.name else self.role

    @property
    def id(self) -> str:
        """Name of its Kubernetes objects."""
        return object_name(self.instance, self.role, self.beside or self.name)

    @property
    def user(self) -> str:
        """Return what the Secret with its NATS key is named after."""
        return object_name(self.role, self.name)

    def second(self, name: str) -> "Component":
        """Return the same agent once more, with objects of this name: another revision, next to the first.

        It works from the same queues with the same NATS user: the objects that the first one's Job has made, including
        its card at rest, are not made or removed again.
        """
        found = self._replace(beside=name, is_shared=True, provides=(), at_rest="")
        files = self.files._replace(name=found.id) if self.files is not None else None
        return found._replace(files=files)


def object_name(*parts: str) -> str:
    """Return a DNS label made of the parts. If they had to be changed for that, it ends in a checksum: no two are the
    same."""
    wanted = "-".join(part for part in parts if part)
    name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")
    if name == wanted and len(name) <= _MAX_NAME_CHARACTERS:
        return name
    return f"{name[: _MAX_NAME_CHARACTERS - 9].rstrip('-')}-{crc32(wanted.encode()):08x}"
