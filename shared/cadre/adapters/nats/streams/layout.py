"""Generations of shards as the metadata of streams holds them."""

from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable, SetupError
from cadre.protocol.addresses.generations import Layout
from cadre.protocol.topology import Topology

SHARDS, GENERATION, GROWTH = "cadre.shards", "cadre.generation", "cadre.growth"
"""Metadata of the first stream that a generation of shards adds: the number of shards from then on; the number of the
generation, from 0, where it is not the first; and OPEN once trees begin in it."""

OPEN = "open"

ACCOUNT_REMEDIES = {
    10027: "allow more streams in its account (max_streams)",
    10113: "take max_bytes_required from its account",
    10122: "take the limit on the size of one stream (max_stream_bytes) from its account",
    10026: "allow more consumers in its account (max_consumers)",
}
"""Advice for each limit of the account, by the error of the server that names it."""


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
