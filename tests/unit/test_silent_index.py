"""A database of the index that answers nothing: a question ends in time, with the name of what is silent."""

import asyncio
from collections.abc import Sequence

import pytest

from cadre.errors import RunIndexUnavailable
from cadre_gateway.index.database import port
from cadre_gateway.index.database.port import Statement
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests import problems
from unit.inline_index import InlineDatabase, new_index, take
from unit.journal_entries import accepted, entry


async def listed(index: RunIndex) -> list[str]:
    return [one.id for one in (await index.list(RunFilter()))[0]]


class Silent(InlineDatabase):
    """Answers nothing, as a server that was paused does."""

    is_silent = False

    async def write(self, statements: Sequence[Statement]) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        await super().write(statements)


async def test_a_database_that_is_silent_is_given_up_and_leaves_no_questions_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port, "_ANSWER_SECONDS", 0.05)
    database = Silent()
    index = await new_index(database)
    database.is_silent = True
    await take(index, 1, entry("a", 1, 1.0, accepted("a")))
    asked = await asyncio.gather(*(index.list(RunFilter()) for _ in range(50)), return_exceptions=True)
    assert {type(one) for one in asked} == {RunIndexUnavailable}
    await asyncio.sleep(0)  # those that were given up end
    assert asyncio.all_tasks() == {asyncio.current_task()}
    database.is_silent = False
    assert await listed(index) == ["a"]


async def test_a_request_whose_time_is_up_says_that_the_index_did_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where other questions have used most of its time; NATS is named where NATS was asked."""
    monkeypatch.setattr(problems, "ANSWER_SECONDS", 0.05)
    database = Silent()
    index = await new_index(database)
    await take(index, 1, entry("a", 1, 1.0, accepted("a")))
    database.is_silent = True
    with pytest.raises(RunIndexUnavailable):
        async with problems.answer_deadline():
            await index.list(RunFilter())
    database.is_silent = False

    async def wait_for_nats() -> None:
        async with problems.answer_deadline():
            await index.list(RunFilter())
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as late:
        await wait_for_nats()
    assert problems.as_problem(late.value).code == "bus-unavailable"
