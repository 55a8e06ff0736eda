"""The tool `python_interpreter`: what it refuses before any interpreter is asked."""

from typing import cast

from cadre.delivery.codec import encode
from cadre.protocol.messages import ToolCall
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.serving.interpreter_tool import InterpreterTool
from cadre_sandbox.serving.warm_pool import WarmPool
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from unit.loop.memory_world import MemoryWorld
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine


async def test_code_in_the_name_of_another_agent_is_not_run() -> None:
    world = MemoryWorld()
    pool = WarmPool(cast(Sandbox, None), 1, 1.0)
    tool = InterpreterTool(pool, world.bus, MemoryBlobs(), MemoryQuarantine(), world.clock)
    call = ToolCall(
        id="r1_1_0",
        tree="r1",
        run="r1",
        at=1.0,
        agent="ann",
        tool="python_interpreter",
        arguments={"code": "1"},
    )
    delivered = Delivered(1, encode(call), "cadre.call.0.python_interpreter.mallory.r1.r1_1_0")
    await tool.handle(delivered)
    (why,) = map(str, delivered.settled)
    assert holds(why, "'ann'", "'mallory'")
