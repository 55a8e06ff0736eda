"""The certificates that are trusted."""

import functools
import ssl

import httpx2


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Returns the context of all connections. It is made once, since that takes tens of milliseconds."""
    return httpx2.create_ssl_context()
