"""A receiver of traces and metrics, speaking OTLP over HTTP for real: it decodes what comes, and fails when asked
to."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from harness.nats_server import free_port
from harness.patience import patience

_SILENT, _TAKEN = -1, -2


class Span(NamedTuple):
    """As it came over the wire; ids in hex, times in nanoseconds."""

    trace: str
    span: str
    parent: str
    """Empty for a root."""
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: list[str]
    status: int
    message: str
    resource: dict[str, Any]
    wire: bytes

    @property
    def service(self) -> str:
        return str(self.resource["service.name"])


class Point(NamedTuple):
    """One point of a metric, as it came over the wire."""

    service: str
    name: str
    unit: str
    attributes: dict[str, Any]
    value: float
    """Of a histogram: how many values it holds."""


class OtlpReceiver:
    """Listens on its own port, which it keeps while it is down. Use it as a context manager."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[bytes] = []
        """Bodies that were taken."""
        self.spans: list[Span] = []
        self.points: list[Point] = []
        self.refused = 0
        """Requests that were answered with an error."""
        self.times: list[float] = []
        """The time of each request for spans, by the monotonic clock."""
        self.headers: dict[str, str] = {}
        """Sent with every answer about spans."""
        self.partial: tuple[int, str] = (0, "")
        """Spans or points that it says it has rejected of each request that it takes, and its reason."""
        self.in_json = False
        """It answers in JSON, no matter what it is sent."""
        self._answers: list[int] = []
        self._silence = threading.Event()
        self._changed = threading.Condition()
        self._server: _Server | None = None

    def __enter__(self) -> OtlpReceiver:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._silence.clear()
        self._answers.clear()
        self._server = _Server(("127.0.0.1", self.port), self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """No one listens any more."""
        self._silence.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def fail(self, times: int, status: int = 503) -> None:
        """The next so many requests are answered with an error."""
        self._answers += [status] * times

    def fall_silent(self, *, taking: bool = False) -> None:
        """Answers no request until it is stopped; with `taking` it has the spans of those that come all the same."""
        self._answers += [_TAKEN if taking else _SILENT] * 1_000_000

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until what has arrived fulfils the condition."""
        within = patience()
        deadline = time.monotonic() + within
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"not within {within:g} s: {what}; {sorted(s.name for s in self.spans)}"
                self._changed.wait(min(left, 0.5))

    def of_trace(self, trace: str) -> list[Span]:
        return [span for span in list(self.spans) if span.trace == trace]

    def take_metrics(self, body: bytes) -> None:
        with self._changed:
            self.requests.append(body)
            self.points += decode_metrics(body)
            self._changed.notify_all()

    def take(self, body: bytes) -> int:
        """The status that a request is answered with; 0: none at all."""
        with self._changed:
            self.times.append(time.monotonic())
            status = self._answers.pop(0) if self._answers else 200
            if status in (200, _TAKEN):
                self.requests.append(body)
                self.spans += decode(body)
            else:
                self.refused += 1
            self._changed.notify_all()
        if status in (_SILENT, _TAKEN):
            self._silence.wait()
            return 0
        return status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], receiver: OtlpReceiver) -> None:
        self.receiver = receiver
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, being killed, is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/metrics":
            self.server.receiver.take_metrics(body)
            taken = ExportMetricsServiceResponse()
            taken.partial_success.rejected_data_points, taken.partial_success.error_message = (
                self.server.receiver.partial
            )
            self._answer(200, taken)
            return
        if self.path != "/v1/traces":
            self._answer(404)
            return
        status = self.server.receiver.take(body)
        if status:
            answer = ExportTraceServiceResponse()
            answer.partial_success.rejected_spans, answer.partial_success.error_message = self.server.receiver.partial
            self._answer(status, answer)

    def _answer(self, status: int, answer: Message | None = None) -> None:
        data, form = answer.SerializeToString() if answer is not None else b"", "x-protobuf"
        if self.server.receiver.in_json and answer is not None:
            data, form = json_format.MessageToJson(answer).encode(), "json"
        self.send_response(status)
        for name, value in self.server.receiver.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"application/{form}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def decode(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Span(
            trace=span.trace_id.hex(),
            span=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            name=span.name,
            kind=span.kind,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_attributes(span.attributes),
            links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            events=[event.name for event in span.events],
            status=span.status.code,
            message=span.status.message,
            resource=_attributes(resource.resource.attributes),
            wire=span.SerializeToString(deterministic=True),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def decode_metrics(body: bytes) -> list[Point]:
    return [
        Point(
            service=_attributes(resource.resource.attributes)["service.name"],
            name=metric.name,
            unit=metric.unit,
            attributes=_attributes(point.attributes),
            value=point.count if kind == "histogram" else point.as_double or point.as_int,
        )
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if (kind := metric.WhichOneof("data"))
        for point in getattr(metric, kind).data_points
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    found: list[KeyValue] = list(pairs)
    return {pair.key: _value(pair.value) for pair in found}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
