"""Fetches a page of the web within bounds of time, size and place, and reads the settings of the standard tools."""

import asyncio
import ssl
import zlib
from typing import NamedTuple

import httpx2
import msgspec

from cadre.adapters.addresses import (
    Address,
    AddressRefused,
    Network,
    Resolve,
    checked_addresses,
    system_resolve,
)
from cadre.adapters.http_options import tls_context
from cadre.errors import SettingError
from cadre.settings import read

FETCH_SECONDS = 20.0
"""Seconds that a page with all its redirects may take."""

MAX_PAGE_BYTES = 2_000_000
"""Number of bytes of a page's content that are read, packed as well as unpacked."""

MAX_REDIRECTS = 10

_MAX_GZIP_MEMBERS = 100
"""Maximum number of members of a gzip file: unpacking each costs most where they are small."""

_GZIP_MAGIC = b"\x1f\x8b"

_TIMEOUT = httpx2.Timeout(None, connect=5.0)
"""Seconds that connecting to one of several addresses may take; `FETCH_SECONDS` bounds the whole."""

_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Cadre)",
    "Accept": "text/html, text/plain, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip",
}


def _verify(url: httpx2.URL) -> ssl.SSLContext | bool:
    """Return what certificates are checked by. Raises PageUnavailable."""
    try:
        return tls_context() if url.scheme == "https" else False
    except SettingError as error:
        raise PageUnavailable(f"{url} cannot be visited: {error}") from error


class PageUnavailable(Exception):
    """There is no page to read. The text says why; the model reads it."""


class FetchedPage(NamedTuple):
    """A page that was read, or its beginning."""

    url: str
    """The page's address after all redirects."""
    content_type: str
    """Such as `text/html`; without parameters, in small letters."""
    charset: str | None
    data: bytes
    is_whole: bool


class Fetcher:
    """Fetches pages. It resolves each host on the way once, and connects to the very address that it has checked."""

    def __init__(
        self, allowed: tuple[Network, ...], resolve: Resolve = system_resolve, within: float = FETCH_SECONDS
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._within = within

    async def fetch(self, address: str) -> FetchedPage:
        """Return the page at an address, following redirects. Raises PageUnavailable."""
        try:
            async with asyncio.timeout(self._within):
                return await self._follow(httpx2.URL(address.strip()))
        except TimeoutError as error:
            raise PageUnavailable(f"{address} did not answer within {self._within:g} s") from error
        except (httpx2.InvalidURL, AddressRefused) as error:
            raise PageUnavailable(f"{address} cannot be visited: {error}") from error
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
            raise PageUnavailable(f"{address} cannot be read: {problem}") from error

    async def _follow(self, url: httpx2.URL) -> FetchedPage:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._hop(url)
            if isinstance(answer, FetchedPage):
                return answer
            url = answer
        raise PageUnavailable(f"{url} is where redirects led: more than {MAX_REDIRECTS} are not followed")

    async def _hop(self, url: httpx2.URL) -> FetchedPage | httpx2.URL:
        """Return the page, or the address that it redirects to."""
        if url.scheme not in ("http", "https") or not url.host:
            raise PageUnavailable(f"{str(url)!r} cannot be visited: give a whole address: http://… or https://…")
        port = url.port or (443 if url.scheme == "https" else 80)
        if port > 65535:
            raise PageUnavailable(f"{url} cannot be visited: there is no port {port}")
        # In the letters in which it is asked for: there are several ways to write a name in them.
        host = url.raw_host.decode("ascii")
        addresses = await checked_addresses(host, port, self._allowed, self._resolve)
        unreachable: httpx2.TransportError | None = None
        for address in addresses:
            try:
                return await self._ask(url, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                unreachable = error
        assert unreachable is not None
        raise unreachable

    async def _ask(self, url: httpx2.URL, address: Address) -> FetchedPage | httpx2.URL:
        # The name would be resolved once more, perhaps to something else. It still is what the certificate
        # must be for, and what the server is asked for. No proxy: it would resolve the name, too.
        async with (
            httpx2.AsyncClient(verify=_verify(url), timeout=_TIMEOUT, trust_env=False) as client,
            client.stream(
                "GET",
                url.copy_with(host=str(address)),
                headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": url.raw_host.decode("ascii")},
            ) as response,
        ):
            if response.has_redirect_location:
                return url.join(response.headers["location"])
            if response.status_code >= 400:
                raise PageUnavailable(f"{url} answers {response.status_code} {response.reason_phrase}".rstrip())
            return await _read(url, response)


async def _read(url: httpx2.URL, response: httpx2.Response) -> FetchedPage:
    packed = bytearray()
    is_whole = True
    async for part in response.aiter_raw():
        packed += part
        if len(packed) > MAX_PAGE_BYTES:
            is_whole = False
            break
    data, is_all = _unpacked(bytes(packed[:MAX_PAGE_BYTES]), response.headers.get("content-encoding", ""))
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return FetchedPage(str(url), kind, response.charset_encoding, data, is_whole and is_all)


def _unpacked(data: bytes, encoding: str) -> tuple[bytes, bool]:
    """Return the content, and whether that is all of it: a small answer may unpack to more than fits any memory."""
    match encoding.strip().lower():
        case "" | "identity":
            return data, True
        case "gzip" | "x-gzip" | "deflate":
            try:
                return _decompressed(data)
            except zlib.error as error:
                raise PageUnavailable(f"the page's content is damaged: {error}") from error
        case other:
            raise PageUnavailable(f"the page's content is packed as {other!r}, which was not asked for")


def _decompressed(data: bytes) -> tuple[bytes, bool]:
    """Unpack all members of a gzip file, or one deflate stream. What follows the last of them is no content."""
    content = b""
    for _ in range(_MAX_GZIP_MEMBERS):
        unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        content += unpacking.decompress(data, MAX_PAGE_BYTES - len(content))
        data = unpacking.unused_data
        if not data.startswith(_GZIP_MAGIC):
            return content, not unpacking.unconsumed_tail
        if len(content) == MAX_PAGE_BYTES:
            break
    return content, False


class StandardToolsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for what the standard tools may reach: `CADRE_SEARCH`, `CADRE_VISIT_PRIVATE`."""

    search: str = "folder:documents"
    """The source that `web_search` searches: `folder:PATH` or `searxng:URL`."""
    visit_private: str = ""
    """Addresses that `visit_webpage` may read in addition to the public internet: `1` for all, or networks such as
    10.1.0.0/16."""


def read_standard_tools_settings() -> StandardToolsSettings:
    """As `cadre.settings.read` reads them."""
    return read(StandardToolsSettings, "CADRE_")
