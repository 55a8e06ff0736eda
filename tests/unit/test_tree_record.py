"""Tests of what is known of a tree after entries and erasures: when it ended, which blobs are its own, who is late."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.messages import Erased
from cadre_gateway.index.database.port import SqlQuery
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus, TreeRecord
from unit.inline_index import InlineDatabase, erased_at, new_index, take
from unit.journal_entries import FINISHED, accepted, entry

A, B = "blob:" + "a" * 64, "blob:" + "b" * 64
IGNORED = ev.RecordIgnored(kind="ToolResult", code="not-begun")


def erased(tree: str, at: float = 50.0) -> Erased:
    return Erased(id=f"{tree}:erased", tree=tree, run=tree, at=at)


def test_a_tree_ends_with_its_root_when_that_was_stored() -> None:
    tree = TreeRecord("a")
    tree.add_entry(1, entry("a", 1, 1.0, accepted("a")), (), 10.0)
    tree.add_entry(2, entry("a_1_0", 1, 1.0, accepted("a_1_0")), (), 11.0)
    tree.add_entry(3, entry("a_1_0", 2, 1.0, FINISHED), (), 12.0)
    assert tree.ended_at is None
    tree.add_entry(4, entry("a", 2, 1.0, FINISHED), (), 13.0)
    assert [tree.ended_at, tree.last] == [13.0, 4]
    tree.add_entry(5, entry("a", 3, 1.0, IGNORED), (), 99.0)
    assert tree.ended_at == 13.0, "what comes late changes no end"


def test_entries_around_an_erasure() -> None:
    tree = TreeRecord("a")
    tree.add_entry(1, entry("a", 1, 1.0, accepted("a")), {A}, 1.0)
    assert tree.erase(5, erased("a", at=50.0))
    assert tree.forget() == [A]
    assert tree.add_entry(3, entry("a", 2, 1.0, FINISHED), (), 1.0) is EntryStatus.ERASED
    assert tree.add_entry(6, entry("a", 1, 1.0, IGNORED), (), 60.0) is EntryStatus.LATE
    child = entry("a_1_0", 1, 1.0, accepted("a_1_0", at=70.0))
    assert tree.add_entry(7, child, (), 70.0) is EntryStatus.LATE
    before = entry("a", 1, 1.0, accepted("a", at=40.0))
    assert tree.add_entry(8, before, (), 70.0) is EntryStatus.LATE, "asked for before"
    again = entry("a", 1, 1.0, accepted("a", at=60.0))
    assert tree.add_entry(9, again, (), 70.0) is EntryStatus.CURRENT, "asked for again"
    assert not tree.erase(5, erased("a", at=50.0)), "the old record read again"
    assert tree.last == 9


def test_what_comes_late_for_nobody_is_late() -> None:
    tree = TreeRecord("a")
    assert tree.add_entry(1, entry("a", 1, 1.0, IGNORED), (), 1.0) is EntryStatus.LATE
    assert tree.add_entry(2, entry("a", 2, 1.0, accepted("a")), (), 1.0) is EntryStatus.CURRENT
    assert tree.add_entry(3, entry("a_1_0", 1, 1.0, IGNORED), (), 1.0) is EntryStatus.CURRENT


def test_files_name_blobs_and_may_be_there_before_the_run() -> None:
    tree = TreeRecord("a")
    assert tree.add_file(1, {A}, 5.0) is EntryStatus.CURRENT
    assert tree.unstarted_at == 5.0
    tree.add_entry(2, entry("a", 1, 1.0, accepted("a")), (), 6.0)
    assert tree.unstarted_at is None
    assert tree.add_file(3, {B}, 7.0) is EntryStatus.CURRENT
    assert tree.unstarted_at is None
    assert tree.blobs == [A, B]


def test_a_file_that_comes_late_for_an_erased_run_is_late() -> None:
    tree = TreeRecord("a")
    tree.add_entry(1, entry("a", 1, 1.0, accepted("a")), (), 1.0)
    tree.erase(5, erased("a"))
    tree.forget()
    assert tree.add_file(4, {A}, 2.0) is EntryStatus.ERASED
    assert tree.add_file(6, {A}, 2.0) is EntryStatus.LATE
    assert tree.blobs == []


# --- all trees


async def erase(index: RunIndex, tree: str, seq: int, at: float = 50.0) -> None:
    async with index.changing(tree) as found:
        if found.record.erase(seq, erased(tree, at)):
            found.forget()


async def test_a_blob_is_named_as_long_as_one_tree_names_it() -> None:
    index = await new_index()
    await take(index, 1, entry("a", 1, 1.0, accepted("a")), {A, B})
    await take(index, 2, entry("b", 1, 1.0, accepted("b")), {A})
    await index.flush()
    await erase(index, "a", 3)
    assert [await index.is_referenced(blob) for blob in (A, B)] == [True, False]
    await erase(index, "b", 4)
    assert not await index.is_referenced(A)


async def test_what_another_version_wrote_holds_its_blobs() -> None:
    index = await new_index()
    async with index.changing("a") as tree:
        tree.record.add_unreadable(1, {A})
    assert await index.is_referenced(A)
    assert await index.last_of("a") == 1


async def test_an_import_lifts_an_erasure() -> None:
    index = await new_index()
    await erase(index, "a", 5)
    await index.flush()
    async with index.changing("a") as tree:
        tree.record.restore(6)
    assert await erased_at(index, "a") is None
    assert await take(index, 7, entry("a", 1, 1.0, accepted("a")), (), 70.0) is EntryStatus.CURRENT


async def test_erasures_are_forgotten_with_their_records() -> None:
    index = await new_index()
    for number, at in enumerate((10.0, 20.0, 30.0)):
        await erase(index, f"t{number}", number + 1, at)
    await erase(index, "t0", 9, 40.0)
    await index.drop_tombstones(30.0)
    assert [await erased_at(index, f"t{number}") is not None for number in range(3)] == [True, False, True]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, Entry | Erased, set[str]]]:
    found: list[tuple[int, Entry | Erased, set[str]]] = []
    counts: dict[str, int] = {}
    for seq in range(1, draw(st.integers(1, 25))):
        tree = draw(st.sampled_from("abc"))
        counts[tree] = counts.get(tree, 0) + 1
        n = counts[tree]
        what = draw(st.sampled_from(["go", "go", "end", "late", "erase"]))
        if what == "erase":
            counts[tree] = 0
            found.append((seq, erased(tree, at=float(seq)), set()))
            continue
        first = accepted(tree, at=float(seq)) if n == 1 and what != "late" else IGNORED
        last = [FINISHED] if what == "end" else []
        refs = draw(st.sets(st.sampled_from([A, B])))
        found.append((seq, entry(tree, n, 1.0, first, *last), refs))
    return found


async def taken(index: RunIndex, history: list[tuple[int, Entry | Erased, set[str]]]) -> None:
    for seq, what, refs in history:
        if isinstance(what, Erased):
            await erase(index, what.tree, seq, what.at)
        else:
            await take(index, seq, what, refs, float(seq))


async def known(index: RunIndex) -> list[object]:
    trees = [(await index.last_of(tree) > 0, await erased_at(index, tree)) for tree in "abc"]
    ends = await index.read(SqlQuery("SELECT tree, ended_at FROM trees WHERE ended_at IS NOT NULL ORDER BY ended_at"))
    runs, _ = await index.list(RunFilter())
    return [*trees, ends, runs, *[await index.is_referenced(blob) for blob in (A, B)]]


@given(histories(), st.data())
def test_going_on_from_what_was_saved_is_the_same(
    history: list[tuple[int, Entry | Erased, set[str]]], data: st.DataObject
) -> None:
    """Also when some of it is read again."""
    cut = data.draw(st.integers(0, len(history)))
    again = data.draw(st.integers(0, cut))

    async def check() -> None:
        database = InlineDatabase()
        first, whole = await new_index(database), await new_index()
        await taken(first, history[:cut])
        await first.flush()
        resumed = await new_index(database)
        await taken(resumed, history[again:])
        await taken(whole, history)
        assert await known(resumed) == await known(whole)

    asyncio.run(check())
