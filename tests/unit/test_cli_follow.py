"""Following an event stream over lost connections: every event once, in order."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from cadre.client import Event, NotFound, Unreachable
from cadre.client.events import read_events

GATEWAY = "http://127.0.0.1:1"


def frame(name: str, n: int, identity: int | None = None) -> str:
    mark = f"id: {identity}\n" if identity is not None else ""
    return f"event: {name}\n{mark}data: {json.dumps({'n': n})}\n\n"


class Breaking(httpx2.AsyncByteStream):
    """A body that ends with a lost connection unless it is whole."""

    def __init__(self, text: str, whole: bool) -> None:
        self._text, self._whole = text, whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._text.encode()
        if not self._whole:
            raise httpx2.ReadError("lost")


def client(*answers: tuple[str, bool] | httpx2.Response) -> tuple[httpx2.AsyncClient, list[str | None]]:
    """A client whose n-th request gets the n-th answer, and the Last-Event-ID of each."""
    asked: list[str | None] = []
    left = iter(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("Last-Event-ID"))
        given = next(left)
        if isinstance(given, httpx2.Response):
            return given
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Breaking(*given))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url=GATEWAY), asked


async def read(found: httpx2.AsyncClient, patience: float = 5.0) -> list[Event]:
    async with found:
        return [event async for event in read_events(found, "r", patience=patience)]


async def test_it_ends_with_the_end() -> None:
    found, _ = client(("retry: 1000\n\n: ping\n\n" + frame("a", 1, 7) + frame("end", 2) + frame("b", 3), True))
    assert [event.type for event in await read(found)] == ["a", "end"]


async def test_an_entry_cut_off_by_a_lost_connection_is_not_told_twice() -> None:
    first = frame("a", 1) + frame("b", 2, 7) + frame("c", 3)
    again = frame("c", 3) + frame("d", 4, 9) + frame("end", 5)
    found, asked = client((first, False), (again, True))
    assert [event.data["n"] for event in await read(found)] == [1, 2, 3, 4, 5]
    assert asked == [None, "7"]


async def test_a_stream_cut_off_in_its_first_entry_begins_again_without_repeating() -> None:
    found, asked = client((frame("a", 1), False), (frame("a", 1) + frame("b", 2, 7) + frame("end", 3), True))
    assert [event.type for event in await read(found)] == ["a", "b", "end"]
    assert asked == [None, None]


async def test_a_stream_that_just_closes_is_taken_up_again() -> None:
    found, asked = client((frame("a", 1, 7), True), (frame("end", 2), True))
    assert [event.type for event in await read(found)] == ["a", "end"]
    assert asked == [None, "7"]


async def test_an_unknown_run_is_said_at_once() -> None:
    found, asked = client(httpx2.Response(404, json={"detail": "no run r"}))
    with pytest.raises(NotFound, match=r"^no run r$"):
        await read(found)
    assert len(asked) == 1


async def test_a_gateway_that_stays_away_is_given_up() -> None:
    busy = {"detail": "NATS is away"}
    found, asked = client(*(httpx2.Response(503, json=busy) for _ in range(3)))
    with pytest.raises(Unreachable, match="NATS is away"):
        await read(found, patience=0.5)
    assert len(asked) == 3


async def test_a_gateway_that_comes_back_each_time_is_never_given_up() -> None:
    """A proxy cuts every connection of a run that waits for days: nothing comes but the stream itself."""
    cut = ("retry: 1000\n\n: ping\n\n", False)
    found, asked = client(*[cut] * 6, ("retry: 1000\n\n" + frame("end", 1), True))
    assert [event.type for event in await read(found, patience=0.5)] == ["end"]
    assert len(asked) == 7


async def test_what_is_no_event_stream_is_no_gateway_that_came_back() -> None:
    page = [httpx2.Response(200, headers={"content-type": "text/html"}, text="<html>") for _ in range(3)]
    found, asked = client(*page)
    with pytest.raises(Unreachable, match="lost the gateway"):
        await read(found, patience=0.5)
    assert len(asked) == 3
