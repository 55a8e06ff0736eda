"""Tests of what libraries of Cadre's load for uses that it has not."""

import subprocess
import sys

import pytest

NATS = "import cadre.adapters.nats.bus, nats"
MODEL = (
    "import asyncio; from cadre.adapters.models.openai_client import OpenAIClient;"
    "asyncio.run(OpenAIClient('http://127.0.0.1:9/v1', 'KEY', seconds=1, connect=1).load())"
)


@pytest.mark.parametrize("use", [NATS, MODEL])
def test_neither_nats_nor_a_model_loads_aiohttp(use: str) -> None:
    code = (
        f"{use}; import sys;"
        "print([m for m in sys.modules if m.split('.')[0] in ('aiohttp', 'multidict')]);"
        "import aiohttp; print(aiohttp.__name__)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["[]", "aiohttp"], "whoever wants it has it"
