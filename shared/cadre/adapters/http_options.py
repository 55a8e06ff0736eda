"""Options of HTTP clients: they bypass proxies for this machine, else follow the environment, which is checked first.

`httpx2` reads the environment when a client is made: one variable that cannot be used breaks every client, and its
error does not name it.
"""

import functools
import ssl
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from cadre.adapters.addresses import is_loopback
from cadre.errors import SettingError
from cadre.settings import certificate_variables

_SOCKS = ("socks5", "socks5h")


def http_options(url: str, *, follows: bool = False) -> dict[str, Any]:
    """Return `trust_env`, `proxy` and `verify` for an HTTP client of this URL; with `follows` it follows redirects.

    This machine is asked without a proxy. Raises SettingError that names a variable of the environment which names a
    proxy, or certificates, that cannot be used.
    """
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
    except ValueError as error:
        raise SettingError(f"{url!r} is no URL: {error}") from error
    proxy = None if _is_here(host) else _proxy(scheme, host)
    verify: ssl.SSLContext | bool = False
    if scheme == "https" or (proxy or "").startswith("https:"):
        verify = tls_context()
    elif follows:
        # A redirect may lead to TLS. Certificates that cannot be read are no trouble of plain HTTP.
        verify = _context(None)
    return {"trust_env": False, "proxy": proxy, "verify": verify}


def tls_context() -> ssl.SSLContext:
    """Return the context of TLS connections, with the certificates that the environment names, else the system's. It is
    made once, since that takes tens of milliseconds. Raises SettingError."""
    return _context(tuple(certificate_variables().items()))


@functools.cache
def _context(variables: tuple[tuple[str, str], ...] | None) -> ssl.SSLContext:
    import httpx2  # not before there is something to ask

    try:
        return httpx2.create_ssl_context(trust_env=variables is not None)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(f"{name}={value}" for name, value in variables or ())
        raise SettingError(
            f"{named}: no certificates can be read there ({error.strerror or error}): name a file that holds some, or"
            " take the variable away"
        ) from error


def _is_here(host: str) -> bool:
    return is_loopback(host) or host in ("0.0.0.0", "::")


def _proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for the host; None where it names none. Raises SettingError."""
    import httpx2

    proxies = getproxies()
    found = next(((name, proxies[name]) for name in (scheme, "all") if proxies.get(name)), None)
    if found is None or proxy_bypass(host):
        return None
    variable, text = f"{found[0].upper()}_PROXY", found[1]
    url = text if "://" in text else f"http://{text}"
    shown = _without_password(url)
    try:
        urlsplit(url)
        proxy = httpx2.Proxy(url).url
    except (httpx2.InvalidURL, ValueError):
        proxy = httpx2.URL("")
    if not proxy.host:
        raise SettingError(
            f"{variable}={shown} is no proxy: write http://HOST:PORT, https://… or socks5://…, or take the variable"
            " away"
        )
    if proxy.scheme in _SOCKS and not _has_socks():
        raise SettingError(
            f"{variable}={shown}: a SOCKS proxy needs the Python module 'socksio': pip install 'httpx2[socks]', name an"
            " HTTP proxy, or take the variable away"
        )
    return url


def _has_socks() -> bool:
    try:
        import socksio  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return False
    return True


def _without_password(url: str) -> str:
    """Return the URL without what may be a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
