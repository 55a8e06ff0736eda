"""`cadre.AsyncClient` and `cadre.Client` with a real gateway: runs started, followed, decided on, and their answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from cadre import AsyncClient, Client
from cadre.client import (
    AsyncRunHandle,
    Conflict,
    Event,
    InvalidRequest,
    NotFound,
    OutputMismatch,
    RunCancelled,
    TimedOut,
    Unreachable,
)
from cadre.events import ApprovalRequested, Delta, ModelAnswered, RunFinished
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "clients"


@pytest.fixture
async def cadre(gateway: Gateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.service.url) as client:
        yield client


class Proxy:
    """Stands between a client and the gateway; cuts connections."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: set[asyncio.StreamWriter] = set()
        self.lost_answers = 0
        """The connections of so many requests to come are cut before their answer."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, back}
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._pass(reader, back, lose=False), self._pass(there, writer, lose=True))
        self._open -= {writer, back}

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, lose: bool) -> None:
        while data := await source.read(65536):
            if lose and self.lost_answers:
                self.lost_answers -= 1
                break
            target.write(data)
            await target.drain()
        target.close()


def assert_texts_are_whole(events: list[Event]) -> None:
    """The deltas of each answer, joined, are its text, and came before it."""
    texts: dict[str, str] = {}
    answers = 0
    for event in events:
        match event.body:
            case Delta(text=text):
                texts[event.run] = texts.get(event.run, "") + text
            case ModelAnswered(content=content):
                assert texts.pop(event.run, "") == content
                answers += bool(content)
    assert (answers, texts) == (1, {})


class Reader:
    """Reads all events of a run."""

    def __init__(self, run: AsyncRunHandle) -> None:
        self.sees_writer = asyncio.Event()
        """The writer's model is known to be asked."""
        self.sees_text = asyncio.Event()
        """Three pieces of text have come."""
        self.events = asyncio.ensure_future(self._read(run))

    async def _read(self, run: AsyncRunHandle) -> list[Event]:
        events: list[Event] = []
        async for event in run:
            events.append(event)
            if event.type == "model.called" and event.agent == "writer":
                self.sees_writer.set()
            if len([one for one in events if one.type == "delta"]) == 3:
                self.sees_text.set()
        return events


async def test_everybody_reads_the_whole_text_once_whenever_they_come(
    cadre: AsyncClient, gateway: Gateway, stack: Stack
) -> None:
    run = await cadre.start("lead", "have a story written")
    async with asyncio.timeout(60), Proxy(gateway.service.port) as proxy, AsyncClient(proxy.url) as cut_off:
        first, cut = Reader(run), Reader(cut_off.attach(run.id))
        await first.sees_writer.wait()
        await cut.sees_writer.wait()
        stack.release_model()
        await cut.sees_text.wait()
        proxy.cut()
        late = Reader(cadre.attach(run.id))
        readers = [await first.events, await cut.events, await late.events, await Reader(run).events]
    for events in readers:
        assert_texts_are_whole(events)
    journals = [[event for event in events if event.type != "delta"] for events in readers]
    assert all(journal == journals[0] for journal in journals)
    assert len([event for event in readers[0] if event.type == "delta"]) > 5
    finished = [event for event in journals[0] if isinstance(event.body, RunFinished)]
    assert [(event.agent, event.run == run.id) for event in finished] == [("writer", False), ("lead", True)]
    assert journals[0][-1] == ("end", {"run": run.id, "state": "success"})
    assert await run.result() == "the story is written"


async def test_a_place_that_was_kept_is_gone_on_from(cadre: AsyncClient) -> None:
    run = await cadre.start("writer", "write")
    await run.wait(60)
    events = [event for event in await Reader(run).events if event.type != "delta"]
    seq = events[1].seq
    assert seq is not None
    rest = [event async for event in run.stream(after=seq) if event.type != "delta"]
    assert rest == [event for event in events if event.seq is None or event.seq > seq]


class Offer(msgspec.Struct):
    vendor: str
    price: float


@dataclass
class OfferData:
    vendor: str
    price: float


class OfferDict(TypedDict):
    vendor: str
    price: float


class OfferModel(pydantic.BaseModel):
    vendor: str
    price: float


async def test_answers_have_the_type_that_is_asked_for(cadre: AsyncClient) -> None:
    run = await cadre.start("buyer", "Compare the two offers")
    plain: Any = {"vendor": "Apples & Co", "price": 12.5}
    assert await run.result(timeout=60) == plain
    assert await run.result(Offer) == Offer(**plain)
    assert await run.result(OfferData) == OfferData(**plain)
    assert await run.result(OfferDict) == plain
    assert await run.result(OfferModel) == OfferModel(**plain)
    assert await run.result(dict[str, Any]) == plain
    for kind in (list[int], type("Other", (pydantic.BaseModel,), {"__annotations__": {"other": int}})):
        with pytest.raises(OutputMismatch, match="output_schema") as caught:
            await run.result(kind)
        assert caught.value.output == plain
    assert await cadre.run("buyer", "Compare", output_type=Offer, timeout=60) == Offer(**plain)


async def test_a_start_whose_answer_was_lost_is_one_run(cadre: AsyncClient, gateway: Gateway) -> None:
    async with Proxy(gateway.service.port) as proxy, AsyncClient(proxy.url) as cut_off:
        proxy.lost_answers = 2
        run = await cut_off.start("buyer", "Compare", session="lost-answers")
        assert proxy.lost_answers == 0
        await run.wait(60)
    assert [one.id async for one in cadre.runs(session="lost-answers")] == [run.id]


async def held_calls(run: AsyncRunHandle) -> list[str]:
    """Both calls, once they wait."""
    calls = []
    async with asyncio.timeout(60):
        async for event in run:
            if isinstance(event.body, ApprovalRequested):
                calls.append(event.body.call)
            if len(calls) == 2:
                break
    return calls


async def test_calls_are_decided_on(cadre: AsyncClient) -> None:
    run = await cadre.start("clerk", "pay both")
    calls = await held_calls(run)
    waiting = {one.call: one for one in await run.approvals()}
    assert [waiting[call].arguments["order"] for call in calls] == ["A-1", "A-2"]
    [rejected] = await run.reject(calls[0], feedback="too early", by="ann")
    assert (rejected.verdict, rejected.by) == ("rejected", "ann")
    with pytest.raises(Conflict, match="was rejected by ann") as caught:
        await run.approve(calls[0])
    assert (caught.value.status, caught.value.problem) == (409, "already-decided")
    await run.correct(calls[1], {"amount": 21}, by="ann")
    assert "paid 21 for A-2" in await run.result(timeout=60)
    assert await run.approvals() == []


async def test_all_calls_of_a_run_are_approved_at_once(cadre: AsyncClient) -> None:
    run = await cadre.start("clerk", "pay both")
    await held_calls(run)
    assert [one.verdict for one in await run.approve("all")] == ["approved", "approved"]
    assert await run.result(timeout=60) == "paid 10 for A-1 / paid 20 for A-2"


async def test_ends_without_an_answer_are_errors(cadre: AsyncClient) -> None:
    run = await cadre.start("clerk", "pay both", session="busy")
    with pytest.raises(TimedOut, match="it goes on") as timed_out:
        await run.result(timeout=0.5)
    assert timed_out.value.run_id == run.id
    with pytest.raises(Conflict, match="still going") as busy:
        await cadre.start("clerk", "pay", session="busy")
    assert busy.value.problem == "session-busy"
    await run.cancel("not needed")
    with pytest.raises(RunCancelled, match="not needed") as cancelled:
        await run.result(timeout=60)
    assert cancelled.value.run.state == "cancelled"
    with pytest.raises(NotFound, match="'nobody'"):
        await cadre.run("nobody", "anything")
    with pytest.raises(InvalidRequest, match="task is empty"):
        await cadre.start("clerk", " ")
    with pytest.raises(NotFound, match="f00"):
        await Reader(cadre.attach("f00")).events
    async with AsyncClient("http://127.0.0.1:1") as nowhere:
        with pytest.raises(Unreachable, match="no gateway answers"):
            await nowhere.run("clerk", "pay")


async def test_files_forks_and_traces(cadre: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "offer.csv").write_text("a;b\n")
    run = await cadre.start("buyer", "Compare", files=[tmp_path / "offer.csv"], inputs={"currency": "EUR"}, user="ann")
    assert await run.read_file("offer.csv") == b"a;b\n"
    [file] = await run.files()
    assert (file.path, file.media_type, file.size) == ("offer.csv", "text/csv", 4)
    downloaded = await run.download("offer.csv", tmp_path / "copy.csv")
    assert downloaded.read_text() == "a;b\n"
    assert await cadre.blob(file.ref) == b"a;b\n"
    await run.wait(60)
    with pytest.raises(Conflict, match="its files stay"):
        await run.upload(b"c", "more/c.txt")
    fork = await run.fork(at=1, task="Compare again")
    assert fork.id != run.id
    assert (await fork.wait(60)).forked_from is not None
    trace = await run.trace()
    assert (trace.id, trace.spans[0].depth) == (run.id, 0)
    detail = await run.detail(full=True)
    assert detail.task == "Compare"
    assert detail.memory
    asked = detail.asked_at
    assert run.id in [one.id async for one in cadre.runs(agent="buyer", since=asked)]
    assert run.id not in [one.id async for one in cadre.runs(agent="buyer", since=asked + 0.001)]
    soon = datetime.fromtimestamp(asked + 1, UTC)
    assert run.id in [one.id async for one in cadre.runs(until=soon, text="compare", sort="ended")]
    assert run.id not in [one.id async for one in cadre.runs(until=asked)]
    assert run.id not in [one.id async for one in cadre.runs(labels={"offer": None})]
    await fork.erase()
    with pytest.raises(NotFound):
        await fork.detail()


async def test_who_is_there(cadre: AsyncClient) -> None:
    assert [one.name for one in await cadre.agents()] == ["buyer", "clerk", "lead", "writer"]
    assert "pay" in [one.name for one in await cadre.tools()]
    assert await cadre.sandboxes() == []


def test_without_an_event_loop(gateway: Gateway) -> None:
    with Client(gateway.service.url) as cadre:
        assert cadre.run("buyer", "Compare", output_type=Offer, timeout=60).price == 12.5
        run = cadre.start("writer", "write", budget={"steps": 5})
        assert run.state is None
        assert_texts_are_whole(list(run.stream()))
        assert run.result(timeout=timedelta(minutes=1)) == "a story"
        assert run.state == "success"
        usage = run.detail().usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0
        assert len(list(cadre.runs(limit=1))) == 1
        with pytest.raises(ValueError, match="limit is 0"):
            list(cadre.runs(limit=0))
        assert run.id in [one.id for one in cadre.runs(agent="writer")]
        for event in cadre.attach(run.id):
            assert event.run == run.id
            break  # the connection behind it is closed
        again = run.fork(at=1)
        again.cancel("enough")
        assert again.wait(60).finished
        with pytest.raises(NotFound):
            cadre.get_run("f00")
