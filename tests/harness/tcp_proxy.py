"""A proxy in front of a server that can fall silent: connections stay open, and nothing comes through."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

_PIECE = 64 * 1024


class TcpProxy:
    """Passes bytes between a loopback port and the server's, in a thread with a separate event loop."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._passes: asyncio.Event | None = None
        self.port = 0

    @contextlib.contextmanager
    def running(self) -> Iterator["TcpProxy"]:
        """Listens inside the block."""
        began = threading.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(began),))
        thread.start()
        began.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join()
            self._loop.close()

    def fall_silent(self) -> None:
        """Holds what comes from now on, from either side; new connections are taken and hear nothing."""
        assert self._passes is not None
        self._loop.call_soon_threadsafe(self._passes.clear)

    def speak(self) -> None:
        """Passes on what was held, and what comes."""
        assert self._passes is not None
        self._loop.call_soon_threadsafe(self._passes.set)

    async def _serve(self, began: threading.Event) -> None:
        self._passes, self._end = asyncio.Event(), asyncio.Event()
        self._passes.set()
        self._open: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        began.set()
        await self._end.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            assert self._passes is not None
            await self._passes.wait()
            theirs, to_them = await asyncio.open_connection("127.0.0.1", self._server_port)
            with contextlib.closing(to_them):
                await asyncio.gather(self._pump(reader, to_them), self._pump(theirs, writer))
        except OSError:
            pass  # one of the sides is gone: so is the other
        finally:
            writer.close()
            self._open.discard(task)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        assert self._passes is not None
        while piece := await source.read(_PIECE):
            await self._passes.wait()
            target.write(piece)
            await target.drain()
        target.close()
