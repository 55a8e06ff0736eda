"""A receiver of OTLP over HTTP: how OpenTelemetry's exporters reach it, and what it answered last."""

from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http import Compression

from cadre.adapters.addresses import is_loopback
from cadre.settings import TracingSettings

_COMPRESSION = {"none": Compression.NoCompression, "gzip": Compression.Gzip, "deflate": Compression.Deflate}


class Receiver:
    """A connection to the receiver that the settings describe."""

    def __init__(self, settings: TracingSettings) -> None:
        self.status: int | None = None
        """Of its last answer; None when it gave none."""
        session = requests.Session()
        # The environment's proxy is not asked for this machine's own addresses.
        session.trust_env = not is_loopback(urlsplit(settings.endpoint).hostname or "")
        session.hooks["response"].append(self._note)
        self.options: dict[str, Any] = {
            "endpoint": settings.endpoint,
            "certificate_file": settings.certificate,
            "client_key_file": settings.client_key,
            "client_certificate_file": settings.client_certificate,
            "headers": settings.headers,
            "timeout": settings.timeout,
            "compression": _COMPRESSION[settings.compression],
            "session": session,
        }
        """What an exporter is made with."""

    @property
    def failure(self) -> str:
        """Why the last request failed."""
        return f"it answers {self.status}" if self.status is not None else "it does not answer"

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status = response.status_code
