"""Errors of `cadre.AsyncClient` on a played gateway."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cadre import AsyncClient, Client
from cadre.client import ClientError, Conflict, NotFound, TimedOut, TooManyRequests, Unauthorized, Unreachable
from cadre.client.errors import refusal
from cadre.errors import SettingError
from unit.played_gateway import Gateway, playing


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with playing(monkeypatch) as server:
        yield server


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Unauthorized),
        (403, Unauthorized),
        (404, NotFound),
        (409, Conflict),
        (410, Conflict),
        (500, ClientError),
    ],
)
async def test_each_refusal_has_its_class(gateway: Gateway, status: int, kind: type[ClientError]) -> None:
    gateway.problem("GET /v1/agents", status, "do this")
    async with AsyncClient() as cadre:
        with pytest.raises(kind, match=r"^do this$") as caught:
            await cadre.agents()
    assert (type(caught.value), caught.value.status) == (kind, status)


def test_a_full_deployment_says_when_to_come_again() -> None:
    error = refusal(429, {"detail": "no room", "code": "capacity"}, "POST /v1/runs", "12")
    assert isinstance(error, TooManyRequests)
    assert (error.retry_after, error.problem) == (12.0, "capacity")


async def test_an_answer_of_another_version_is_named_as_such(gateway: Gateway) -> None:
    gateway.answer("GET /v1/agents", {"agents": [{"name": 3}]})
    async with AsyncClient() as cadre:
        with pytest.raises(ClientError, match=r"\$\[0\]\.name"):
            await cadre.agents()


@pytest.mark.parametrize("option", ["additional_args", "max_stepz"])
async def test_an_option_that_there_is_not_starts_nothing(gateway: Gateway, option: str) -> None:
    given: dict[str, Any] = {option: {"n": 1}}
    async with AsyncClient() as cadre:
        for ask in (cadre.start, cadre.run):
            with pytest.raises(TypeError, match=rf"{option!r}.*: .*\binputs\b.*\bfiles\b"):
                await ask("boss", "go", **given)
        with pytest.raises(TypeError, match=rf"{option!r}.*: .*\binputs\b.*\bobservations\b"):
            await cadre.attach("r1").fork(2, **given)
    assert gateway.asked == []


async def test_a_file_that_is_not_there_and_a_url_that_is_none(gateway: Gateway) -> None:
    async with AsyncClient() as cadre:
        with pytest.raises(NotFound):
            await cadre.attach("r1").read_file("a.txt")
    async with AsyncClient("ftp://nowhere") as cadre:
        with pytest.raises(SettingError, match="ftp://nowhere"):
            await cadre.agents()


async def test_a_waiting_client_does_not_stop_a_loop(gateway: Gateway) -> None:
    cadre = Client()
    with pytest.raises(RuntimeError, match=r"\bAsyncClient\b"):
        cadre.agents()
    await asyncio.to_thread(cadre.close)


def test_a_gateway_that_is_away_is_unreachable() -> None:
    with Client("http://127.0.0.1:1") as cadre:
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1\b"):
            cadre.agents()
        with pytest.raises(Unreachable):
            list(cadre.runs())


async def test_unknown_filters_of_a_list_are_refused(gateway: Gateway) -> None:
    given: dict[str, Any] = {"status": "success"}
    async with AsyncClient() as cadre:
        with pytest.raises(TypeError, match=r"'status'.*: .*\bstate\b.*\blimit\b"):
            [one async for one in cadre.runs(**given)]


def test_errors_of_waiting_and_of_connections_are_those_of_python() -> None:
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(Unreachable, ConnectionError)
    assert str(Unreachable("start it")) == "start it"
    late = TimedOut("r1", 2.5)
    assert (late.run_id, late.message) == ("r1", str(late))
