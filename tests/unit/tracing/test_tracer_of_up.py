"""`cadre up` starts a tracer for those who have a receiver."""

from pathlib import Path

import pytest

from cadre.adapters.local_stack import Ports
from cadre.local.processes import Stack


@pytest.mark.parametrize(("endpoint", "started"), [("http://127.0.0.1:4318", True), ("", False)])
def test_a_tracer_is_started_where_there_is_a_receiver(
    endpoint: str, started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    stack = Stack(tmp_path, None, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    assert [service.name for service in stack._tracer()] == ["tracer"] * started
