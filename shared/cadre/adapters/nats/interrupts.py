"""Listens for runs and calls that are to stop early: a hint that saves time and money, never the only word of a
cancellation."""

from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.protocol.topology import Topology


async def hear_interrupts(nc: Client, topology: Topology, heard: Callable[[str], None]) -> None:
    """Calls `heard` with the id of each run or call that has ended early, as long as the connection lives."""

    async def on_message(message: Msg) -> None:
        heard(message.data.decode())

    await nc.subscribe(topology.interrupts, cb=on_message)
