"""The cost of the bus alone for a block of code: a process that takes code calls as a sandbox does, and runs
nothing."""

import asyncio
import sys
import time

import uvloop
from nats.aio.msg import Msg

from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.delivery.codec import unpack_code_call
from cadre.protocol.messages import CodeFinished
from cadre.service.frame import calm_collector
from cadre.service.platform import open_platform
from cadre.settings import read_settings

POOL = "echo"
SUBJECT = "bench.code.echo"


async def main() -> None:
    platform = await open_platform("bench echo", read_settings())
    topology = platform.topology

    async def answer(delivery: NatsDelivery) -> None:
        call = await unpack_code_call(delivery.data, platform.blobs)
        done = CodeFinished(
            id=f"{call.block}:0:finished",
            tree=call.tree,
            run=call.run,
            at=time.time(),
            block=call.block,
            exchange=call.done,
            text="1",
            output=1,
        )
        await platform.bus.send(done, "sandbox", to=call.agent)
        await delivery.ack()

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await platform.nc.subscribe(SUBJECT, cb=echo)
    for shard in range(topology.shards):
        names = topology.stream(shard), topology.code_consumer(POOL), topology.code_filter(shard, POOL)
        await Queue(platform.nc, *names, answer, limit=8).start()
    calm_collector()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await platform.registry.stop()
    await platform.nc.close()


if __name__ == "__main__":
    uvloop.run(main())
