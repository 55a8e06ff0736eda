"""`cadre.new_runs`: the runs that begin from now on, each once, no matter what happens to the list and the gateway."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from cadre import new_runs
from cadre.client import InvalidRequest, Unreachable
from unit.played_gateway import PROBLEM, Answer, Gateway, playing

LIST = "GET /v1/runs"
NOW = 1_800_000_000.0
PROXYS: Answer = (502, "text/html", "<html>502 Bad Gateway</html>")


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with playing(monkeypatch) as server:
        yield server


def page(*runs: tuple[str, float], more: str | None = None) -> dict[str, Any]:
    """Of runs and how many seconds ago each was asked for; when they began is no matter."""
    return {
        "runs": [{"id": run, "asked_at": NOW - ago, "started_at": NOW} for run, ago in runs],
        "next": more,
    }


def listed(*runs: tuple[str, float]) -> Answer:
    return 200, "application/json", page(*runs)


async def first_runs(begun: AsyncGenerator[str, None], count: int) -> list[str]:
    async with asyncio.timeout(60):
        runs = [await anext(begun) for _ in range(count)]
    await begun.aclose()
    return runs


async def test_a_run_that_slides_into_the_page_is_not_new(gateway: Gateway) -> None:
    """One was removed, so that the list shows one more of the old ones."""
    gateway.first[LIST] = [listed(("b", 10), ("a", 2000)), listed(("a", 2000), ("older", 3000))]
    gateway.answer(LIST, page(("new", 0), ("a", 2000), ("older", 3000)))
    assert await first_runs(new_runs(every=0.01), 1) == ["new"]


async def test_more_runs_than_a_page_holds_are_all_told(gateway: Gateway) -> None:
    """Also when a poll comes long after the one before: oldest first, and none that was there before."""
    gateway.first[LIST] = [
        listed(("a", 5000), ("z", 9000)),
        (200, "application/json", page(("e", 0), ("d", 1000), more="d")),
        (200, "application/json", page(("c", 2000), ("b", 3000), more="b")),
    ]
    gateway.answer(LIST, page(("a", 5000), ("z", 9000), more="z"))
    assert await first_runs(new_runs("boss", every=0.01), 4) == ["b", "c", "d", "e"]
    assert [asked.partition("&")[2] for asked in gateway.asked[:4]] == [
        "agent=boss",
        "agent=boss",
        "agent=boss&before=d",
        "agent=boss&before=b",
    ]


async def test_a_run_that_comes_late_into_the_list_is_told(gateway: Gateway) -> None:
    """Its agent's clock is behind that of others."""
    gateway.first[LIST] = [listed(("a", 10)), listed(("b", 0), ("a", 10))]
    gateway.answer(LIST, page(("b", 0), ("a", 10), ("late", 20)))
    assert await first_runs(new_runs(every=0.01), 2) == ["b", "late"]


async def test_a_run_that_begins_long_after_it_was_asked_for_is_told_once(gateway: Gateway) -> None:
    """It was queued meanwhile, longer than is looked back."""
    gateway.first[LIST] = [
        listed(("a", 5000)),
        listed(("q", 4000), ("a", 5000)),
        listed(("b", 100), ("q", 4000)),
    ]
    begun = {"id": "q", "asked_at": NOW - 4000, "started_at": NOW - 1}
    gateway.answer(LIST, {"runs": [*page(("c", 0), ("b", 100))["runs"], begun], "next": None})
    assert await first_runs(new_runs(every=0.01), 3) == ["q", "b", "c"]


async def test_the_first_run_of_all_is_told(gateway: Gateway) -> None:
    gateway.first[LIST] = [listed()]
    gateway.answer(LIST, page(("first", 0)))
    assert await first_runs(new_runs(every=0.01), 1) == ["first"]


async def test_a_gateway_that_is_away_for_a_while_is_waited_for(gateway: Gateway) -> None:
    busy: Answer = (503, PROBLEM, {"detail": "NATS is away"})
    gateway.first[LIST] = [PROXYS, listed(("a", 10)), busy, PROXYS]
    gateway.answer(LIST, page(("b", 0), ("a", 10)))
    assert await first_runs(new_runs(every=0.01), 1) == ["b"]


async def test_a_gateway_that_stays_away_or_refuses_ends_it(gateway: Gateway) -> None:
    gateway.answers[LIST] = PROXYS
    with pytest.raises(Unreachable, match="answered 502"):
        await first_runs(new_runs(patience=0.1), 1)
    assert len(gateway.asked) == 2
    gateway.problem(LIST, 422, "before: no")
    with pytest.raises(InvalidRequest, match="before: no"):
        await first_runs(new_runs(), 1)
    assert len(gateway.asked) == 3
