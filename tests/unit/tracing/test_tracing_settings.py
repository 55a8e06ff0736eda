"""The standard variables of OpenTelemetry, as Cadre understands them."""

import pytest

from cadre.errors import SettingError
from cadre.settings import read_tracing_settings


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ENDPOINT",
        "TRACES_ENDPOINT",
        "HEADERS",
        "TIMEOUT",
        "COMPRESSION",
        "PROTOCOL",
        "TRACES_HEADERS",
    ):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in (
        "OTEL_SDK_DISABLED",
        "OTEL_RESOURCE_ATTRIBUTES",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    ):
        monkeypatch.delenv(name, raising=False)


def test_without_an_endpoint_nothing_is_exported() -> None:
    assert read_tracing_settings().endpoint == ""
    assert not read_tracing_settings().content


@pytest.mark.parametrize(
    ("variable", "value", "endpoint"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://here:4318", "http://here:4318/v1/traces"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://here:4318/otlp/", "http://here:4318/otlp/v1/traces"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://here/spans", "http://here/spans"),
    ],
)
def test_the_endpoint(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, endpoint: str) -> None:
    monkeypatch.setenv(variable, value)
    assert read_tracing_settings().endpoint == endpoint
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert read_tracing_settings().endpoint == ""


def test_headers_and_attributes_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x=, team=a")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    settings = read_tracing_settings()
    assert settings.headers == {"authorization": "Bearer x=", "team": "a"}
    assert settings.attributes == {"deployment.environment": "test"}


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("true", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
        ("NO_CONTENT", False),
        ("EVENT_ONLY", False),
        ("false", False),
        ("", False),
    ],
)
def test_content_is_on_for_those_who_say_so(monkeypatch: pytest.MonkeyPatch, value: str, on: bool) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    assert read_tracing_settings().content is on


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ENDPOINT", "here:4318", r"\bURL\b"),
        ("PROTOCOL", "grpc", "http/protobuf"),
        ("COMPRESSION", "zip", "none, gzip, deflate"),
        ("TIMEOUT", "soon", "seconds above 0"),
        ("TIMEOUT", "0", "seconds above 0"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", value)
    with pytest.raises(SettingError, match=f"OTEL_EXPORTER_OTLP_{variable}={value}.*{says}"):
        read_tracing_settings()
