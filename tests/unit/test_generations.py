"""Generations of shards: what an id says, and where its tree lives."""

from hypothesis import given
from hypothesis import strategies as st

from cadre.protocol.topology import (
    ID_LENGTH,
    MARKERS,
    MOST_GENERATIONS,
    Layout,
    Topology,
    generation_of,
    in_generation,
    run_id_of,
    tree_of,
)
from cadre_gateway.starting.admission import new_run_id

LAYOUTS = st.lists(st.integers(1, 256), min_size=1, max_size=MOST_GENERATIONS, unique=True).map(sorted)


@given(LAYOUTS, st.text(min_size=1), st.integers(1, 256))
def test_a_tree_stays_where_it_is_when_shards_are_added(generations: list[int], key: str, more: int) -> None:
    first = run_id_of("agent", "owner", key)
    before, after = Topology(generations[:-1] or generations), Topology(generations)
    for generation in range(before.newest + 1):
        tree = in_generation(first, generation)
        assert (len(tree), generation_of(tree), tree[:-1]) == (ID_LENGTH, generation, first[:-1])
        assert before.shard(tree) == after.shard(tree) < generations[generation]
    assert after.shards == generations[-1]
    growing = Topology(generations)
    growing.layout = Layout(tuple(generations), generations[-1] + more, serves=True)
    assert growing.shards == generations[-1] + more
    assert growing.shard(first) == after.shard(first)


@given(st.text())
def test_any_text_is_an_id_of_some_generation(text: str) -> None:
    found = generation_of(tree_of(text))
    assert found == 0 or (len(tree_of(text)) == ID_LENGTH and tree_of(text)[-1] == MARKERS[found - 1])


def test_new_ids_name_the_generation_in_which_their_runs_begin() -> None:
    ids = [new_run_id(generation) for generation in range(MOST_GENERATIONS)]
    assert [generation_of(one) for one in ids] == list(range(MOST_GENERATIONS))
    assert {len(one) for one in ids} == {ID_LENGTH}
