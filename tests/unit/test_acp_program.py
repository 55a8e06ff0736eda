"""Tests of what a program of the Agent Client Protocol says that it can do."""

import asyncio
from typing import Any

import pytest

acp_schema = pytest.importorskip("acp.schema")
program_module = pytest.importorskip("cadre.adapters.acp.program")


@pytest.mark.parametrize(
    ("told", "sees"),
    [
        ({"agentCapabilities": {"promptCapabilities": {"image": True}}}, True),
        ({"agentCapabilities": {"promptCapabilities": {}}}, False),
        ({"agentCapabilities": {"promptCapabilities": None}}, False),
        ({"agentCapabilities": None}, False),
        ({}, False),
    ],
)
async def test_whether_it_sees_images(told: dict[str, Any], sees: bool) -> None:
    class Connection:
        """Answers as the program does."""

        async def initialize(self, **_: object) -> object:
            return acp_schema.InitializeResponse.model_validate({"protocolVersion": 1, **told})

    async def works_on() -> list[str]:
        await asyncio.Event().wait()
        return []

    working = asyncio.create_task(works_on())
    program = program_module.Program(Connection(), None, working)
    await program.introduce()
    assert program.sees_images is sees
    working.cancel()
