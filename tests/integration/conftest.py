"""A real nats-server per test session, its own deployment per test, and a gateway process per module."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cadre.settings import Settings
from cadre.spec.model import ModelApi
from cadre.testing import ModelServer, running_model
from harness.nats_server import NatsServer
from integration.gateway_world import GatewayProcess, World, entered, with_boss


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    return nats_server.url


@pytest.fixture
def settings(nats_url: str) -> Settings:
    """A deployment that no other test shares: its own prefix on the session's server."""
    return Settings(nats_url=nats_url, prefix=f"t{uuid4().hex[:10]}", shards=2, drain_seconds=5)


@pytest.fixture
async def bench(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> AsyncIterator[Any]:
    """The bench whose class the test's module imports: of executors, sandboxes or the memory service."""
    async with request.module.Bench.open(settings, tmp_path) as bench:
        yield bench


@pytest.fixture(scope="module")
def gateway(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    one = GatewayProcess(nats_server.url, tmp_path_factory.mktemp("gateway"))
    yield one
    one.kill()


@pytest.fixture
async def world(gateway: GatewayProcess) -> AsyncIterator[World]:
    async with with_boss(gateway) as one:
        yield one


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the other gateway writes aside."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def elsewhere(
    nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory, scratch: Path
) -> Iterator[GatewayProcess]:
    """The gateway of another deployment."""
    one = GatewayProcess(nats_server.url, tmp_path_factory.mktemp("elsewhere"), TMPDIR=str(scratch))
    yield one
    one.kill()


@pytest.fixture
async def other(elsewhere: GatewayProcess) -> AsyncIterator[World]:
    async with entered(elsewhere) as one:
        yield one


@pytest.fixture(scope="module")
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A scripted model that plays the test module's SCRIPT."""
    script = tmp_path_factory.mktemp("script") / "script.yaml"
    script.write_text(request.module.SCRIPT)
    with running_model("--script", script) as server:
        yield server


@pytest.fixture
def server(endpoint: ModelServer) -> ModelServer:
    """The module's scripted model, its counters at zero."""
    endpoint.reset()
    return endpoint


@pytest.fixture(params=["chat", "responses"])
def api(request: pytest.FixtureRequest) -> ModelApi:
    """Both APIs of an endpoint: each test that takes it is run over either."""
    found: ModelApi = request.param
    return found
