"""Tests of what every engine of the memory index keeps to: the same tests on each."""

import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from cadre_memory.bm25 import SparseVector, encode_query
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import (
    Chunk,
    Clause,
    IndexRefused,
    PointSelector,
    Query,
    ScoredChunk,
    ScoredPoint,
    Store,
    Vectors,
    Where,
    Within,
)
from integration.memory_index_world import (
    ALL,
    ENGINES,
    NOWHERE,
    SCOPES,
    WORDS_ONLY,
    fresh_index,
    memory,
    names,
    of_user,
    open_store,
    point_id,
    with_words,
)

EAST, NORTH, UP = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=ENGINES, scope="module", loop_scope="module")
async def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    """One engine for all tests: to begin another takes the disk a while."""
    async with open_store(request.param, tmp_path_factory.mktemp("memory")) as store:
        yield store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_index(store: Store) -> AsyncIterator[MemoryIndex]:
    async with fresh_index(store) as index:
        yield index


@pytest_asyncio.fixture(loop_scope="module")
async def index(one_index: MemoryIndex) -> MemoryIndex:
    """Empty."""
    await one_index.store.delete(one_index.own, PointSelector())
    return one_index


async def found(index: MemoryIndex, within: Within, where: Where = NOWHERE) -> set[str]:
    """Through both legs, through each alone, and by reading all: they must agree."""
    sparse, limit = encode_query("tea"), 50
    ways: list[tuple[SparseVector | None, list[float] | None]] = [
        (sparse, EAST),
        (sparse, None),
        (None, EAST),
    ]
    answers = [
        names([hit.chunk for hit in await search(index, within, where, sparse=s, dense=d, limit=limit)])
        for s, d in ways
    ]
    page = await index.scroll(within=within, where=where, limit=limit)
    answers.append(names(page.chunks))
    assert all(answer == answers[0] for answer in answers), answers
    assert await index.count(within=within, where=where) == len(answers[0])
    return answers[0]


async def search(
    index: MemoryIndex,
    within: Within,
    where: Where = NOWHERE,
    *,
    sparse: SparseVector | None = None,
    dense: list[float] | None = None,
    limit: int = 5,
) -> list[ScoredChunk]:
    return await index.search(sparse=sparse, dense=dense, within=within, where=where, limit=limit)


def tea(name: str, **fields: Any) -> tuple[Chunk, Vectors]:
    return with_words(memory(name, f"tea {name}", **fields), [EAST])


async def test_a_memory_comes_back_as_it_was(index: MemoryIndex) -> None:
    whole = memory(
        "m1",
        "Anna drinks tea — зелёный чай.",
        index=2,
        count=3,
        scope="team",
        team="apollo",
        session="s1",
        step=4,
        kind="step",
        expires_at=2000.5,
        tokens=9,
        embed_state="done",
    )
    await index.upsert([with_words(whole, [EAST, NORTH])])
    page = await index.scroll(within=ALL, where=NOWHERE, limit=5)
    assert page.chunks == [whole]
    assert page.next is None
    [hit] = await search(index, ALL, dense=NORTH)
    assert hit.chunk == whole
    assert hit.score == pytest.approx(1.0)


async def test_storing_twice_stores_once(index: MemoryIndex) -> None:
    await index.upsert([tea("m1"), tea("m2")])
    await index.upsert([tea("m1"), tea("m2")])
    assert await index.count(within=ALL, where=NOWHERE) == 2


async def test_more_points_than_one_batch(index: MemoryIndex) -> None:
    await index.upsert([tea(f"m{n}") for n in range(150)])
    assert await index.count(within=ALL, where=NOWHERE) == 150


async def test_words_find_the_text_that_has_them(index: MemoryIndex) -> None:
    await index.upsert(
        [
            with_words(memory("tea", "She drinks green tea in the mornings.")),
            with_words(memory("order", "Order ORD-48213 was shipped on Monday.")),
            with_words(memory("чай", "По утрам она пьёт зелёный чай.")),
        ]
    )
    for query, wanted in [("morning drink", "tea"), ("ORD-48213", "order"), ("пить чай утром", "чай")]:
        hits = await search(index, ALL, sparse=encode_query(query))
        assert hits[0].chunk.memory == wanted, query
    assert await search(index, ALL, sparse=encode_query("submarine")) == []


async def test_a_query_of_common_words_finds_nothing(index: MemoryIndex) -> None:
    await index.upsert([tea("m1")])
    nothing = encode_query("the of and")
    assert nothing == SparseVector([], [])
    assert await search(index, ALL, sparse=nothing) == []
    assert len(await search(index, ALL, sparse=nothing, dense=EAST)) == 1


async def test_the_best_window_of_a_text_counts(index: MemoryIndex) -> None:
    await index.upsert(
        [
            with_words(memory("late", "a"), [NORTH, NORTH, EAST]),
            with_words(memory("near", "b"), [[1.0, 1.0, 0.0, 0.0]]),
        ]
    )
    hits = await search(index, ALL, dense=EAST)
    assert [(hit.chunk.memory, round(hit.score, 4)) for hit in hits] == [("late", 1.0), ("near", 0.7071)]


async def test_both_legs_are_fused_by_rank(index: MemoryIndex) -> None:
    await index.upsert(
        [
            with_words(memory("both", "green tea, black tea"), [[0.9, 0.1, 0.0, 0.0]]),
            with_words(memory("meaning", "a hot drink"), [EAST]),
            with_words(memory("words", "tea and much else that has little to do with it"), [[0.5, 0.0, 0.8, 0.0]]),
            with_words(memory("neither", "a submarine"), [[0.1, 0.9, 0.0, 0.0]]),
        ]
    )
    hits = await search(index, ALL, sparse=encode_query("tea"), dense=EAST)
    # The first of a leg gives 1/2, the second 1/3, and so on.
    assert [hit.chunk.memory for hit in hits] == ["both", "words", "meaning", "neither"]
    assert [hit.score for hit in hits] == pytest.approx([1 / 2 + 1 / 3, 1 / 3 + 1 / 4, 1 / 2, 1 / 5])


FILTERS: list[tuple[Where, set[str]]] = [
    (Where(), {"a", "b", "c", "d"}),
    (Where(kinds=["step"]), {"b"}),
    (Where(kinds=["step", "answer"]), {"b", "c"}),
    (Where(agents=["clerk"]), {"c", "d"}),
    (Where(memory="d"), {"d"}),
    (Where(memory="nobody's"), set()),
    (Where(since=20.0), {"b", "c", "d"}),
    (Where(until=20.0), {"a", "b"}),
    (Where(since=20.0, until=30.5), {"b", "c"}),
    (Where(agents=["clerk"], kinds=["note"], since=35.0), {"d"}),
    (Where(agents=["clerk"], kinds=["step"]), set()),
    (Where(ids=[point_id("a"), point_id("c"), point_id("nowhere")], since=20.0), {"c"}),
    (Where(ids=[]), set()),
]


async def test_filters_narrow_every_way_of_reading(index: MemoryIndex) -> None:
    await index.upsert(
        [
            tea("a", created_at=10.0),
            tea("b", created_at=20.0, kind="step"),
            tea("c", created_at=30.5, kind="answer", agent="clerk"),
            tea("d", created_at=40.0, agent="clerk"),
        ]
    )
    for where, wanted in FILTERS:
        assert await found(index, ALL, where) == wanted, where


OWNED = {
    "run": {"scope": "run", "tree": "t1"},
    "session": {"scope": "session", "session": "s1"},
    "agent": {"scope": "agent", "agent": "scribe"},
    "team": {"scope": "team", "team": "apollo"},
    "user": {"scope": "user", "user": "anna"},
}


async def everyones(index: MemoryIndex) -> None:
    """In each scope one memory of ours and one of others, who share every other owner with us."""
    ours = {"tree": "t1", "run": "t1", "session": "s1", "agent": "scribe", "team": "apollo", "user": "anna"}
    fields = {"run": "tree", "session": "session", "agent": "agent", "team": "team", "user": "user"}
    points = []
    for scope in SCOPES:
        points.append(tea(f"our {scope}", **{**ours, "scope": scope}))
        points.append(tea(f"other {scope}", **{**ours, "scope": scope, fields[scope]: "other"}))
    await index.upsert(points)


async def test_each_scope_shows_its_owner_only(index: MemoryIndex) -> None:
    await everyones(index)
    for scope in SCOPES:
        assert await found(index, Within(any_of=[Clause(OWNED[scope])])) == {f"our {scope}"}
    within = Within(any_of=[Clause(OWNED["run"]), Clause(OWNED["team"])])
    assert await found(index, within) == {"our run", "our team"}
    assert await found(index, ALL) == {f"{whose} {scope}" for whose in ("our", "other") for scope in SCOPES}


async def test_a_stranger_reads_and_removes_nothing(index: MemoryIndex) -> None:
    await everyones(index)
    for scope in SCOPES:
        field = {"run": "tree"}.get(scope, scope)
        stranger = Within(any_of=[Clause({"scope": scope, field: "stranger"})])
        assert await found(index, stranger) == set()
        for where in (NOWHERE, Where(memory=f"our {scope}"), Where(kinds=["note"]), Where(agents=["scribe"])):
            assert await index.delete(within=stranger, where=where) == 0
    assert await index.count(within=ALL, where=NOWHERE) == 10


async def test_going_on_from_anothers_point_shows_nothing_of_it(index: MemoryIndex) -> None:
    await index.upsert([tea("hers"), tea("his", user="ben")])
    for after in (point_id("hers"), point_id("his"), point_id("nobody's")):
        page = await index.scroll(within=of_user("ben"), where=NOWHERE, limit=5, after=after)
        assert names(page.chunks) <= {"his"}


async def test_no_clause_is_nothing(index: MemoryIndex) -> None:
    await everyones(index)
    nothing = Within(any_of=[])
    assert await found(index, nothing) == set()
    assert await index.delete(within=nothing, where=NOWHERE) == 0
    assert await index.count(within=ALL, where=NOWHERE) == 10


@pytest.mark.parametrize("equals", [{}, {"user": ""}, {"scope": "user", "user": ""}, {"text": "tea"}])
async def test_a_clause_that_would_show_too_much_is_refused(index: MemoryIndex, equals: dict[str, str]) -> None:
    await everyones(index)
    within = Within(any_of=[Clause(OWNED["user"]), Clause(equals)])
    with pytest.raises(IndexRefused):
        await search(index, within, dense=EAST)
    with pytest.raises(IndexRefused):
        await index.scroll(within=within, where=NOWHERE, limit=5)
    with pytest.raises(IndexRefused):
        await index.count(within=within, where=NOWHERE)
    with pytest.raises(IndexRefused):
        await index.delete(within=within, where=NOWHERE)
    assert await index.count(within=ALL, where=NOWHERE) == 10


async def test_what_has_expired_is_hidden_and_then_removed(index: MemoryIndex) -> None:
    await index.upsert([tea("never"), tea("soon", expires_at=50.0), tea("late", expires_at=90.0)])
    assert await found(index, of_user("anna", at=49.9)) == {"never", "soon", "late"}
    assert await found(index, of_user("anna", at=50.0)) == {"never", "late"}
    assert await found(index, of_user("anna")) == {"never", "soon", "late"}
    assert await index.expire(50.0) == 1
    assert await index.expire(50.0) == 0
    assert await found(index, of_user("anna")) == {"never", "late"}


async def test_a_deletion_is_complete_and_counted(index: MemoryIndex) -> None:
    await index.upsert([tea(f"m{n}") for n in range(120)])
    await index.upsert([tea("expired", expires_at=5.0), tea("his", user="ben")])
    assert await index.delete(within=of_user("anna", at=10.0), where=Where(memory="m7")) == 1
    # What has expired is hidden, and yet to be removed.
    assert await index.delete(within=of_user("anna", at=10.0), where=NOWHERE) == 120
    assert await index.delete(within=of_user("anna"), where=NOWHERE) == 0
    assert await found(index, ALL) == {"his"}


async def test_pages_show_each_memory_once(index: MemoryIndex) -> None:
    await index.upsert([tea(f"m{n}") for n in range(25)])
    await index.upsert([tea(f"other{n}", user="ben") for n in range(25)])
    seen: list[str] = []
    sizes: list[int] = []
    after: str | None = None
    while True:
        page = await index.scroll(within=of_user("anna"), where=NOWHERE, limit=10, after=after)
        seen += [chunk.memory for chunk in page.chunks]
        sizes.append(len(page.chunks))
        after = page.next
        if after is None:
            break
    assert sizes == [10, 10, 5]
    assert sorted(seen) == sorted(f"m{n}" for n in range(25))


async def test_a_page_cannot_begin_at_nonsense(index: MemoryIndex) -> None:
    with pytest.raises(IndexRefused, match="UUID"):
        await index.scroll(within=ALL, where=NOWHERE, limit=5, after="../../etc")


async def test_dense_vectors_may_come_later(index: MemoryIndex) -> None:
    waiting = [with_words(memory(f"m{n}", f"tea {n}", embed_state="pending")) for n in range(3)]
    await index.upsert(waiting)
    assert names((await index.pending(10)).chunks) == {"m0", "m1", "m2"}
    assert len((await index.pending(2)).chunks) == 2
    assert len(await search(index, ALL, sparse=encode_query("tea"))) == 3
    assert await search(index, ALL, dense=EAST) == []

    await index.set_dense({point_id("m0"): [EAST], point_id("m1"): [NORTH, UP]})
    assert names((await index.pending(10)).chunks) == {"m2"}
    hits = await search(index, ALL, dense=NORTH, limit=1)
    assert (hits[0].chunk.memory, hits[0].chunk.embed_state) == ("m1", "done")

    # Redelivered: what it has been given since stays.
    await index.upsert(waiting)
    assert names((await index.pending(10)).chunks) == {"m2"}
    assert len(await search(index, ALL, dense=NORTH)) == 2


async def test_vectors_for_a_memory_that_is_gone_bring_nothing_back(index: MemoryIndex) -> None:
    await index.upsert([with_words(memory(name, f"tea {name}", embed_state="pending")) for name in ("gone", "there")])
    assert await index.delete(within=ALL, where=Where(memory="gone")) == 1
    await index.set_dense({point_id("gone"): [EAST], point_id("there"): [EAST]})
    page = await index.scroll(within=ALL, where=NOWHERE, limit=5)
    assert [(chunk.memory, chunk.embed_state) for chunk in page.chunks] == [("there", "done")]
    assert (await index.pending(5)).chunks == []


async def test_wrong_vectors_are_refused_wherever_they_come(index: MemoryIndex) -> None:
    await index.upsert([with_words(memory("m1", "tea", embed_state="pending"))])
    with pytest.raises(IndexRefused, match="must be 4"):
        await index.upsert([tea("before"), with_words(memory("bad", "x"), [[1.0]]), tea("behind")])
    for vectors in ([[1.0]], [], [[math.nan] * 4]):
        with pytest.raises(IndexRefused):
            await index.set_dense({point_id("m1"): vectors})
    for dense in ([1.0], [math.inf, 0.0, 0.0, 0.0], []):
        with pytest.raises(IndexRefused):
            await search(index, ALL, dense=dense)
    assert names((await index.scroll(within=ALL, where=NOWHERE, limit=5)).chunks) == {"m1"}
    assert names((await index.pending(5)).chunks) == {"m1"}


async def test_without_embeddings_words_are_searched(store: Store) -> None:
    async with fresh_index(store, WORDS_ONLY) as index:
        await index.upsert([with_words(memory("m1", "green tea"))])
        [hit] = await search(index, ALL, sparse=encode_query("tea"))
        assert hit.chunk.embed_state == "lexical"
        assert (await index.status()).dense is False
        with pytest.raises(IndexRefused, match="no embeddings"):
            await index.upsert([tea("m2")])
        with pytest.raises(IndexRefused, match="no embeddings"):
            await search(index, ALL, dense=EAST)


async def test_it_says_how_it_is(index: MemoryIndex) -> None:
    await index.upsert([tea("m1"), tea("m2")])
    assert await index.status() == (index.store.backend, index.own, 2, True, False)


async def test_an_engine_that_shows_too_much_is_not_believed(
    index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its filters are made ineffective: what comes back is looked at once more."""
    await index.upsert([tea("hers"), tea("his", user="ben")])
    engine_search = index.store.search

    async def unfiltered(collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        return await engine_search(collection, query, msgspec.structs.replace(selector, within=ALL))

    monkeypatch.setattr(index.store, "search", unfiltered)
    with pytest.raises(Exception, match="may not see"):
        await search(index, of_user("ben"), dense=EAST)
