"""While NATS is away a gateway stays where clients find it, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.patience import eventually, patience
from harness.stack import Stack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as stack:
        yield stack


def probes(client: httpx2.Client) -> tuple[int, int]:
    """The answers for people and monitors, and for the Service that it stands behind."""
    try:
        return client.get("/readyz").status_code, client.get("/readyz/self").status_code
    except httpx2.TransportError:
        return 0, 0  # it has not begun to listen


def refused(client: httpx2.Client) -> None:
    requests = [
        client.get("/v1/runs/01J00000000000000000000000"),
        client.get("/v1/agents"),
        client.post("/v1/runs", json={"agent": "oracle", "task": "Well?"}),
    ]
    answered = [one for one in requests if one.status_code == 503]
    assert answered, [one.text for one in requests]
    for one in answered:
        assert one.json()["code"] == "bus-unavailable"
        assert int(one.headers["Retry-After"]) >= 1


def test_it_stays_in_its_service_and_refuses_with_the_reason(stack: Stack) -> None:
    gateway = stack.gateway()
    with httpx2.Client(base_url=gateway.service.url, timeout=patience(), trust_env=False) as client:
        assert probes(client) == (200, 200)
        stack.nats.kill()
        eventually(lambda: probes(client) == (503, 200), what="503 for people", state=lambda: probes(client))
        assert client.get("/readyz").json()["code"] == "bus-unavailable"
        refused(client)
        gateway.service.kill()
    gateway.service.start(wait=False)
    with httpx2.Client(base_url=gateway.service.url, timeout=patience(), trust_env=False) as client:
        eventually(lambda: probes(client) == (503, 200), what="503 without NATS", state=lambda: probes(client))
        refused(client)
        stack.nats.start()
        eventually(lambda: probes(client) == (200, 200), what="it works again", state=lambda: probes(client))
        assert client.get("/v1/agents").status_code == 200
