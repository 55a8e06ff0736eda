"""Conditions, checks, names and words of the memory index, as far as no store is needed."""

import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre_memory import bm25
from cadre_memory.bm25 import SparseVector
from cadre_memory.index import vector_index
from cadre_memory.index.qdrant_store import rest_filter
from cadre_memory.index.sqlite_store import Columns
from cadre_memory.index.vector_index import (
    NOTHING,
    AllOf,
    AnyOf,
    Between,
    Chunk,
    Clause,
    Condition,
    Equal,
    Ids,
    IndexRefused,
    Not,
    OneOf,
    PointSelector,
    Schema,
    Vectors,
    Where,
    Within,
    admits,
    check_points,
    condition_of,
    owner,
    visible,
)

ANNA = Clause({"scope": "user", "user": "anna"})

FIELDS = st.sampled_from(["scope", "user", "agent", "kind"])
VALUES = st.sampled_from(["user", "anna", "ben", "note", "step"])
NUMBERS = st.one_of(st.none(), st.integers(0, 5).map(float))

LEAVES: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Equal, FIELDS, VALUES),
    st.builds(OneOf, FIELDS, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(Between, st.sampled_from(["created_at", "expires_at"]), NUMBERS, NUMBERS),
    st.builds(Ids, st.lists(st.sampled_from(["a", "b", "nowhere"]), max_size=2)),
)
PAYLOADS = st.fixed_dictionaries(
    dict.fromkeys(("scope", "user", "agent", "kind"), VALUES) | {"created_at": NUMBERS, "expires_at": NUMBERS}
)


def nested(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return st.one_of(
        st.builds(Not, inner),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3)),
        st.builds(AllOf, st.lists(inner, max_size=3)),
    )


@given(st.recursive(LEAVES, nested, max_leaves=12), st.lists(PAYLOADS, min_size=2, max_size=2))
def test_both_stores_can_filter_by_every_condition(condition: Condition, payloads: list[dict[str, Any]]) -> None:
    rest_filter(condition)
    columns = Columns(1, None)
    for number, (id, payload) in enumerate(zip("ab", payloads, strict=True)):
        columns.add(number, id, payload, b"")
    wanted = [admits(condition, id, payload) for id, payload in zip("ab", payloads, strict=True)]
    assert columns.mask(condition).tolist() == wanted


def point(**fields: object) -> dict[str, object]:
    return {
        "scope": "user",
        "user": "anna",
        "owner": "user:anna",
        "kind": "note",
        "created_at": 5.0,
        **fields,
    }


def shows(within: Within, payload: dict[str, object]) -> bool:
    return admits(condition_of(PointSelector(within=within)), "1", payload)


def test_no_clause_shows_nothing() -> None:
    assert visible(Within(any_of=[])) == NOTHING
    assert not shows(Within(any_of=[]), point())


def test_all_of_a_clause_must_hold_and_one_clause_is_enough() -> None:
    ben = Clause({"scope": "user", "user": "ben"})
    assert shows(Within(any_of=[ben, ANNA]), point())
    assert not shows(Within(any_of=[ben]), point())
    assert not shows(Within(any_of=[ANNA]), point(scope="team"))


@pytest.mark.parametrize(
    ("scope", "field"),
    [("run", "tree"), ("agent", "agent"), ("team", "team"), ("user", "user")],
)
def test_a_scope_with_its_owner_asks_the_tenant(scope: str, field: str) -> None:
    clause = visible(Within(any_of=[Clause({"scope": scope, field: "x"})]))
    assert clause == AnyOf([AllOf([Equal("scope", scope), Equal(field, "x"), Equal("owner", f"{scope}:x")])])


def test_a_session_asks_the_tenant_of_one_agent_and_person_or_of_all_of_its_name() -> None:
    named = visible(Within(any_of=[Clause({"scope": "session", "session": "s"})]))
    assert named == AnyOf([AllOf([Equal("scope", "session"), Equal("session", "s")])])
    owners = [owner("session", "s", user, root) for user in ("", "anna", "ben") for root in ("anna", "boss")]
    assert len(set(owners)) == 6
    for one in owners:
        mine = visible(Within(any_of=[Clause({"scope": "session", "session": "s", "owner": one})]))
        assert mine == AnyOf([AllOf([Equal("scope", "session"), Equal("session", "s"), Equal("owner", one)])])


def test_a_scope_alone_and_another_field_ask_no_tenant() -> None:
    clause = visible(Within(any_of=[Clause({"scope": "team", "agent": "a"})]))
    assert clause == AnyOf([AllOf([Equal("scope", "team"), Equal("agent", "a")])])


@pytest.mark.parametrize(
    ("equals", "why"),
    [
        ({}, "every memory"),
        ({"user": ""}, "empty 'user'"),
        ({"scope": "user", "session": ""}, "empty 'session'"),
        ({"embed_state": "done"}, "'embed_state'"),
    ],
)
def test_a_clause_that_means_too_much_is_refused(equals: dict[str, str], why: str) -> None:
    with pytest.raises(IndexRefused, match=why):
        condition_of(PointSelector(within=Within(any_of=[ANNA, Clause(equals)])))


def test_what_has_expired_is_hidden_from_that_moment_on() -> None:
    within = Within(any_of=[ANNA], at=100.0)
    assert shows(within, point())
    assert shows(within, point(expires_at=None))
    assert shows(within, point(expires_at=100.1))
    assert not shows(within, point(expires_at=100.0))


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (Where(), True),
        (Where(kinds=["step", "note"]), True),
        (Where(kinds=["step"]), False),
        (Where(agents=["scribe"]), False),
        (Where(since=5.0, until=5.0), True),
        (Where(since=5.1), False),
        (Where(until=4.9), False),
        (Where(memory="m"), False),
    ],
)
def test_what_is_asked_for_narrows(where: Where, shown: bool) -> None:
    assert admits(condition_of(PointSelector(within=Within(any_of=[ANNA]), where=where)), "1", point()) is shown


def test_a_chunk_survives_its_payload() -> None:
    chunk = Chunk(
        id="00000000-0000-0000-0000-000000000001",
        memory="t_1_0",
        text="зелёный чай",
        scope="run",
        tree="t",
        run="t_1_0",
        agent="scribe",
        created_at=1.25,
        hash="h",
    )
    payload = vector_index.payload(chunk)
    assert payload["owner"] == "run:t"
    assert "id" not in payload
    assert vector_index.chunk(chunk.id, payload) == chunk


def test_each_model_has_its_own_collection() -> None:
    name = Schema("Intfloat/E5-Large", "e5:1024:v1", 1024).collection("mem")
    assert name.startswith("mem__intfloat-e5-large-")
    assert name.endswith("__1024__s1")
    assert name != Schema("Intfloat/E5-Large", "e5:1024:v2", 1024).collection("mem")
    assert vector_index.dim_of(name) == 1024
    assert vector_index.is_collection(name, "mem")
    assert not vector_index.is_collection(name, "me")
    assert not vector_index.is_collection("somebody_elses", "mem")


def test_without_a_model_there_is_one_collection() -> None:
    name = Schema().collection("mem")
    assert name == "mem__lexical__lexical__s1"
    assert vector_index.dim_of(name) is None


def test_words_are_stems_of_their_own_language() -> None:
    document = bm25.encode_document("Anna drinks зелёного чая")
    for query in ("drink", "drinking", "чай", "зелёный"):
        found = bm25.encode_query(query)
        assert found.indices
        assert set(found.indices) <= set(document.indices), query
    assert bm25.encode_query("the и") == ([], [])
    assert document.indices == sorted(document.indices)


def test_a_word_is_counted_once_however_it_is_written() -> None:
    once, twice = bm25.encode_document("tea"), bm25.encode_document("tea Tea")
    assert once.indices == twice.indices
    assert twice.values > once.values


@pytest.mark.parametrize("word", ["tea", "ord", "48213", "submarin", "мост", "x", "verbrauch", "ab12cd34ef"])
def test_words_without_stems_have_the_same_ids(word: str) -> None:
    """So an index goes on working where the engine with its stems is missing."""
    assert bm25.unstemmed_query(word).indices == bm25.encode_query(word).indices
    assert bm25.unstemmed_document(word).values == pytest.approx(bm25.encode_document(word).values)


def bad(dense: list[list[float]] | None = None, sparse: SparseVector | None = None, **fields: Any) -> Any:
    given = {"id": str(UUID(int=1)), "scope": "user", "agent": "a", "created_at": 1.0, "text": "x", **fields}
    chunk = Chunk(memory="m", tree="t", run="t", hash="h", **given)
    return chunk, Vectors(sparse or SparseVector([], []), dense or [])


EAST = [1.0, 0.0, 0.0, 0.0]

BAD_POINTS = {
    "too long": bad([[1.0] * 5]),
    "one too short": bad([EAST, [1.0]]),
    "not a number": bad([[math.nan, 0.0, 0.0, 1.0]]),
    "infinite": bad([[math.inf, 0.0, 0.0, 1.0]]),
    "over 32 bits": bad([[1e39, 0.0, 0.0, 1.0]]),
    "zeros": bad([[0.0] * 4]),
    "a weight too few": bad(sparse=SparseVector([1, 2], [1.0])),
    "a token twice": bad(sparse=SparseVector([1, 1], [1.0, 1.0])),
    "a token below 0": bad(sparse=SparseVector([-1], [1.0])),
    "a token over 32 bits": bad(sparse=SparseVector([2**32], [1.0])),
    "a weight that is no number": bad(sparse=SparseVector([1], [math.nan])),
    "no id": bad(id="m1"),
    "an id in capitals": bad(id=str(UUID(int=0xABC)).upper()),
    "no time": bad(created_at=math.nan),
    "no end": bad(expires_at=math.inf),
    "vectors promised": bad(embed_state="done"),
}


@pytest.mark.parametrize("point", [pytest.param(point, id=name) for name, point in BAD_POINTS.items()])
def test_a_wrong_point_never_reaches_an_engine(point: tuple[Chunk, Vectors]) -> None:
    check_points([bad([EAST], embed_state="done"), bad()], 4)
    with pytest.raises(IndexRefused):
        check_points([bad(), point, bad()], 4)


@pytest.mark.parametrize("point", [bad([EAST]), bad(embed_state="pending")])
def test_without_embeddings_nothing_dense_is_taken(point: tuple[Chunk, Vectors]) -> None:
    check_points([bad()], None)
    with pytest.raises(IndexRefused, match=point[0].id):
        check_points([point], None)
