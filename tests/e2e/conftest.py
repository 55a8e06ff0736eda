"""A deployment of separate processes: boss, worker, helper, a tool executor, a gateway, a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    """The whole team at work."""
    for name in ("boss", "worker", "helper"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    gateway = stack.gateway(start=False)
    stack.start_all()
    return gateway
