"""The proxy that all connections of the browsers go through: it refuses addresses that are not public.

Every request of a page, a redirect or a script passes through here. A host is resolved once, all its addresses are
checked, and the connection goes to the address that was checked.
"""

import asyncio
import threading
from urllib.parse import urlsplit

from cadre.adapters.addresses import (
    Address,
    AddressRefused,
    Network,
    Resolve,
    checked_addresses,
    system_resolve,
)

CONNECT_SECONDS = 10.0
MAX_HEAD_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_HOP_HEADERS = (b"proxy-connection:", b"proxy-authorization:", b"connection:", b"keep-alive:")


class _Refused(Exception):
    """The request is answered by the proxy itself."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """An HTTP proxy on the loopback interface, in its own thread and event loop."""

    def __init__(self, allowed: tuple[Network, ...], resolve: Resolve = system_resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="browser guard", daemon=True)
        self.port = 0

    def start(self) -> None:
        """Return when connections are taken at `port`."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Stop the proxy; connections end with it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._handle, "127.0.0.1", 0, limit=MAX_HEAD_BYTES))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # Transports that were closed are so in the loop's next rounds.
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def check(self, url: str) -> None:
        """Raise AddressRefused for an address that no page may have."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise AddressRefused(str(error)) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressRefused("give a whole address: http://… or https://…")
        await checked_addresses(parts.hostname, port, self._allowed, self._resolve)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            (from_there, upstream), first = await self._begin(reader)
            if first:
                upstream.write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pipe(reader, upstream), _pipe(from_there, writer))
        except _Refused as refused:
            writer.write(_refusal(refused))
        except OSError:
            pass  # one of the two has hung up: there is no peer left to answer
        finally:
            writer.close()
            if upstream is not None:
                upstream.close()

    async def _begin(
        self, reader: asyncio.StreamReader
    ) -> tuple[tuple[asyncio.StreamReader, asyncio.StreamWriter], bytes]:
        """Open the connection that a request asks for, and return it with the head to send there (none: a tunnel)."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise _Refused("400 Bad Request", "no request") from error
        line, *fields = head[:-4].split(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3:
            raise _Refused("400 Bad Request", "no request line")
        method, target, version = words
        try:
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise _Refused("400 Bad Request", "no address") from error
        if not host or (method != "CONNECT" and parts.scheme != "http"):
            raise _Refused("400 Bad Request", "no address")
        upstream = await self._connect(host, port)
        if method == "CONNECT":
            return upstream, b""
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [field for field in fields if not field.lower().startswith(_HOP_HEADERS)]
        # One request a connection: the next one may go elsewhere.
        new = [f"{method} {path} {version}".encode("latin-1"), *kept, b"Connection: close", b"", b""]
        return upstream, b"\r\n".join(new)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            addresses = await checked_addresses(host, port, self._allowed, self._resolve)
        except AddressRefused as error:
            raise _Refused("403 Forbidden", f"This address may not be visited: {error}") from error
        problem: OSError | TimeoutError | None = None
        for address in addresses:
            try:
                return await _open(address, port)
            except (OSError, TimeoutError) as error:
                problem = error
        raise _Refused("502 Bad Gateway", f"{host}:{port} cannot be reached: {problem}")


async def _open(address: Address, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(CONNECT_SECONDS):
        return await asyncio.open_connection(str(address), port)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


def _refusal(refused: _Refused) -> bytes:
    body = str(refused).encode()
    head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
