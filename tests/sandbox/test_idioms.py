"""Idioms of the standard library: what they come to in plain CPython, they come to in the sandbox, in both tiers."""

from pathlib import Path

import pytest

from cadre_sandbox.interpreters.contract import Python, Tier
from cadre_sandbox.interpreters.pool import Sandbox
from sandbox import idioms
from sandbox.worlds import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("topic", idioms.TOPICS)
async def test_an_idiom_means_what_it_does_in_plain_python(
    every_sandbox: Sandbox, world: World, topic: str, tmp_path: Path
) -> None:
    python: Python = world.options.get("python", Python())
    tier: Tier = "landlock" if world.name == "landlock" else "ns"
    await idioms.compare(every_sandbox, tier, python.executable, topic, tmp_path)


async def test_there_are_enough_of_them() -> None:
    assert sum(len(idioms.idioms_of(topic)) for topic in (*idioms.TOPICS, *idioms.SCIENCE)) >= 400


async def test_what_differs_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "code-agents.md").read_text()
    reasons = {reason for topic in idioms.TOPICS for one in idioms.idioms_of(topic) for reason in one.differs.values()}
    assert reasons
    assert [reason for reason in reasons if reason not in page] == []
