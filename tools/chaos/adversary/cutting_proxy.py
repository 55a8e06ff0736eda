"""Stands between clients and two gateways: connections go to either by chance, and some are cut in the middle."""

import asyncio
import contextlib
import random

_CUT_SHARE = 0.3
"""Of all connections."""
_CUT_AFTER_SECONDS = 0.6
"""The latest moment of a cut; many requests have been sent and not been answered by then."""


class CuttingProxy:
    """A server with its own port. Use it as a context manager."""

    def __init__(self, ports: list[int], chance: random.Random) -> None:
        self._ports = ports
        self._chance = chance
        self.calm = False
        """Nothing is cut any more."""
        self.cuts = 0

    async def __aenter__(self) -> "CuttingProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        with contextlib.suppress(OSError, TimeoutError):
            there, back = await asyncio.open_connection("127.0.0.1", self._chance.choice(self._ports))
            writers.append(back)
            cut = not self.calm and self._chance.random() < _CUT_SHARE
            async with asyncio.timeout(self._chance.uniform(0, _CUT_AFTER_SECONDS) if cut else None):
                await asyncio.gather(_pass(reader, back), _pass(there, writer))
        for one in writers:
            one.close()
        self.cuts += len(writers) == 2 and cut


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(4096):
        target.write(data)
        await target.drain()
    target.close()
