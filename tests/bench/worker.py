"""The far side of the delegation benchmark: a member agent with an instant model, and a core NATS echo."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from nats.aio.msg import Msg

from bench.instant import InstantModel, answer
from cadre.host import AgentHost
from cadre.prompting import Prompts
from cadre.service import open_platform
from cadre.settings import read_settings
from cadre.specs import AgentSpec


async def main() -> None:
    platform = await open_platform("bench worker", read_settings())

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await platform.nc.subscribe("bench.echo", cb=echo)
    spec = AgentSpec(name="worker", description="Answers at once.")
    host = AgentHost(spec, Prompts.load("tool_calling"), platform, InstantModel(lambda _: answer("done")))
    await host.start()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
