"""Create the streams and buckets of a deployment, or compare those that exist with what they should be; refuse while
a restore goes on, which leaves a mark at the server."""

import logging
import os
import shlex
import socket
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.connection.keys import may_provision, user_of
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable, NotSetUpYet, SetupError, StreamDrift
from cadre.protocol.nats_users import redacted
from cadre.protocol.topology import Layout, Subject, Topology
from cadre.settings import Settings

log = logging.getLogger("cadre.nats")

_SECOND = 1_000_000_000
_NO_CLUSTER = 10074

_CONTRACT = (
    "subjects",
    "retention",
    "storage",
    "allow_direct",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "allow_rollup_hdrs",
    "duplicate_window",
)
"""The settings on which this version relies. The operator may tune the rest (replicas, sizes)."""

_AUDIT_DAYS = 400
"""A year, and time to look back on it; the operator's to tune, as all ages are."""

STORE_REMEDY = (
    "Bring the old store back and all goes on; or begin without its runs: make the streams (`cadre provision`, or start"
    " any service) and restart every service"
)
"""The remedy for a lost store."""

_FOR_EVER = 0
"""As an age: a run may wait for months. What has ended is removed tree by tree, and nothing else is."""

OPEN = "open"

ACCOUNT_REMEDIES = {
    10027: "allow more streams in its account (max_streams)",
    10113: "take max_bytes_required from its account",
    10122: "take the limit on the size of one stream (max_stream_bytes) from its account",
    10026: "allow more consumers in its account (max_consumers)",
}
"""Advice for each limit of the account, by the error of the server that names it."""


def _stream(name: str, subjects: list[str], replicas: int, discard: str) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": discard,
        "allow_direct": True,
    }


def shard_config(topology: Topology, shard: int, replicas: int) -> dict[str, Any]:
    """Configuration of one shard's stream, in the JSON of the JetStream API."""
    return {
        **_stream(topology.stream(shard), topology.stream_subjects(shard), replicas, "old"),
        "max_age": _FOR_EVER,
        "max_msg_size": jetstream.MAX_MESSAGE_BYTES,
        # An explicit number: the server's default is 1,000.
        "max_consumers": 10_000,
        "duplicate_window": 120 * _SECOND,
        "allow_msg_ttl": True,
        "allow_msg_schedules": True,
        "allow_rollup_hdrs": True,
        "metadata": {SHARDS: str(topology.layout.generations[0])} if not shard else {},
    }


def dead_config(topology: Topology, replicas: int) -> dict[str, Any]:
    """Configuration of the stream of dead letters."""
    return {
        **_stream(topology.dead_stream, topology.dead_subjects, replicas, "old"),
        # A message that was given up may be tried again as long as its run waits.
        "max_age": _FOR_EVER,
        "max_msgs": 100_000,
        "max_consumers": 1_000,
    }


def automation_config(topology: Topology, replicas: int) -> dict[str, Any]:
    """Configuration of the stream of schedules, triggers and notices."""
    return {
        **_stream(topology.automation_stream, topology.automation_subjects, replicas, "old"),
        "max_age": _FOR_EVER,
        "max_msg_size": jetstream.MAX_MESSAGE_BYTES,
        "max_consumers": 1_000,
        "duplicate_window": 120 * _SECOND,
        "allow_msg_ttl": True,
        "allow_msg_schedules": True,
        "allow_rollup_hdrs": True,
    }


def audit_config(topology: Topology, replicas: int) -> dict[str, Any]:
    """Configuration of the audit trail: what is in it stays as it is until its time is over."""
    return {
        **_stream(topology.audit_stream, [topology.subject(Subject.AUDIT)], replicas, "old"),
        "max_age": _AUDIT_DAYS * 86_400 * _SECOND,
        "max_msg_size": 64 * 1024,
        "max_consumers": 1_000,
        "deny_delete": True,
        "deny_purge": True,
    }


def key_value_config(bucket: str, replicas: int) -> dict[str, Any]:
    """Configuration of a bucket of the KV convention, one value per key."""
    return {
        **_stream(f"KV_{bucket}", [f"$KV.{bucket}.>"], replicas, "new"),
        "max_msgs_per_subject": 1,
        "duplicate_window": 120 * _SECOND,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def object_store_config(bucket: str, replicas: int) -> dict[str, Any]:
    """Configuration of a bucket of the object store convention."""
    return {
        **_stream(f"OBJ_{bucket}", [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"], replicas, "new"),
        "max_age": _FOR_EVER,
        "allow_rollup_hdrs": True,
    }


async def provision(nc: Client, settings: Settings) -> Topology:
    """Create what is missing and return the deployment's topology; a user that may not do so finds all of it.

    The number of shards of an existing deployment wins over the setting. Raises StreamDrift naming each
    difference, SetupError when the server cannot do what is needed or something is missing, BusUnavailable.
    """
    if (lack := await server_lack(nc)) is not None:
        raise SetupError(f"{redacted(settings.nats_url)}: {lack.text}")
    topology = await existing(nc, settings) or Topology(settings.shards, settings.prefix)
    if not may_provision(nc):
        await _find_all(nc, topology, settings)
        return topology
    await check_no_restore(nc, settings.prefix)
    for config in _configs(topology, settings.replicas):
        await ensure_stream(nc, config)
    return topology


class Lack(NamedTuple):
    """A reason why a server, its account or its store cannot be used."""

    code: str
    """Stable, for programs."""
    text: str
    """One line for people: what is wrong, and what to do."""


async def server_lack(nc: Client) -> Lack | None:
    """Return what the server or the account does not allow and Cadre needs; None when all is well. Raises
    BusUnavailable."""
    if (text := jetstream.payload_lack(nc)) is not None:
        return Lack("max-payload", text)
    if await jetstream.account(nc) is None:
        return Lack(
            "jetstream-off",
            "JetStream is off: start nats-server with -js or a jetstream block in its file, and allow it in the"
            " account of this user",
        )
    return None


async def stream_room(nc: Client, missing: int) -> list[str]:
    """Return whether the account has room for so many streams more, as a list of problems. Raises BusUnavailable."""
    info = await jetstream.account(nc) or {}
    most = (info.get("limits") or {}).get("max_streams", -1)
    if not missing or most < 0 or info.get("streams", 0) + missing <= most:
        return []
    return [
        f"the NATS account may have {most} streams and has {info.get('streams', 0)}, and Cadre needs {missing} more:"
        f" {ACCOUNT_REMEDIES[10027]}"
    ]


async def _find_all(nc: Client, topology: Topology, settings: Settings) -> None:
    for config in _configs(topology, settings.replicas):
        found = await stream_config(nc, config["name"])
        if found is None:
            raise NotSetUpYet(
                f"stream {config['name']} does not exist, and {user_of(nc)} may not make it:"
                " run `cadre provision` with the operator's key"
            )
        if drift := _drift(config, found):
            raise StreamDrift("; ".join(drift))


def stream_names(topology: Topology) -> list[str]:
    """Return the names of all streams of a deployment, the shards first."""
    return [config["name"] for config in _configs(topology, replicas=1)]


async def check(nc: Client, settings: Settings) -> list[str]:
    """Return what is wrong with the server and with the deployment's streams, a line each; [] when nothing is."""
    if (lack := await server_lack(nc)) is not None:
        return [lack.text]
    if may_provision(nc):
        try:
            await check_no_restore(nc, settings.prefix)
        except SetupError as error:
            return [str(error)]
    topology = await existing(nc, settings)
    if topology is None:
        room = await stream_room(nc, len(stream_names(Topology(settings.shards, settings.prefix))))
        return [*room, _missing(Topology(1, settings.prefix).stream(0))]
    growing = topology.layout.growing
    problems = [f"the shards grow to {growing}: finish it by `cadre shards grow {growing}`"] if growing else []
    missing = 0
    for config in _configs(topology, settings.replicas):
        found = await stream_config(nc, config["name"])
        if found is None:
            problems.append(_missing(config["name"]))
            missing += 1
        else:
            problems += _drift(config, found) + _forgets(topology, found)
    return [*await stream_room(nc, missing), *problems]


def _missing(name: str) -> str:
    return (
        f"stream {name} does not exist: start any service of a new deployment to create it. Where there were runs NATS"
        f" has lost its store, or was started with another one. {STORE_REMEDY}"
    )


def _forgets(topology: Topology, found: dict[str, Any]) -> list[str]:
    """Report the limits with which a shard drops its oldest runs, ended or not, to make room."""
    name = found["name"]
    if name not in [topology.stream(shard) for shard in range(topology.shards)]:
        return []
    return [
        f"stream {name} has {key}={found[key]}: when it is full it loses the oldest runs; set CADRE_MAX_BYTES for"
        f" the gateways instead, and take the limit away: `nats stream edit {name} --{key.replace('_', '-')}=-1`"
        for key in ("max_bytes", "max_msgs")
        if found.get(key, -1) > 0
    ]


def _configs(topology: Topology, replicas: int) -> list[dict[str, Any]]:
    shards = [shard_config(topology, shard, replicas) for shard in range(topology.shards)]
    # With markers, watchers of the bucket are notified of a presence that has expired.
    registry = key_value_config(topology.registry_bucket, replicas) | {"subject_delete_marker_ttl": 5 * _SECOND}
    return [
        *shards,
        dead_config(topology, replicas),
        automation_config(topology, replicas),
        audit_config(topology, replicas),
        registry,
        key_value_config(topology.sessions_bucket, replicas),
        object_store_config(topology.blob_bucket, replicas),
    ]


async def existing(nc: Client, settings: Settings) -> Topology | None:
    """Return the topology that the deployment was made with; None before that. Raises StreamDrift, BusUnavailable."""
    found = await stream_config(nc, Topology(1, settings.prefix).stream(0))
    if found is None:
        return None
    shards = (found.get("metadata") or {}).get(SHARDS)
    if shards is None or not shards.isdigit():
        raise StreamDrift(
            f"stream {found['name']} exists but is not Cadre's: choose another CADRE_PREFIX, or remove the stream"
        )
    topology = Topology(int(shards), settings.prefix)
    topology.layout = await layout_after(nc, topology, topology.layout)
    return topology


async def ensure_stream(nc: Client, config: dict[str, Any]) -> None:
    """Create the stream unless it exists; add the subjects that it lacks. Raises StreamDrift, SetupError,
    BusUnavailable."""
    found = await stream_config(nc, config["name"])
    if found is None:
        answer = await jetstream.api(nc, f"STREAM.CREATE.{config['name']}", config)
        error = answer.get("error")
        if error is None:
            return
        # Another service may have been first; what counts is what stands there now.
        found = await stream_config(nc, config["name"])
        if found is None and jetstream.is_passing(error):
            raise BusUnavailable(f"creating stream {config['name']}", error.get("description"))
        if found is None and error.get("err_code") == _NO_CLUSTER:
            raise SetupError(
                f"CADRE_REPLICAS={config['num_replicas']} needs a cluster of as many NATS servers,"
                " and this is a single one: leave it at 1 here"
            )
        if found is None:
            raise SetupError(f"stream {config['name']} cannot be created: {remedy(error)}")
    found = await _with_subjects(nc, config, found)
    drift = _drift(config, found)
    if drift:
        raise StreamDrift("; ".join(drift))
    if config.get("max_age") == _FOR_EVER and found.get("max_age"):
        await _keep_for_ever(nc, found)


async def _with_subjects(nc: Client, config: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Add the subjects that the stream lacks; return its configuration."""
    if not set(found["subjects"]) < set(config["subjects"]):
        return found
    wanted = found | {"subjects": config["subjects"]}
    answer = await jetstream.api(nc, f"STREAM.UPDATE.{config['name']}", wanted)
    error = answer.get("error")
    if error is None:
        return wanted
    if jetstream.is_passing(error):
        raise BusUnavailable(f"changing stream {config['name']}", error.get("description"))
    return found


async def _keep_for_ever(nc: Client, found: dict[str, Any]) -> None:
    """Remove the age limit of a stream: it would lose runs that wait for longer."""
    name = found["name"]
    answer = await jetstream.api(nc, f"STREAM.UPDATE.{name}", found | {"max_age": _FOR_EVER})
    error = answer.get("error")
    if error is None:
        log.warning("stream %s had an age limit, which is gone now: what it holds is removed run by run", name)
    elif jetstream.is_passing(error):
        raise BusUnavailable(f"changing stream {name}", error.get("description"))
    else:
        raise SetupError(
            f"stream {name} loses what is older than {found['max_age'] // _SECOND} s, and the limit cannot be"
            f" taken away ({error.get('description')}): do it with `nats stream edit {name} --max-age=0`"
        )


def _drift(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    needed = {key: wanted[key] for key in _CONTRACT if key in wanted and found.get(key) != wanted[key]}
    if set(wanted["subjects"]) <= set(found["subjects"]):
        needed.pop("subjects", None)  # dead letters of streams that were added since it was asked which there are
    largest = found.get("max_msg_size", -1)
    if 0 <= largest < wanted.get("max_msg_size", 0):
        needed["max_msg_size"] = wanted["max_msg_size"]
    return [
        f"stream {wanted['name']} has {key}={found.get(key)!r}, this version needs {value!r}:"
        f" change it with `nats stream edit {wanted['name']}`"
        for key, value in needed.items()
    ]


SHARDS, GENERATION, GROWTH = "cadre.shards", "cadre.generation", "cadre.growth"
"""Metadata of the first stream that a generation of shards adds: the number of shards from then on; the number of the
generation, from 0, where it is not the first; and OPEN once trees begin in it."""


async def layout_after(nc: Client, topology: Topology, known: Layout) -> Layout:
    """Return the layout of the streams now, which was `known` before: generations are added and never taken away.
    Raises BusUnavailable, NotPermitted."""
    generations = known.generations
    while True:
        found = await stream_config(nc, topology.stream(generations[-1]))
        about = (found or {}).get("metadata") or {}
        if about.get(GENERATION) != str(len(generations)):
            return Layout(generations)
        shards = int(about[SHARDS])
        if about.get(GROWTH) != OPEN:
            # Streams are made in their order: behind the last one all are there.
            last = await stream_config(nc, topology.stream(shards - 1))
            return Layout(generations, shards, serves=last is not None)
        generations = (*generations, shards)


async def stream_config(nc: Client, stream: str) -> dict[str, Any] | None:
    """Return the stream's configuration as the server has it; None where there is no such stream. Raises SetupError,
    BusUnavailable, NotPermitted."""
    answer = await jetstream.api(nc, f"STREAM.INFO.{stream}")
    error = answer.get("error")
    if error is None:
        config: dict[str, Any] = answer["config"]
        return config
    if error.get("code") == 404:
        return None
    if jetstream.is_passing(error):
        raise BusUnavailable(f"asking for stream {stream}", error.get("description"))
    raise SetupError(f"JetStream is not usable here: {remedy(error)}")


def remedy(error: dict[str, Any]) -> str:
    """Return the server's description of an error with what to do about it, where that is a limit of the account."""
    known = ACCOUNT_REMEDIES.get(error.get("err_code", 0))
    return f"{error.get('description')}" + (f": {known}" if known else "")


_FOLDER, _HOST, _SAVED = "cadre.folder", "cadre.host", "cadre.saved"


class RestoreMark(NamedTuple):
    """The note that a restore leaves of itself."""

    folder: Path
    """The backup that brings back what was there; where there was nothing, the one that is restored."""
    is_saved: bool
    """True if the folder holds what was there."""
    host: str
    """The machine on which the folder lies."""

    @property
    def command(self) -> str:
        """Return the command that goes back."""
        return f"cadre restore {shlex.quote(os.fspath(self.folder))} --replace"


def new_mark(folder: Path, *, is_saved: bool) -> RestoreMark:
    """Return the mark of a restore on this machine."""
    return RestoreMark(folder.absolute(), is_saved, socket.gethostname())


async def read_mark(nc: Client, prefix: str) -> RestoreMark | None:
    """Return the mark of a restore that goes on, or did not end; None without such a restore. Raise BusUnavailable."""
    found = await jetstream.stream_info(nc, _name(prefix))
    if found is None:
        return None
    about = found["config"].get("metadata") or {}
    return RestoreMark(Path(about.get(_FOLDER, "")), about.get(_SAVED) == "1", about.get(_HOST, ""))


async def check_no_restore(nc: Client, prefix: str) -> None:
    """Raise SetupError while a restore goes on, or where one did not end; BusUnavailable."""
    if (mark := await read_mark(nc, prefix)) is not None:
        raise SetupError(f"a restore goes on, or did not end: if none runs, go back by `{mark.command}` on {mark.host}")


async def write_mark(nc: Client, settings: Settings, mark: RestoreMark) -> None:
    """Mark the server, in place of an earlier mark. Raises BusUnavailable."""
    await remove_mark(nc, settings.prefix)
    name = _name(settings.prefix)
    config: dict[str, Any] = {
        "name": name,
        "subjects": [f"{settings.prefix}.restore"],
        "storage": "file",
        "retention": "limits",
        "num_replicas": settings.replicas,
        "max_msgs": 1,
        "metadata": {
            _FOLDER: os.fspath(mark.folder),
            _HOST: mark.host,
            _SAVED: "1" if mark.is_saved else "0",
        },
    }
    await jetstream.ask(nc, "marking the server", f"STREAM.CREATE.{name}", config)


async def remove_mark(nc: Client, prefix: str) -> None:
    """Remove the mark, if there is one. Raises BusUnavailable."""
    name = _name(prefix)
    if await jetstream.stream_info(nc, name) is not None:
        await jetstream.ask(nc, "removing the mark of the restore", f"STREAM.DELETE.{name}")


def _name(prefix: str) -> str:
    return f"{prefix.upper()}-RESTORE"
