"""What is known of trees after entries and erasures: which trees end when, which blobs are whose, who is late."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.fates import Erased
from cadre_gateway.retention.tree_records import EntryStatus, SavedRecords, TreeRecords
from unit.journal_entries import FINISHED, accepted, entry

A, B = "blob:" + "a" * 64, "blob:" + "b" * 64
IGNORED = ev.RecordIgnored(kind="ToolResult", reason="the run has not begun")


def erased(tree: str, at: float = 50.0) -> Erased:
    return Erased(id=f"{tree}:erased", tree=tree, run=tree, at=at)


def test_a_tree_ends_with_its_root_when_that_was_stored() -> None:
    trees = TreeRecords()
    trees.add_entry(1, entry("a", 1, 1.0, accepted("a")), (), 10.0)
    trees.add_entry(2, entry("a_1_0", 1, 1.0, accepted("a_1_0")), (), 11.0)
    trees.add_entry(3, entry("a_1_0", 2, 1.0, FINISHED), (), 12.0)
    assert trees.first_ended() is None
    trees.add_entry(4, entry("a", 2, 1.0, FINISHED), (), 13.0)
    ended = trees.first_ended()
    assert ended is not None
    assert (ended.tree, ended.ended_at, ended.last) == ("a", 13.0, 4)
    trees.add_entry(5, entry("a", 3, 1.0, IGNORED), (), 99.0)
    assert trees.first_ended() == ended, "what comes late changes no end"


def test_trees_go_in_the_order_of_their_ends() -> None:
    trees = TreeRecords()
    for seq, (name, at) in enumerate([("b", 30.0), ("c", 10.0), ("a", 20.0)], start=1):
        trees.add_entry(seq, entry(name, 1, 1.0, accepted(name), FINISHED), (), at)
    order = []
    while (one := trees.first_ended()) is not None:
        order.append(one.tree)
        trees.erase(10 + len(order), erased(one.tree), 0.0)
    assert order == ["c", "a", "b"]


def test_a_blob_is_named_as_long_as_one_tree_names_it() -> None:
    trees = TreeRecords()
    trees.add_entry(1, entry("a", 1, 1.0, accepted("a")), {A, B}, 1.0)
    trees.add_entry(2, entry("a", 2, 1.0, FINISHED), {A}, 1.0)
    trees.add_entry(3, entry("b", 1, 1.0, accepted("b")), {A}, 1.0)
    assert trees.erase(4, erased("a"), 0.0)
    assert sorted(trees.pending_erasures["a"].blobs) == [A, B]
    assert (trees.is_referenced(A), trees.is_referenced(B)) == (True, False)
    trees.erase(5, erased("b"), 0.0)
    assert not trees.is_referenced(A)


def test_what_another_version_wrote_holds_its_blobs() -> None:
    trees = TreeRecords()
    trees.add_unreadable(1, "a", {A})
    assert trees.is_referenced(A)


def test_entries_around_an_erasure() -> None:
    trees = TreeRecords()
    trees.add_entry(1, entry("a", 1, 1.0, accepted("a")), (), 1.0)
    trees.erase(5, erased("a", at=50.0), 0.0)
    assert trees.add_entry(3, entry("a", 2, 1.0, FINISHED), (), 1.0) is EntryStatus.ERASED
    assert trees.add_entry(6, entry("a", 1, 1.0, IGNORED), (), 60.0) is EntryStatus.LATE
    assert (
        trees.add_entry(7, entry("a_1_0", 1, 1.0, accepted("a_1_0", at=70.0)), (), 70.0) is EntryStatus.LATE
    )
    assert trees.add_entry(8, entry("a", 1, 1.0, accepted("a", at=40.0)), (), 70.0) is EntryStatus.LATE, (
        "asked for before"
    )
    assert trees.late_trees == {"a": 8}
    assert trees.add_entry(9, entry("a", 1, 1.0, accepted("a", at=60.0)), (), 70.0) is EntryStatus.CURRENT, (
        "asked for again"
    )
    assert not trees.erase(5, erased("a", at=50.0), 0.0), "the old record read again"
    assert trees.get("a") is not None


def test_an_import_lifts_an_erasure() -> None:
    trees = TreeRecords()
    trees.erase(5, erased("a"), 0.0)
    trees.lift_erasure("a")
    assert trees.add_entry(7, entry("a", 1, 1.0, accepted("a")), (), 70.0) is EntryStatus.CURRENT


def test_what_comes_late_for_nobody_is_late() -> None:
    trees = TreeRecords()
    assert trees.add_entry(1, entry("a", 1, 1.0, IGNORED), (), 1.0) is EntryStatus.LATE
    assert trees.add_entry(2, entry("a", 2, 1.0, accepted("a")), (), 1.0) is EntryStatus.CURRENT
    assert trees.add_entry(3, entry("a_1_0", 1, 1.0, IGNORED), (), 1.0) is EntryStatus.CURRENT


def test_erasures_are_forgotten_with_their_records() -> None:
    trees = TreeRecords()
    for number, at in enumerate((10.0, 20.0, 30.0)):
        trees.erase(number + 1, erased(f"t{number}", at), 0.0)
    trees.erase(9, erased("t0", 40.0), 0.0)
    trees.drop_tombstones(30.0)
    assert [trees.is_erased(f"t{number}") for number in range(3)] == [True, False, True]


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


def taken(trees: TreeRecords, history: list[tuple[int, Entry | Erased, set[str]]]) -> TreeRecords:
    for seq, what, refs in history:
        if isinstance(what, Erased):
            trees.erase(seq, what, 0.0)
        else:
            trees.add_entry(seq, what, refs, float(seq))
    return trees


def as_saved(trees: TreeRecords) -> bytes:
    saved = trees.to_saved()
    for record in saved.trees:
        record.blobs.sort()
    return msgspec.json.encode(saved)


@given(histories(), st.data())
def test_going_on_from_the_saved_saved_is_the_same(
    history: list[tuple[int, Entry | Erased, set[str]]], data: st.DataObject
) -> None:
    """Also when some of what the saved tell is read again."""
    cut = data.draw(st.integers(0, len(history)))
    again = data.draw(st.integers(0, cut))
    saved = msgspec.json.decode(
        msgspec.json.encode(taken(TreeRecords(), history[:cut]).to_saved()), type=SavedRecords
    )
    resumed, whole = taken(TreeRecords(saved), history[again:]), taken(TreeRecords(), history)
    for tree in "abc":
        assert (resumed.get(tree) is None) == (whole.get(tree) is None)
        assert resumed.is_erased(tree) == whole.is_erased(tree)
    assert resumed.first_ended() == whole.first_ended()
    assert [resumed.is_referenced(blob) for blob in (A, B)] == [whole.is_referenced(blob) for blob in (A, B)]


# --- files of a workspace


def test_files_name_blobs_and_may_be_there_before_the_run() -> None:
    trees = TreeRecords()
    assert trees.add_file(1, "a", {A}, 5.0) is EntryStatus.CURRENT
    assert trees.unstarted_trees == TreeRecords(trees.to_saved()).unstarted_trees == {"a": 5.0}
    trees.add_entry(2, entry("a", 1, 1.0, accepted("a")), (), 6.0)
    assert trees.unstarted_trees == {}
    assert trees.add_file(3, "a", {B}, 7.0) is EntryStatus.CURRENT
    assert trees.unstarted_trees == {}
    assert trees.is_referenced(A)
    assert trees.is_referenced(B)
    trees.erase(4, erased("a"), 0.0)
    assert sorted(trees.pending_erasures["a"].blobs) == [A, B]
    assert not trees.is_referenced(A)


def test_a_file_that_comes_late_for_an_erased_run_is_late() -> None:
    trees = TreeRecords()
    trees.add_entry(1, entry("a", 1, 1.0, accepted("a")), (), 1.0)
    trees.erase(5, erased("a"), 0.0)
    assert trees.add_file(4, "a", {A}, 2.0) is EntryStatus.ERASED
    assert trees.add_file(6, "a", {A}, 2.0) is EntryStatus.LATE
    assert trees.late_trees == {"a": 6}
    assert not trees.is_referenced(A)


def test_files_of_a_run_that_never_begins_are_forgotten_whole() -> None:
    trees = TreeRecords()
    trees.add_file(1, "a", {A}, 5.0)
    assert trees.forget("a") == [A]
    assert (trees.unstarted_trees, trees.is_referenced(A), len(trees)) == ({}, False, 0)
