"""Agents as processes: a member whose model answers at once or never, with a core NATS echo next to it; and one
whose every run asks for a call that is held back."""

import asyncio
import sys

import uvloop
from nats.aio.msg import Msg

from bench.floor import WORKER, Relay
from bench.held import agent_of, model_of
from bench.instant import InstantModel, answer, call
from cadre.engine.model_request import ModelRequest
from cadre.ports import Model, ModelReply, OnText
from cadre.prompting.prompts import Prompts, kind_for
from cadre.service.agent import AgentHost, AgentHosts
from cadre.service.frame import calm_collector
from cadre.service.platform import open_platform
from cadre.settings import read_settings
from cadre.spec.agent import AgentSpec

ECHO = "bench.echo"

HELD = AgentSpec(name="clerk", description="Refunds.", tools=["refund"], approvals={"refund": "when: amount > 100"})


class HeldModel:
    """ports.Model that says when it is asked, and does not answer."""

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        print("asked", flush=True)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")


async def main(*options: str) -> None:
    platform = await open_platform("bench worker", read_settings())

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await platform.nc.subscribe(ECHO, cb=echo)
    model: Model = HeldModel() if "--hold" in options else InstantModel(lambda _: answer("done"))
    spec = AgentSpec(name="worker", description="Answers at once.")
    if "--waits" in options:
        model, spec = model_of(options[-1]), agent_of(options[-1])
    if "--held" in options:
        model = InstantModel(lambda _: call("refund", amount=500, reason="The order never came."))
        spec = HELD
    relay = Relay(platform, WORKER)
    await relay.start()
    host = AgentHosts(platform, [AgentHost(spec, Prompts.load(kind_for(spec)), platform, model)])
    await host.start()
    calm_collector()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await platform.registry.withdraw()
    await relay.drain()
    await host.drain(0.1)
    await platform.registry.stop()
    await platform.nc.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
