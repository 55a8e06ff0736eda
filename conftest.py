"""Every test's own time limit is for a machine at rest: a slow one gets more. Hypothesis has none of its own."""

import gc
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest
import pytest_timeout  # type: ignore[import-untyped]

from harness.patience import patience
from harness.postgres_server import MISSING, PostgresServer, postgres_programs

hypothesis.settings.register_profile(
    "any machine",
    hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=patience(settings.timeout)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the process: the garbage collector is spared it, now and in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that the tests of a session share, each with a schema of its own."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip(MISSING)
    with PostgresServer(programs) as server:
        yield server
