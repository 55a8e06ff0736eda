"""Growth of a deployment's shards: streams and queues first, then the services, then the first tree."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.connection.keys import may_provision, user_of
from cadre.adapters.nats.queues.consumers import create_consumer
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import (
    GENERATION,
    GROWTH,
    OPEN,
    SHARDS,
    check_no_restore,
    dead_config,
    ensure_stream,
    existing,
    shard_config,
    stream_config,
    stream_room,
)
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import BusUnavailable, SetupError
from cadre.protocol.cards import Presence
from cadre.protocol.topology import MOST_GENERATIONS, MOST_SHARDS, Layout, Topology
from cadre.settings import Settings

log = logging.getLogger("cadre.nats")

_OF_THE_FIRST_SHARD = ("metadata", "num_replicas", "opt_start_seq", "opt_start_time", "deliver_policy")
"""Fields of a queue's configuration that do not hold for the same queue of another shard."""


async def grow(nc: Client, settings: Settings, shards: int, seconds: float, report: Callable[[str], None]) -> Layout:
    """Grow the deployment to this number of shards, or finish a growth to it that was cut short; return its layout.

    Wait up to `seconds` for the live services to take from the new shards. Each step may be repeated, so the caller
    may be killed at any moment. Raises SetupError, also when a service does not follow in time: then no tree has begun
    in the new shards, and calling it again goes on. Raises BusUnavailable.
    """
    if not may_provision(nc):
        raise SetupError(f"{user_of(nc)} may not make streams: name the operator's key in CADRE_NATS_CREDENTIALS")
    await check_no_restore(nc, settings.prefix)
    topology = await existing(nc, settings)
    if topology is None:
        raise SetupError(
            f"there is no deployment of the prefix {settings.prefix!r} yet: CADRE_SHARDS={shards} makes one of"
            f" {shards} shards"
        )
    layout = topology.layout
    _check(layout, shards)
    before = layout.generations[-1]
    tuned = await _tuned(nc, topology)
    if not layout.growing:
        if room := await stream_room(nc, shards - before):
            raise SetupError("; ".join(room))
        layout = await _begin(nc, settings, topology, shards, tuned)
    grown = Topology(1, settings.prefix)
    grown.layout = layout._replace(growing=shards, serves=True)
    await ensure_stream(nc, dead_config(grown, settings.replicas))
    for shard in range(before + 1, shards - 1):
        await ensure_stream(nc, shard_config(grown, shard, settings.replicas) | tuned)
    await _copy_queues(nc, grown, range(before, shards - 1))
    # Behind the last stream services take from all of them.
    await ensure_stream(nc, shard_config(grown, shards - 1, settings.replicas) | tuned)
    await _copy_queues(nc, grown, range(before, shards))
    report(f"{shards - before} streams are there, with their queues")
    await _await_services(nc, grown, seconds)
    # Once more, for queues made meanwhile by services that did not know of the new streams yet.
    await _copy_queues(nc, grown, range(before, shards))
    await _open(nc, grown, before)
    return Layout((*layout.generations, shards))


def _check(layout: Layout, shards: int) -> None:
    """Raise SetupError unless the layout can grow to this number of shards."""
    now = layout.generations[-1]
    if layout.growing not in (0, shards):
        raise SetupError(
            f"a growth to {layout.growing} shards goes on: finish it first, by `cadre shards grow {layout.growing}`"
        )
    if shards <= now:
        raise SetupError(
            f"there are {now} shards already, and their number only grows: name more than {now}"
            if shards == now
            else f"there are {now} shards, and their number only grows: trees stay in their streams"
        )
    if shards > MOST_SHARDS:
        raise SetupError(f"a deployment has {MOST_SHARDS} shards at most, and not {shards}")
    if len(layout.generations) >= MOST_GENERATIONS:
        raise SetupError(f"the shards have grown {MOST_GENERATIONS - 1} times, and ids cannot name another generation")


async def _tuned(nc: Client, topology: Topology) -> dict[str, Any]:
    """Return what operators may have changed of the first shard's stream: new ones are kept as well as that one."""
    found = await stream_config(nc, topology.stream(0)) or {}
    return {key: found[key] for key in ("num_replicas", "placement", "compression") if key in found}


async def _begin(nc: Client, settings: Settings, topology: Topology, shards: int, tuned: dict[str, Any]) -> Layout:
    """Make the first of the new streams, which says how many there will be: of two growths at once one makes it."""
    layout = topology.layout
    first = layout.generations[-1]
    config = shard_config(topology, first, settings.replicas) | tuned
    config["metadata"] = {GENERATION: str(len(layout.generations)), SHARDS: str(shards)}
    await ensure_stream(nc, config)
    found = await existing(nc, settings)
    assert found is not None
    if found.layout.generations != layout.generations or found.layout.growing != shards:
        _check(found.layout, shards)
        raise SetupError(f"stream {topology.stream(first)} was made by something else: remove it, and try again")
    return found.layout


async def _copy_queues(nc: Client, topology: Topology, shards: Iterable[int]) -> None:
    """Make the queues that the first shard has on others: services whose NATS users may not make them need them."""
    found = await jetstream.consumers(nc, topology.stream(0))
    for config in (one["config"] for one in found):
        if not (name := config.get("durable_name")):
            continue
        for shard in shards:
            copied = _for_shard(topology, config, shard)
            make = partial(create_consumer, nc, topology.stream(shard), name, copied)
            await retry(make, pauses=EVERY_SECOND, log=log)


def _for_shard(topology: Topology, config: dict[str, Any], shard: int) -> dict[str, Any]:
    """Return the configuration of a queue of the first shard for another one."""

    def there(subject: str) -> str:
        kind, _, rest = subject.removeprefix(f"{topology.prefix}.").split(".", 2)
        return f"{topology.prefix}.{kind}.{shard}.{rest}"

    copied = {key: value for key, value in config.items() if key not in _OF_THE_FIRST_SHARD}
    if "filter_subject" in copied:
        copied["filter_subject"] = there(copied["filter_subject"])
    if "filter_subjects" in copied:
        copied["filter_subjects"] = [there(subject) for subject in copied["filter_subjects"]]
    return copied


async def _await_services(nc: Client, topology: Topology, seconds: float) -> None:
    """Return once all live replicas take from all shards. Raises SetupError that names those that do not in time."""
    registry, until = NatsRegistry(nc, topology), time.monotonic() + seconds
    await registry.start()
    try:
        while behind := [one for one in registry.presences() if one.is_live and one.shards < topology.shards]:
            left = until - time.monotonic()
            if left <= 0:
                raise SetupError(
                    f"no run begins in the new shards yet, for these do not take from them: {_names(behind)}; their"
                    " /readyz says why. A service with a NATS user needs its permissions for all shards first:"
                    f" `CADRE_SHARDS={topology.shards} cadre auth init`, and have the server read its file again."
                    f" Then run `cadre shards grow {topology.shards}` again"
                )
            try:
                async with asyncio.timeout(left):
                    await registry.changed()
            except TimeoutError:
                continue
    finally:
        await registry.stop()


def _names(presences: list[Presence]) -> str:
    names = {f"{_name(one)} ({one.instance})" for one in presences}
    return ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _name(presence: Presence) -> str:
    if presence.agent is not None:
        return f"agent {presence.agent.name}"
    if presence.tool is not None:
        return f"tool {presence.tool.name}"
    return f"sandbox {presence.sandbox.pool}" if presence.sandbox is not None else presence.host


async def _open(nc: Client, topology: Topology, first: int) -> None:
    """Say that trees may begin in the new generation. It is never taken back, so it may be said twice."""
    name = topology.stream(first)
    found = await stream_config(nc, name)
    if found is None:
        raise SetupError(f"stream {name} is gone: the NATS server has lost it")
    config = found | {"metadata": (found.get("metadata") or {}) | {GROWTH: OPEN}}
    answer = await jetstream.api(nc, f"STREAM.UPDATE.{name}", config)
    if (error := answer.get("error")) is not None:
        raise BusUnavailable(f"changing stream {name}", error.get("description"))
