"""A gateway looks nothing up that its own reading of the journals has just delivered."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nats_proxy import NatsProxy
from harness.nats_server import free_port
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"
RUNS = 20


@pytest.fixture
def proxy() -> Iterator[NatsProxy]:
    """Between the gateway and the server."""
    with NatsProxy(free_port()) as proxy:
        proxy.counted = re.compile(r"\$JS\.API\.(STREAM\.MSG|DIRECT)\.GET\.CADRE-\d")
        yield proxy


@pytest.fixture
def gateway(proxy: NatsProxy, tmp_path: Path) -> Iterator[Gateway]:
    with Stack(tmp_path, nats_port=proxy.server_port) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "helper.yaml")
        gateway = Gateway(stack.add("gateway", "cadre_gateway", CADRE_NATS_URL=proxy.url))
        gateway.wait_offered(1)
        yield gateway


def waited_for(gateway: Gateway, **more: object) -> dict[str, object]:
    body = {"agent": "helper", "task": "be kind", **more}
    answer = gateway.request("POST", "/v1/runs", json=body, headers={"prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_a_run_that_is_waited_for_is_not_read_again(gateway: Gateway, proxy: NatsProxy) -> None:
    before = proxy.asked
    results = [waited_for(gateway) for _ in range(RUNS)]
    assert proxy.asked == before
    for result in results:
        assert (result["state"], result["output"], result["error"]) == ("success", "hello", None)
        full = gateway.run(str(result["id"]))
        assert {name: full[name] for name in result} == result


def test_a_full_result_has_its_steps(gateway: Gateway) -> None:
    assert waited_for(gateway, return_full_result=True)["steps"] == 1
