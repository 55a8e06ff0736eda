"""The secret of a sandbox pool in JetStream, from which the random numbers of its code derive: made once, by the first
process that needs it."""

import secrets

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.errors import Fenced
from cadre.protocol.topology import Subject, Topology

_BYTES = 32


class SeedSecret(msgspec.Struct, frozen=True, tag_field="type", tag="seed_secret"):
    """A pool's secret as it is stored."""

    secret: str
    """Hex digits."""


async def pool_secret(nc: Client, topology: Topology, pool: str) -> bytes:
    """Return the secret that all sandboxes of the pool have in common. Raises BusUnavailable, RetryableError."""
    subject = topology.subject(Subject.SEED, shard=0, pool=pool)
    kept: FencedValue[SeedSecret] = FencedValue(nc, topology.stream(0), subject, SeedSecret)
    while True:
        found, fence = await kept.read()
        if found is not None:
            return bytes.fromhex(found.secret)
        try:
            await kept.write(SeedSecret(secrets.token_hex(_BYTES)), fence)
        except Fenced:
            continue  # another sandbox was faster: its secret counts
