"""A durable delegation with Restate: two services, each in a process; three model calls are journaled.

`serve manager PORT`, `serve worker PORT`: a service. `drive PORT`: calls the manager through the server's ingress.
"""

import asyncio
import json
import sys

import hypercorn.asyncio
import hypercorn.config
import restate
import uvloop

from bench.peers.playing import MODEL_ANSWER, TASK, in_tasks, serve

manager = restate.Service("manager")
worker = restate.Service("worker")


async def model() -> str:
    """Answer at once: what is left to measure is Restate."""
    return MODEL_ANSWER


@worker.handler()
async def work(ctx: restate.Context, task: str) -> str:
    return await ctx.run_typed("answer", model)


@manager.handler()
async def delegate(ctx: restate.Context, task: str) -> str:
    await ctx.run_typed("plan", model)
    await ctx.service_call(work, arg=task)
    return await ctx.run_typed("answer", model)


async def _serve(service: str, port: int) -> None:
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    app = restate.app([manager if service == "manager" else worker])
    await hypercorn.asyncio.serve(app, config)


class Ingress:
    """A client of the ingress that costs next to nothing: HTTP/1.1 over connections that stay open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        body = json.dumps(TASK).encode()
        self._request = (
            b"POST /manager/delegate HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )

    async def delegate(self) -> None:
        """Raises RuntimeError unless the manager has answered."""
        link = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = link
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if not head.startswith(b"http/1.1 200") or json.loads(body) != MODEL_ANSWER:
            raise RuntimeError(f"{head!r} {body!r}")
        self._idle.append(link)


if __name__ == "__main__":
    what, *options = sys.argv[1:]
    if what == "serve":
        uvloop.run(_serve(options[0], int(options[1])))
    else:
        loop = uvloop.new_event_loop()
        serve(in_tasks(loop, Ingress(int(options[0])).delegate))
