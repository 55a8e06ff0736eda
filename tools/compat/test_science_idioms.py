"""Idioms of numpy and pandas: what they come to in plain CPython, they come to in the sandbox, in both tiers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cadre_sandbox.interpreters.contract import TIERS, BlockLimits, Python, Tier
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.jail.confinement import jail
from compat.cadre_values import PYTHON
from sandbox import idioms

# The code page of zip files as well: as root, tier landlock can read only what was imported ahead.
AHEAD = ("numpy", "pandas", "sqlite3", "encodings.cp437")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    if found == "landlock" and jail.version() < jail.ENOUGH:
        pytest.skip("this kernel's Landlock is too old")
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tier: Tier) -> AsyncIterator[Sandbox]:
    python = Python(executable=str(PYTHON), modules=AHEAD)
    most = BlockLimits(seconds=60, memory_mb=1024)
    async with Sandbox(most=most, python=python, minimum=tier, best=tier) as sandbox:
        yield sandbox


@pytest.mark.parametrize("topic", idioms.SCIENCE)
async def test_an_idiom_means_what_it_does_in_plain_python(
    lab: Sandbox, tier: Tier, topic: str, tmp_path: Path
) -> None:
    await idioms.compare(lab, tier, str(PYTHON), topic, tmp_path)
