"""`model.parallel`: a model is asked no more at once than it allows, and no time limit runs for who waits."""

import asyncio
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.adapters.models.model_chain import ModelChain
from cadre.adapters.models.openai_model import OpenAIModel
from cadre.adapters.models.request_slots import RequestSlots
from cadre.errors import ModelRefused
from cadre.ports import ModelReply
from cadre.spec.model import ModelSpec
from harness.memory_ports import MemoryBlobs
from harness.patience import SECONDS, patience
from integration.model_calls import NO_ENDPOINT, saying
from integration.probed_server import Body, ProbedServer, Refused, probed_server

_BODY = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)


async def _ignore(_: str, *, of_answer: bool = False, chunk: object = None) -> None: ...


async def until_open(server: ProbedServer, requests: int) -> None:
    async with asyncio.timeout(patience()):
        while server.open < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("parallel", [1, 2, None])
async def test_no_more_requests_than_allowed_are_made_at_once_and_in_their_order(
    parallel: int | None,
) -> None:
    """With one slot the last of four waits longer than its request may take."""

    def slow(body: Body) -> Body:
        time.sleep(1.0)
        return {"content": body["messages"][0]["content"]}

    with probed_server(slow) as server:
        spec = ModelSpec(url=server.url, name="m-1", parallel=parallel, timeout=3.5)
        chain = ModelChain(spec, NO_ENDPOINT, MemoryBlobs())
        await chain.load()
        calls = [asyncio.create_task(chain.complete(saying(f"n{n}"), _ignore)) for n in range(4)]
        await until_open(server, parallel or 4)
        assert chain.waiting == (4 - parallel if parallel is not None else 0)
        replies = await asyncio.gather(*calls)
        assert [reply.content for reply in replies] == ["n0", "n1", "n2", "n3"]
        assert server.most_open == (parallel or 4)
        if parallel == 1:
            assert [body["messages"][0]["content"] for body in server.asked] == ["n0", "n1", "n2", "n3"]
        assert chain.waiting == 0
        await chain.close()


async def test_a_slot_is_given_back_by_calls_that_fail_or_are_dropped() -> None:
    held = threading.Event()

    def answer(body: Body) -> Body:
        if body["messages"][0]["content"] == "hold":
            held.wait(patience())
        if body["messages"][0]["content"] == "fail":
            raise Refused(400, "no")
        return {"content": "done"}

    with probed_server(answer) as server:
        chain = ModelChain(ModelSpec(url=server.url, name="m-1", parallel=1), NO_ENDPOINT, MemoryBlobs())
        holding = asyncio.create_task(chain.complete(saying("hold"), _ignore))
        await until_open(server, 1)
        dropped = asyncio.create_task(chain.complete(saying("never sent"), _ignore))
        await asyncio.sleep(0)
        for task in (dropped, holding):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        held.set()
        with pytest.raises(ModelRefused):
            await chain.complete(saying("fail"), _ignore)
        assert (await chain.complete(saying("again"), _ignore)).content == "done"
        assert "never sent" not in [body["messages"][0]["content"] for body in server.asked]
        await chain.close()


async def test_models_of_one_chain_have_their_own_slots() -> None:
    together = threading.Barrier(2, timeout=patience())

    def answer(body: Body) -> Body:
        together.wait()
        return {"content": body["model"]}

    with probed_server(answer) as server:
        other = ModelSpec(url=server.url, name="m-2", parallel=1)
        chain = ModelChain(
            ModelSpec(url=server.url, name="m-1", parallel=1, fallbacks=[other]), NO_ENDPOINT, MemoryBlobs()
        )
        request = saying("hello")
        second = saying("hello")
        second.fallback = 1
        replies = await asyncio.gather(chain.complete(request, _ignore), chain.complete(second, _ignore))
        assert [reply.content for reply in replies] == ["m-1", "m-2"]
        await chain.close()


HOLDER = """
import asyncio, sys
from pathlib import Path
from cadre.adapters.models.request_slots import RequestSlots

async def main():
    async with RequestSlots(Path(sys.argv[1])).slot("http://model/v1", "m-1", 1):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_slot_is_shared_with_other_processes_and_freed_when_its_holder_is_killed(
    tmp_path: Path,
) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path / "slots"), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    slots = RequestSlots(tmp_path / "slots")
    async with slots.slot("http://model/v1/", "m-2", 1):
        pass
    entered = asyncio.Event()

    async def enter() -> None:
        async with slots.slot("http://model/v1/", "m-1", 1):
            entered.set()

    entering = asyncio.create_task(enter())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(entered.wait(), 1)
    assert slots.waiting == 1
    holder.kill()
    await holder.wait()
    await asyncio.wait_for(entering, patience())
    assert slots.waiting == 0


async def test_without_files_a_process_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "slots").write_text("no folder")
    slots = RequestSlots(tmp_path / "slots")
    async with slots.slot("http://model/v1", "m-1", 1):
        assert slots.waiting == 0


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process have both ends of a thousand connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8_192), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_process_may_have_more_than_a_thousand_requests_open(many_files: None) -> None:
    """None is answered before the last has come."""
    arrived: asyncio.Queue[None] = asyncio.Queue()
    all_here = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.put_nowait(None)
        await all_here.wait()
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    spec = ModelSpec(url=f"http://127.0.0.1:{port}/v1", name="m-1", stream=False)
    model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
    await model.load()
    calls: list[asyncio.Task[ModelReply]] = []
    async with asyncio.timeout(patience(2 * SECONDS)):
        for _ in range(51):
            calls += [asyncio.create_task(model.complete(saying("hello"), _ignore)) for _ in range(20)]
            for _ in range(20):
                await arrived.get()
        all_here.set()
        replies = await asyncio.gather(*calls)
    assert {reply.content for reply in replies} == {"hi"}
    await model.close()
    server.close()
