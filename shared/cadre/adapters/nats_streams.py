"""Streams and buckets of a deployment: created if absent, compared if present."""

from __future__ import annotations

from typing import Any

import nats.js.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, ObjectStoreConfig

from cadre.adapters import jetstream
from cadre.errors import BusUnavailable, SetupError, StreamDrift
from cadre.settings import Settings
from cadre.subjects import Topology

_SECOND = 1_000_000_000
_DAY = 24 * 3600 * _SECOND

INBOX_TTL = "168h"
"""How long a delivered record or call stays in its stream: longer than any wait for a replica."""

_CONTRACT = (
    "subjects",
    "retention",
    "storage",
    "allow_direct",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "duplicate_window",
)
"""What this version relies on. The rest (replicas, ages, sizes) is the operator's to tune."""


def shard_config(topology: Topology, shard: int, replicas: int) -> dict[str, Any]:
    """Configuration of one shard's stream, in the JSON of the JetStream API."""
    return {
        "name": topology.stream(shard),
        "subjects": topology.stream_subjects(shard),
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "old",
        "max_age": 30 * _DAY,
        "max_msg_size": 768 * 1024,
        # An explicit number: the server's default is 1,000.
        "max_consumers": 10_000,
        "duplicate_window": 120 * _SECOND,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "allow_msg_schedules": True,
        "allow_rollup_hdrs": True,
        "metadata": {"cadre.shards": str(topology.shards)},
    }


def dead_config(topology: Topology, replicas: int) -> dict[str, Any]:
    return {
        "name": topology.dead_stream,
        "subjects": topology.dead_subjects,
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "old",
        "max_age": 30 * _DAY,
        "max_consumers": 1_000,
        "allow_direct": True,
    }


async def provision(nc: Client, settings: Settings) -> Topology:
    """Creates what is missing and returns the deployment's topology.

    The number of shards of an existing deployment wins over the setting. Raises StreamDrift naming each
    difference, SetupError when the server cannot do what is needed, BusUnavailable.
    """
    try:
        topology = await _existing(nc, settings) or Topology(settings.shards, settings.prefix)
    except BusUnavailable as error:
        # Not asked first: a leaf node has JetStream through its hub without saying so.
        if nc._server_info.get("jetstream"):
            raise
        raise SetupError(
            f"JetStream is off at {settings.nats_url}: start nats-server with -js,"
            " or with a jetstream block in its file"
        ) from error
    for config in _configs(topology, settings.replicas):
        await _ensure(nc, config)
    js = nc.jetstream()
    try:
        await js.create_key_value(
            KeyValueConfig(
                bucket=topology.registry_bucket,
                history=1,
                limit_marker_ttl=5,
                direct=True,
                replicas=settings.replicas,
            )
        )
        await js.create_key_value(
            KeyValueConfig(
                bucket=topology.sessions_bucket, history=1, direct=True, replicas=settings.replicas
            )
        )
        try:
            await js.object_store(topology.blob_bucket)
        except nats.js.errors.NotFoundError:
            await js.create_object_store(
                topology.blob_bucket, ObjectStoreConfig(ttl=30 * 24 * 3600, replicas=settings.replicas)
            )
    except nats.errors.Error as error:
        raise BusUnavailable("creating buckets", error) from error
    return topology


async def check(nc: Client, settings: Settings) -> list[str]:
    """What is wrong with the deployment's streams, a line each; [] when nothing is."""
    topology = await _existing(nc, settings)
    if topology is None:
        return [
            f"stream {Topology(1, settings.prefix).stream(0)} does not exist yet: start any service to create it"
        ]
    problems: list[str] = []
    for config in _configs(topology, settings.replicas):
        found = await _info(nc, config["name"])
        if found is None:
            problems.append(f"stream {config['name']} does not exist: start any service to create it")
        else:
            problems += _drift(config, found)
    return problems


def _configs(topology: Topology, replicas: int) -> list[dict[str, Any]]:
    shards = [shard_config(topology, shard, replicas) for shard in range(topology.shards)]
    return [*shards, dead_config(topology, replicas)]


async def _existing(nc: Client, settings: Settings) -> Topology | None:
    found = await _info(nc, Topology(1, settings.prefix).stream(0))
    if found is None:
        return None
    shards = (found.get("metadata") or {}).get("cadre.shards")
    if shards is None or not shards.isdigit():
        raise StreamDrift(
            f"stream {found['name']} exists but is not Cadre's: choose another CADRE_PREFIX, or remove the stream"
        )
    return Topology(int(shards), settings.prefix)


async def _info(nc: Client, stream: str) -> dict[str, Any] | None:
    answer = await jetstream.api(nc, f"STREAM.INFO.{stream}")
    error = answer.get("error")
    if error is None:
        config: dict[str, Any] = answer["config"]
        return config
    if error.get("code") == 404:
        return None
    raise SetupError(
        f"JetStream is not usable here: {error.get('description')}; start nats-server with JetStream on"
    )


async def _ensure(nc: Client, config: dict[str, Any]) -> None:
    found = await _info(nc, config["name"])
    if found is None:
        answer = await jetstream.api(nc, f"STREAM.CREATE.{config['name']}", config)
        error = answer.get("error")
        if error is None:
            return
        # Another service may have been first; what counts is what stands there now.
        found = await _info(nc, config["name"])
        if found is None:
            raise SetupError(f"stream {config['name']} cannot be created: {error.get('description')}")
    drift = _drift(config, found)
    if drift:
        raise StreamDrift("; ".join(drift))


def _drift(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"stream {wanted['name']} has {key}={found.get(key)!r}, this version needs {wanted[key]!r}:"
        f" change it with `nats stream edit {wanted['name']}`"
        for key in _CONTRACT
        if key in wanted and found.get(key) != wanted[key]
    ]
