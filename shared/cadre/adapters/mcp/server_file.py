"""Reads which MCP servers there are: a file in the form `mcpServers` that other clients use, a URL, or a command."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from cadre.adapters.secret_references import References
from cadre.errors import SetupError
from cadre.protocol.cards import Does
from cadre.spec.names import NAME
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of

SUFFIXES = (".json", ".yaml", ".yml")
"""Endings of the files of MCP servers."""

RUN_VALUES = {"user", "session", "id", "tree"}
"""The values of the calling run that headers may name as `${run:NAME}`."""
_OF_RUN = re.compile(r"\$\{run:([^{}]*)\}")


class ToolEffects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The effects of tools according to a file, which override those that their server declares; None leaves it
    open."""

    read_only: bool | None = None
    idempotent: bool | None = None
    approval: str | None = None
    timeout: float | None = None
    """Seconds that a call may take."""
    concurrency: int | None = None
    serial: bool | None = None
    """True: a run sends its calls of these tools one after another, in the order of its model."""
    does: Does | None = None
    """The kind of calls, for the rules of policies."""
    to: str | list[str] | None = None
    """The arguments that say whom a call concerns or where it goes."""
    what: str | list[str] | None = None
    text: str | list[str] | None = None
    amount: str | None = None
    private: bool | None = None
    trusted: str | list[str] | None = None
    """The fields of the result that no stranger chooses; `all` for the whole."""


class OneTool(ToolEffects, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file's entry for one tool, by its name at the server."""

    name: str = ""
    """The name for models, without any prefix; empty derives it from the server's."""
    description: str = ""
    approval_text: str = ""
    """The sentence by which a person is asked for approval, with parameters in braces."""


class CadreSection(ToolEffects, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a server's entry that is for Cadre alone: its section `cadre`."""

    prefix: str | None = None
    """Set before the names of its tools; None is the server's name and `_`."""
    allow: tuple[str, ...] = ("*",)
    """Names of the tools at the server that are offered; `*` stands for any characters."""
    trust: bool = False
    """The server's annotations are believed."""
    resources: bool = False
    """True if an additional tool is offered that reads the server's resources."""
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
    """The address of a server with all references resolved: nothing of it may be shown or stored."""

    name: str
    url: str
    headers: dict[str, str]
    command: list[str]
    env: dict[str, str]
    folder: Path
    hide: Callable[[str], str]
    """The text without the values that references stood for."""


class RunHeaders(NamedTuple):
    """The headers of the requests of one run: nothing of them may be shown or stored."""

    headers: dict[str, str]
    hide: Callable[[str], str]
    """The text without the values that references stood for."""


class ServerSpec(NamedTuple):
    """One MCP server that is to be served."""

    name: str
    entry: ServerEntry
    folder: Path
    """The folder to which its paths are relative."""
    where: str
    """The name that errors use for it."""

    @property
    def prefix(self) -> str:
        """Return what the names of its tools begin with."""
        return f"{self.name}_" if self.entry.cadre.prefix is None else self.entry.cadre.prefix

    def allows(self, tool: str) -> bool:
        """Return whether the tool of this name at the server is offered."""
        return any(fnmatchcase(tool, pattern) for pattern in self.entry.cadre.allow)

    def endpoint(self) -> Endpoint:
        """Return the current endpoint: variables and secret files are read again each time. A header that needs a value
        that only a run has is left out.

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
            name=self.name,
            url=resolve("url", entry.url),
            headers={
                name: resolve(f"headers.{name}", _of_no_run(text))
                for name, text in entry.headers.items()
                if not _needs_run(text)
            },
            command=command,
            env=env,
            folder=folder,
            hide=references.hide,
        )

    def headers_of_run(self, values: Mapping[str, str]) -> RunHeaders:
        """Those headers that name something of a run, for the run with these values; an empty one counts as none.

        Raises SetupError for a value, a variable or a file that there is not.
        """
        references = References(self.folder, self.where)

        def header(name: str, text: str) -> str:
            return references.resolve(f"headers.{name}", _OF_RUN.sub(lambda found: value(name, found[1]), text))

        def value(header: str, reference: str) -> str:
            name, mark, default = reference.partition(":-")
            if not values[name] and not mark:
                raise SetupError(f"{self.where}: headers.{header}: the run has no {name}")
            # A quoted name can start no reference and no other header, and leads to no path outside its folder.
            return quote(values[name], safe="@") or default

        found = {name: header(name, text) for name, text in self.entry.headers.items() if _OF_RUN.search(text)}
        return RunHeaders(found, references.hide)

    def _find(self, command: str, folder: Path, path: str | None) -> str:
        if not folder.is_dir():
            raise SetupError(f"{self.where}: there is no folder {folder}")
        found = shutil.which(str(folder / command) if os.sep in command else command, path=path)
        if found is None:
            raise SetupError(f"{self.where}: the command {command!r} is not found")
        return os.path.abspath(found)


def is_server_file(entry: str) -> bool:
    """Return whether an entry of a team, or an argument of `cadre tools`, is a file of MCP servers by its name."""
    return entry.endswith(SUFFIXES)


def read_servers(source: str) -> list[ServerSpec]:
    """Return the servers of a file, or the one at a URL or behind a command; those that are disabled are left out.

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
        misfit = misfit_of(error)
        raise SetupError(misfit.problem, key=misfit.place, files=(file,)) from error
    servers = []
    for name, entry in document.servers.items():
        spec = ServerSpec(name, entry, file.resolve().parent, f"{file}: mcpServers.{name}")
        _check(spec)
        if not entry.disabled:
            servers.append(spec)
    return servers


def _needs_run(header: str) -> bool:
    """Return whether it has no meaning without a run."""
    return any(":-" not in reference for reference in _OF_RUN.findall(header))


def _of_no_run(header: str) -> str:
    return _OF_RUN.sub(lambda found: found[1].partition(":-")[2], header)


def _check(spec: ServerSpec) -> None:
    entry, where = spec.entry, spec.where
    named = {one.partition(":-")[0] for text in entry.headers.values() for one in _OF_RUN.findall(text)}
    if unknown := sorted(named - RUN_VALUES):
        raise SetupError(f"{where}: headers: ${{run:{unknown[0]}}}: a run has {', '.join(sorted(RUN_VALUES))}")
    others = [entry.url, entry.command, entry.cwd, *entry.args, *entry.env.values()]
    if any(_OF_RUN.search(text) for text in others):
        raise SetupError(f"{where}: only headers may name what a run has (${{run:…}}): all runs share the rest")
    if entry.type not in ("", "stdio", "http", "streamable-http", "streamableHttp"):
        raise SetupError(f"{where}: type {entry.type!r}: Cadre speaks stdio and streamable HTTP (http)")
    if bool(entry.command) == bool(entry.url):
        raise SetupError(f"{where}: give either a command or a url")
    if spec.prefix and not NAME.fullmatch(spec.prefix):
        raise SetupError(
            f"{where}: its tools' prefix would be {spec.prefix!r}: set cadre.prefix to letters a-z, A-Z, digits,"
            " '_' and '-'"
        )
