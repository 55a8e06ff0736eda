"""The parts that the alerts and the dashboard are tried with, new for each file."""

from collections.abc import Iterator

import pytest

from alerts.prometheus_process import Watchers, watching
from alerts.world import open_team, quick_to_forget, stack_behind
from harness.nats_proxy import NatsProxy
from harness.nats_server import free_port
from harness.otlp_receiver import OtlpReceiver
from harness.stack import Gateway, Stack
from observability.programs import Collector, Jaeger


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    """Of spans."""
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    one = Jaeger(tmp_path_factory.mktemp("jaeger"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def collector(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    one = quick_to_forget(Collector(tmp_path_factory.mktemp("collector"), jaeger.otlp))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def proxy() -> Iterator[NatsProxy]:
    """In front of the server of `stack`."""
    with NatsProxy(free_port()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def stack(
    proxy: NatsProxy, collector: Collector, receiver: OtlpReceiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with stack_behind(proxy, tmp_path_factory.mktemp("stack"), collector, receiver.url) as stack:
        yield stack


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    return open_team(stack)


@pytest.fixture(scope="module")
def watchers(stack: Stack, gateway: Gateway, collector: Collector) -> Iterator[Watchers]:
    with watching(stack, collector) as both:
        yield both
