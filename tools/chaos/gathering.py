"""Reads what the streams hold: journals, inboxes, effects, consumers, timers, dead letters."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.code_history import with_whole_history
from cadre.delivery.codec import unpack_code_call, unpack_entry, unpack_record
from cadre.ports import Stored
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from chaos.evidence import Consumer, Delivered, EffectMessage, Evidence

QUIET_WITHIN = 45.0
"""Seconds for what was delivered to be acked, once every run has ended: a few ack waits."""

_PAGE = 256
_LOOK_EVERY = 0.25


async def gather(nats_url: str, into: Evidence) -> None:
    """Waits until the consumers are quiet, or for QUIET_WITHIN seconds; then fills in what NATS holds."""
    settings = Settings(nats_url=nats_url)
    nc = await connect(settings, "chaos", wait=False)
    try:
        topology = await provision(nc, settings)
        into.consumers = await _quiet_consumers(nc, topology)
        blobs = NatsBlobs(nc, topology)
        for shard in range(topology.shards):
            stream, own = topology.stream(shard), topology.prefix
            async for held in _messages(nc, stream, f"{own}.run.{shard}.>"):
                entry = await unpack_entry(held.data, blobs)
                _, run = topology.parse(held.subject)
                into.journals.setdefault(run, []).append(Stored(held.seq, entry))
            async for held in _messages(nc, stream, f"{own}.in.{shard}.>"):
                record = await unpack_record(held.data, blobs)
                _, run = topology.parse(held.subject)
                into.inbox.append(Delivered(run, record.id, held.seq))
            async for held in _messages(nc, stream, f"{own}.code.{shard}.>"):
                into.code.append(await with_whole_history(await unpack_code_call(held.data, blobs), blobs))
            async for held in _messages(nc, stream, f"{own}.effect.{shard}.>"):
                _tree, call, *_ = held.subject.removeprefix(f"{own}.effect.{shard}.").split(".")
                if call.startswith("_"):
                    continue  # a file, say, or what tried out whether the shard stores
                into.effects.setdefault(call, []).append(_effect(json.loads(held.data)))
            async for held in _messages(nc, stream, f"{own}.timer.{shard}.>"):
                into.timers.append(held.subject)
        into.dead = [held.data.decode() async for held in _messages(nc, topology.dead_stream, ">")]
    finally:
        await nc.close()


async def _messages(nc: Client, stream: str, subject: str) -> AsyncIterator[StoredMessage]:
    after = 0
    while True:
        query = {"seq": after + 1, "batch": _PAGE, "next_by_subj": subject}
        page = await jetstream.batch(nc, stream, query)
        if not page:
            return
        for held in page:
            yield held
        after = page[-1].seq


async def _quiet_consumers(nc: Client, topology: Topology) -> list[Consumer]:
    deadline = time.monotonic() + QUIET_WITHIN
    while True:
        consumers = [one for shard in range(topology.shards) for one in await _consumers(nc, topology, shard)]
        if not any(one.pending or one.unacked for one in consumers) or time.monotonic() > deadline:
            return consumers
        await asyncio.sleep(_LOOK_EVERY)


async def _consumers(nc: Client, topology: Topology, shard: int) -> list[Consumer]:
    """The durable ones, which are shared by replicas; those of readers come and go."""
    stream, found, offset = topology.stream(shard), [], 0
    while True:
        answer = await jetstream.api(nc, f"CONSUMER.LIST.{stream}", {"offset": offset})
        found += [
            Consumer(stream, one["name"], one["num_pending"], one["num_ack_pending"])
            for one in answer["consumers"]
            if one["config"].get("durable_name")
        ]
        offset += len(answer["consumers"])
        if offset >= answer["total"] or not answer["consumers"]:
            return found


def _effect(message: dict[str, Any]) -> EffectMessage:
    claim = message.get("claim", message)
    error = message.get("result", {}).get("error")
    return EffectMessage(
        type=message["type"],
        executor=claim["executor"],
        at=message["at"],
        claimed_at=claim["at"],
        error=ErrorInfo(error["code"], error["message"]) if error else None,
    )
