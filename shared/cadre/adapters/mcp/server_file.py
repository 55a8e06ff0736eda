"""Reads which MCP servers there are: a file in the form `mcpServers` that other clients use, a URL, or a command."""

import os
import shlex
import shutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from cadre.adapters.secret_references import References
from cadre.errors import SetupError
from cadre.spec.names import NAME
from cadre.spec.yaml_file import read_yaml, refused_key

SUFFIXES = (".json", ".yaml", ".yml")
"""Endings of the files of MCP servers."""


class ToolEffects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says of tools, whatever their server says of them; None leaves it open."""

    read_only: bool | None = None
    idempotent: bool | None = None
    approval: str | None = None
    timeout: float | None = None
    """Seconds that a call may take."""
    concurrency: int | None = None


class OneTool(ToolEffects, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says of one tool, by its name at the server."""

    name: str = ""
    """The name for models, without any prefix; empty derives it from the server's."""
    description: str = ""


class CadreSection(ToolEffects, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says of a server for Cadre alone: the section `cadre` of its entry."""

    prefix: str | None = None
    """Set before the names of its tools; None is the server's name and `_`."""
    allow: tuple[str, ...] = ("*",)
    """Names of the tools at the server that are offered; `*` stands for any characters."""
    trust: bool = False
    """The server's annotations are believed."""
    resources: bool = False
    """A tool is offered beside them that reads the server's resources."""
    tools: dict[str, OneTool] = {}


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A server as files of other clients have it. Keys that are not known here are theirs, and ignored."""

    type: str = ""
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    cadre: CadreSection = CadreSection()


class _ServerDocument(msgspec.Struct, frozen=True):
    servers: dict[str, ServerEntry] = msgspec.field(name="mcpServers")


class Endpoint(NamedTuple):
    """Where a server is, with all references resolved: nothing of it may be shown or stored."""

    url: str
    headers: dict[str, str]
    command: list[str]
    env: dict[str, str]
    folder: Path
    hide: Callable[[str], str]
    """The text without the values that references stood for."""


class ServerSpec(NamedTuple):
    """One MCP server that is to be served."""

    name: str
    entry: ServerEntry
    folder: Path
    """What its paths are relative to."""
    where: str
    """How errors name it."""

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with."""
        return f"{self.name}_" if self.entry.cadre.prefix is None else self.entry.cadre.prefix

    def allows(self, tool: str) -> bool:
        """Whether the tool of this name at the server is offered."""
        return any(fnmatchcase(tool, pattern) for pattern in self.entry.cadre.allow)

    def endpoint(self) -> Endpoint:
        """Where the server is now: variables and secret files are read anew each time.

        Raises SetupError, also for a command that is not there.
        """
        references = References(self.folder, self.where)
        entry, resolve = self.entry, references.resolve
        env = {name: resolve(f"env.{name}", text) for name, text in entry.env.items()}
        folder = self.folder / resolve("cwd", entry.cwd)
        command: list[str] = []
        if entry.command:
            found = self._find(resolve("command", entry.command), folder, env.get("PATH"))
            command = [found, *(resolve("args", text) for text in entry.args)]
        return Endpoint(
            url=resolve("url", entry.url),
            headers={name: resolve(f"headers.{name}", text) for name, text in entry.headers.items()},
            command=command,
            env=env,
            folder=folder,
            hide=references.hide,
        )

    def _find(self, command: str, folder: Path, path: str | None) -> str:
        if not folder.is_dir():
            raise SetupError(f"{self.where}: there is no folder {folder}")
        found = shutil.which(str(folder / command) if os.sep in command else command, path=path)
        if found is None:
            raise SetupError(f"{self.where}: the command {command!r} is not found")
        return os.path.abspath(found)


def is_server_file(entry: str) -> bool:
    """Whether an entry of a team, or an argument of `cadre tools`, is a file of MCP servers by its name."""
    return entry.endswith(SUFFIXES)


def read_servers(source: str) -> list[ServerSpec]:
    """The servers of a file, or the one at a URL or behind a command; those that are disabled are left out.

    Raises SetupError with one line.
    """
    if urlsplit(source).scheme in ("http", "https"):
        name, entry = urlsplit(source).hostname or "server", ServerEntry(url=source)
    elif is_server_file(source):
        return _of_file(Path(source))
    else:
        try:
            words = shlex.split(source)
        except ValueError as error:
            raise SetupError(f"--mcp {source!r}: {error}") from error
        if not words:
            raise SetupError("--mcp: name a file, a URL or a command")
        name, entry = os.path.basename(words[0]), ServerEntry(command=words[0], args=words[1:])
    entry = msgspec.structs.replace(entry, cadre=CadreSection(prefix=""))
    return [ServerSpec(name, entry, Path.cwd(), f"MCP server {name}")]


def _of_file(file: Path) -> list[ServerSpec]:
    data: Any = read_yaml(file, SetupError)
    try:
        document = msgspec.convert(data, _ServerDocument)
    except msgspec.ValidationError as error:
        key, what = refused_key(error)
        raise SetupError(f"{file}: {f'{key}: ' if key else ''}{what}") from error
    servers = []
    for name, entry in document.servers.items():
        spec = ServerSpec(name, entry, file.resolve().parent, f"{file}: mcpServers.{name}")
        _check(spec)
        if not entry.disabled:
            servers.append(spec)
    return servers


def _check(spec: ServerSpec) -> None:
    entry, where = spec.entry, spec.where
    if entry.type not in ("", "stdio", "http", "streamable-http", "streamableHttp"):
        raise SetupError(f"{where}: type {entry.type!r}: Cadre speaks stdio and streamable HTTP (http)")
    if bool(entry.command) == bool(entry.url):
        raise SetupError(f"{where}: give either a command or a url")
    if spec.prefix and not NAME.fullmatch(spec.prefix):
        raise SetupError(
            f"{where}: its tools' prefix would be {spec.prefix!r}: set cadre.prefix to letters a-z, A-Z, digits,"
            " '_' and '-'"
        )
