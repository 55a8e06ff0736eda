"""Which certificates are trusted: read once, since it takes tens of milliseconds."""

from __future__ import annotations

import functools
import ssl

import httpx2


@functools.cache
def tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
