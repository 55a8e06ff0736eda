"""The index of runs: what lists show of the entries that were read, in any order trees are interleaved."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.adapters.nats.reading.tail import Read
from cadre.api.runs import RunOrder, RunSummary
from cadre.errors import RunIndexUnavailable
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import Erased, ErrorInfo, Origin
from cadre.protocol.usage import Usage
from cadre_gateway.index.database.port import Database
from cadre_gateway.index.database.postgres import PostgresDatabase
from cadre_gateway.index.run_filter import RunFilter, TreeReach
from cadre_gateway.index.run_index import RunIndex, apply_erasure, apply_read
from harness.postgres_server import PostgresServer
from unit.index_worlds import rows_of
from unit.inline_index import InlineDatabase, index_of, new_index, take
from unit.journal_entries import accepted, called, entry, story


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """Each test that takes it is run over either."""
    if request.param == "sqlite":
        yield InlineDatabase()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    one = PostgresDatabase(server.url, f"t{uuid4().hex[:10]}")
    yield one
    await one.close()


async def listed(index: RunIndex, order: RunOrder = "started", **wanted: object) -> list[str]:
    found, _ = await index.list(msgspec.convert(wanted, RunFilter), order=order)
    return [one.id for one in found]


def ended(
    run: str, at: float, cost: float = 0.0, output: str = "", error: ErrorCode | None = None, **fields: object
) -> Entry:
    end = ev.RunFinished(
        state="error" if error else "success",
        output=output or None,
        error=ErrorInfo(error, "no") if error else None,
        usage=Usage(cost=cost),
    )
    return entry(run, 1, at, accepted(run, at=at, **fields), end)  # type: ignore[arg-type]


async def test_runs_are_found_by_each_of_their_properties(database: Database) -> None:
    index = await index_of(
        [
            ended("a", 10.0, cost=3.0, output="Nine teapots.", text="Count the teapots."),
            ended("b", 20.0, cost=1.0, error="unreadable-answer", session="s1"),
            entry(
                "c",
                1,
                30.0,
                accepted("c", text="Weigh the cups.", at=30.0, origin=Origin(user="ann")),
                called(1),
            ),
            msgspec.structs.replace(entry("c_1_0", 1, 31.0, accepted("c_1_0", "c")), agent="helper"),
        ],
        database,
    )
    assert await listed(index) == ["c", "b", "a"]
    assert await listed(index, states=["success", "error"]) == ["b", "a"]
    assert await listed(index, states=[]) == []
    assert await listed(index, session="s1") == ["b"]
    assert await listed(index, user="ann") == ["c"]
    assert await listed(index, parent="c") == ["c_1_0"]
    assert await listed(index, agent="helper") == []
    assert await listed(index, member="helper") == ["c"]
    assert await listed(index, member="boss") == ["c", "b", "a"]
    assert await listed(index, since=20.0) == ["c", "b"]
    assert await listed(index, until=20.0) == ["a"]
    assert await listed(index, min_cost=2.0) == ["a"]
    assert await listed(index, error="unreadable-answer") == await listed(index, error="AgentParsingError") == ["b"]
    assert await listed(index, error="cut-off") == await listed(index, error="no such code") == []
    assert await listed(index, conversation="s1") == ["b"]
    assert await listed(index, conversation="a") == ["a"]
    assert await listed(index, agent="boss", reach=TreeReach(frozenset({"clerk"}))) == []
    assert await listed(index, reach=TreeReach(frozenset({"boss", "clerk"}), "ann")) == ["c"]
    assert await listed(index, order="cost") == ["a", "b", "c"]
    assert await listed(index, order="ended") == ["b", "a"]
    assert await index.count(RunFilter(states=frozenset({"success", "error"}))) == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("teapots", ["a"]),
        ("NINE tea", ["a"]),
        ("cups count", []),
        ("the", ["b", "a"]),
        ('the" OR', []),
        ("TÉAPOTS", ["a"]),
        ("count-the", ["a"]),
        ("the-count", []),
        ("teapots-nine", []),
        ("cup", ["b"]),
        ("cup weigh", []),
        ("a@b.example.net 1e5", ["b"]),
        ("*", []),
        ("teapots\0nine", []),
        ("count\0the", ["a"]),
        ("\0", []),
    ],
)
async def test_runs_are_found_by_words_of_their_task_and_answer(
    database: Database, words: str, found: list[str]
) -> None:
    index = await index_of(
        [
            entry("a", 1, 1.0, accepted("a", text="Count the teapots.")),
            entry("b", 1, 2.0, accepted("b", text="Weigh the cups, a@b.example.net: 1e5\0.")),
        ],
        database,
    )
    await index.flush()
    end = ev.RunFinished(state="success", output="Nine.")
    await take(index, 9, entry("a", 2, 3.0, end))
    assert await listed(index, text=words) == found


async def test_what_is_forgotten_is_in_no_list_and_may_begin_anew(database: Database) -> None:
    index = await index_of([*story("a1"), entry("b", 1, 9.0, accepted("b"))], database)
    await index.flush()
    async with index.changing("a1") as tree:
        tree.forget()
    assert await listed(index) == ["b"]
    assert await index.get("a1", "a1") is None
    assert await index.last_of("a1") == 0
    await take(index, 20, entry("a1", 1, 30.0, accepted("a1", text="Again.")))
    assert await listed(index, text="again") == ["a1"]
    assert await listed(index, text="it") == ["b"]


async def test_what_came_late_for_nobody_is_not_shown(database: Database) -> None:
    late = ev.RecordIgnored(kind="ToolResult", code="not-begun")
    index = await index_of([entry("a1", 1, 1.0, late)], database)
    assert await listed(index) == []
    await take(index, 2, entry("a1", 2, 2.0, accepted("a1")))
    await take(index, 3, entry("a1_1_0", 1, 3.0, late))
    assert await listed(index) == ["a1"]
    assert await index.get("a1", "a1_1_0") is None


async def test_a_page_behind_a_tree_that_was_erased_is_where_it_was(database: Database) -> None:
    index = await index_of((entry(name, 1, float(at), accepted(name)) for at, name in enumerate("abcd")), database)
    _, before = await index.list(RunFilter(), limit=2)
    async with index.changing("c") as tree:
        tree.forget()
    assert [one.id for one in (await index.list(RunFilter(), before=before))[0]] == ["b", "a"]


@pytest.mark.parametrize("before", ["nobody", "1.0", "x,a", "nan,a", ""])
async def test_a_place_that_is_none_is_refused(before: str) -> None:
    with pytest.raises(KeyError):
        await (await new_index()).list(RunFilter(), before=before)


async def test_what_cannot_be_saved_is_kept_until_it_can() -> None:
    class Full(InlineDatabase):
        is_full = False

        async def write(self, statements: object) -> None:
            if self.is_full:
                raise RunIndexUnavailable("no room")
            await super().write(statements)  # type: ignore[arg-type]

    database = Full()
    index = await new_index(database)
    database.is_full = True
    await take(index, 1, entry("a", 1, 1.0, accepted("a")))
    with pytest.raises(RunIndexUnavailable):
        await index.list(RunFilter())
    assert index.failure is not None
    database.is_full = False
    assert await listed(index) == ["a"]
    assert index.failure is None


async def test_places_in_the_journals_are_saved_with_what_was_read() -> None:
    database = InlineDatabase()
    index = await new_index(database)
    index.positions_read = lambda: [7]
    await take(index, 7, entry("a", 1, 1.0, accepted("a")))
    assert (await new_index(database)).positions == [0, 0, 0]
    await index.flush()
    again = await new_index(database)
    assert (again.positions, await listed(again)) == ([7, 0, 0], ["a"])


async def test_runs_are_found_by_labels_that_may_change_hands(database: Database) -> None:
    index = await index_of(
        [
            entry("a", 1, 1.0, accepted("a", labels={"ticket": "4711", "team": "red"})),
            entry("b", 1, 2.0, accepted("b", labels={"ticket": "4712", "team": "red"})),
            entry("c", 1, 3.0, accepted("c")),
        ],
        database,
    )
    assert await listed(index, labels=[("team", "red")]) == ["b", "a"]
    assert await listed(index, labels=[("ticket", None)]) == ["b", "a"]
    assert await listed(index, labels=[("team", "red"), ("ticket", "4711")]) == ["a"]
    assert await listed(index, labels=[("team", "4711")]) == []
    await index.flush()
    async with index.changing("a") as tree:
        tree.forget()
    await index.flush()
    await take(index, 9, entry("a", 1, 10.0, accepted("a", labels={"team": "blue"})))
    assert await listed(index, labels=[("team", "red")]) == ["b"]
    assert await listed(index, labels=[("team", "blue")]) == ["a"]
    found, _ = await index.list(RunFilter(labels=(("team", "blue"),)))
    assert found[0].labels == {"team": "blue"}


async def test_only_some_trees_stay_in_memory(database: Database) -> None:
    index = await new_index(database)
    for number in range(3_000):
        await take(index, number + 1, entry(f"r{number}", 1, float(number), accepted(f"r{number}")))
    await index.flush()
    assert len(index._trees) <= 500
    assert await index.count(RunFilter()) == 3_000
    assert (await index.get("r0", "r0")) is not None


# --- many runs, interleaved in any order


@st.composite
def interleavings(draw: st.DrawFn) -> list[Entry]:
    """Entries of up to six runs of distinct ages, each run's own in order."""
    names = [f"r{number}" for number in range(draw(st.integers(1, 6)))]
    journals = {}
    for name in names:
        length = draw(st.integers(1, 6))
        offset = draw(st.floats(0, 100, allow_nan=False))
        journals[name] = [msgspec.structs.replace(one, at=one.at + offset) for one in story(name)[:length]]
    turns = draw(st.permutations([name for name in names for _ in journals[name]]))
    iterators: dict[str, Iterator[Entry]] = {name: iter(journal) for name, journal in journals.items()}
    return [next(iterators[name]) for name in turns]


@given(interleavings(), st.data())
def test_taking_entries_in_twice_changes_nothing(entries: list[Entry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries) - 1))

    async def check() -> None:
        index = await index_of(entries)
        before = await rows_of(index)
        for seq, one in list(enumerate(entries, start=1))[start:]:
            await take(index, seq, one)
        assert await rows_of(index) == before

    asyncio.run(check())


@given(interleavings(), st.data())
def test_going_on_from_what_was_saved_gives_the_same_list(entries: list[Entry], data: st.DataObject) -> None:
    """Also when some of what was saved is read again."""
    cut = data.draw(st.integers(0, len(entries)))
    again = data.draw(st.integers(0, cut))

    async def check() -> None:
        database = InlineDatabase()
        index = await new_index(database)
        for seq, one in list(enumerate(entries, start=1))[:cut]:
            await take(index, seq, one)
        await index.flush()
        resumed = await new_index(database)
        for seq, one in list(enumerate(entries, start=1))[again:]:
            await take(resumed, seq, one)
        assert await rows_of(resumed) == await rows_of(await index_of(entries))

    asyncio.run(check())


@given(interleavings(), st.integers(1, 4), st.sampled_from([None, "running", "waiting", "success"]))
def test_pages_together_are_the_whole_list(entries: list[Entry], limit: int, state: str | None) -> None:
    wanted = RunFilter(states=frozenset([state]) if state is not None else None)

    async def check() -> None:
        index = await index_of(entries)
        whole, more = await index.list(wanted, limit=1000)
        assert more is None
        assert all(state in (None, one.state) for one in whole)
        assert len(whole) == await index.count(wanted)
        ages = [(one.asked_at, one.id) for one in whole]
        assert ages == sorted(ages, reverse=True)
        paged: list[RunSummary] = []
        before = None
        for _ in itertools.count():
            page, before = await index.list(wanted, limit=limit, before=before)
            paged += page
            if before is None:
                break
            assert len(page) == limit
        assert paged == whole

    asyncio.run(check())


async def test_a_run_is_queued_until_it_begins_and_is_found_by_its_text_all_the_time(
    database: Database,
) -> None:
    index = await index_of([], database)
    begun = accepted("a", text="Count the teapots.", session="s")
    async with index.changing("a") as tree:
        tree.runs.add_task(1, begun.task)
    for flushed in (False, True):
        if flushed:
            await index.flush()
            index = await new_index(database)
        assert await listed(index, states=["queued"]) == ["a"]
        assert await listed(index, text="teapots", session="s") == ["a"]
        assert await index.last_of("a") == 0, "it has no journal"
    await take(index, 7, entry("a", 1, 9.0, begun))
    async with index.changing("a") as tree:
        tree.runs.add_task(1, begun.task)  # read again, and later than its journal
    assert await listed(index, states=["queued"]) == []
    assert await listed(index, states=["running"], text="teapots") == ["a"]
    assert await index.last_of("a") == 7
    await take(index, 8, entry("a", 2, 9.0, ev.RunFinished(state="success", output="Nine cups.")))
    for text in ("teapots", "cups"):
        assert await listed(index, text=text) == ["a"]


async def test_a_run_that_begins_between_two_pages_is_on_one_of_them(database: Database) -> None:
    index = await index_of([], database)
    tasks = {run: accepted(run, at=float(at)) for at, run in enumerate("abcdef", start=1)}
    for run, begun in tasks.items():
        async with index.changing(run) as tree:
            tree.runs.add_task(1, begun.task)
    first, more = await index.list(RunFilter(), limit=2)
    for seq, run in enumerate("cb", start=7):  # the newest by their beginning
        await take(index, seq, entry(run, 1, 90.0 + seq, tasks[run]))
    second, none = await index.list(RunFilter(), limit=9, before=more)
    assert [one.id for one in (*first, *second)] == ["f", "e", "d", "c", "b", "a"]
    assert (none, second[1].asked_at, second[1].started_at) == (None, 3.0, 97.0)
    assert await listed(index, since=3.0, until=5.0) == ["d", "c"]


async def test_a_place_in_one_order_is_none_in_another(database: Database) -> None:
    index = await index_of([ended(run, at, cost=at) for run, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))], database)
    orders: tuple[RunOrder, ...] = ("started", "ended", "cost")
    for order in orders:
        _, more = await index.list(RunFilter(), order=order, limit=1)
        assert more is not None
        rest, _ = await index.list(RunFilter(), order=order, before=more)
        assert [one.id for one in rest] == ["b", "a"]
        for other in orders:
            if other != order:
                with pytest.raises(KeyError):
                    await index.list(RunFilter(), order=other, before=more)


async def test_a_queued_run_goes_with_its_erasure_and_comes_again_when_it_is_asked_for_again() -> None:
    index = await index_of([])
    task = accepted("a").task
    async with index.changing("a") as tree:
        tree.runs.add_task(1, task)
    assert await apply_erasure(index, 5, Erased(id="e", tree="a", run="a", at=2.0))
    await index.flush()
    assert await listed(index) == []
    before = Read(0, 3, "a", None, set(), 1.0, task=task)
    late = before._replace(seq=6)
    again = late._replace(task=msgspec.structs.replace(task, at=3.0))
    for read, found in ((before, []), (late, []), (again, ["a"])):
        await apply_read(index, read)
        assert await listed(index) == found
