"""What the ledger makes of entries and erasures: which trees end when, which blobs are whose, who is late."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cadre.journal import events as ev
from cadre.protocol.messages import Erased, Task
from cadre.spec.agent import AgentSpec
from cadre_gateway.retention.ledger import Books, Ledger, Verdict

SPEC = AgentSpec(name="boss", description="Leads.")
A, B = "blob:" + "a" * 64, "blob:" + "b" * 64
IGNORED = ev.RecordIgnored(kind="ToolResult", reason="the run has not begun")
FINISHED = ev.RunFinished(state="success")


def entry(run: str, n: int, *events: ev.AnyEvent) -> ev.Entry:
    tree = run.partition("_")[0]
    return ev.Entry(tree=tree, run=run, agent="boss", n=n, cause=f"c{n}", at=1.0, events=list(events))


def accepted(run: str, at: float = 1.0) -> ev.RunAccepted:
    tree = run.partition("_")[0]
    return ev.RunAccepted(
        task=Task(id=f"{run}:task", tree=tree, run=run, at=at, agent="boss", task="x"), spec=SPEC
    )


def erased(tree: str, at: float = 50.0) -> Erased:
    return Erased(id=f"{tree}:erased", tree=tree, run=tree, at=at)


def test_a_tree_ends_with_its_root_when_that_was_stored() -> None:
    ledger = Ledger()
    ledger.take(1, entry("a", 1, accepted("a")), (), 10.0)
    ledger.take(2, entry("a_1_0", 1, accepted("a_1_0")), (), 11.0)
    ledger.take(3, entry("a_1_0", 2, FINISHED), (), 12.0)
    assert ledger.next_end() is None
    ledger.take(4, entry("a", 2, FINISHED), (), 13.0)
    ended = ledger.next_end()
    assert ended is not None
    assert (ended.tree, ended.ended_at, ended.last) == ("a", 13.0, 4)
    ledger.take(5, entry("a", 3, IGNORED), (), 99.0)
    assert ledger.next_end() == ended, "what comes late changes no end"


def test_trees_go_in_the_order_of_their_ends() -> None:
    ledger = Ledger()
    for seq, (name, at) in enumerate([("b", 30.0), ("c", 10.0), ("a", 20.0)], start=1):
        ledger.take(seq, entry(name, 1, accepted(name), FINISHED), (), at)
    order = []
    while (one := ledger.next_end()) is not None:
        order.append(one.tree)
        ledger.erased(10 + len(order), erased(one.tree), 0.0)
    assert order == ["c", "a", "b"]


def test_a_blob_is_named_as_long_as_one_tree_names_it() -> None:
    ledger = Ledger()
    ledger.take(1, entry("a", 1, accepted("a")), {A, B}, 1.0)
    ledger.take(2, entry("a", 2, FINISHED), {A}, 1.0)
    ledger.take(3, entry("b", 1, accepted("b")), {A}, 1.0)
    assert ledger.erased(4, erased("a"), 0.0)
    assert sorted(ledger.erasing["a"].blobs) == [A, B]
    assert (ledger.is_named(A), ledger.is_named(B)) == (True, False)
    ledger.erased(5, erased("b"), 0.0)
    assert not ledger.is_named(A)


def test_what_another_version_wrote_holds_its_blobs() -> None:
    ledger = Ledger()
    ledger.take_unreadable(1, "a", {A})
    assert ledger.is_named(A)


def test_entries_around_an_erasure() -> None:
    ledger = Ledger()
    ledger.take(1, entry("a", 1, accepted("a")), (), 1.0)
    ledger.erased(5, erased("a", at=50.0), 0.0)
    assert ledger.take(3, entry("a", 2, FINISHED), (), 1.0) is Verdict.GONE
    assert ledger.take(6, entry("a", 1, IGNORED), (), 60.0) is Verdict.GHOST
    assert ledger.take(7, entry("a_1_0", 1, accepted("a_1_0", at=70.0)), (), 70.0) is Verdict.GHOST
    assert ledger.take(8, entry("a", 1, accepted("a", at=40.0)), (), 70.0) is Verdict.GHOST, (
        "asked for before"
    )
    assert ledger.ghosts == {"a": 8}
    assert ledger.take(9, entry("a", 1, accepted("a", at=60.0)), (), 70.0) is Verdict.PART, "asked for again"
    assert not ledger.erased(5, erased("a", at=50.0), 0.0), "the old record read again"
    assert ledger.holding("a") is not None


def test_an_import_lifts_an_erasure() -> None:
    ledger = Ledger()
    ledger.erased(5, erased("a"), 0.0)
    ledger.imported("a")
    assert ledger.take(7, entry("a", 1, accepted("a")), (), 70.0) is Verdict.PART


def test_what_comes_late_for_nobody_is_a_ghost() -> None:
    ledger = Ledger()
    assert ledger.take(1, entry("a", 1, IGNORED), (), 1.0) is Verdict.GHOST
    assert ledger.take(2, entry("a", 2, accepted("a")), (), 1.0) is Verdict.PART
    assert ledger.take(3, entry("a_1_0", 1, IGNORED), (), 1.0) is Verdict.PART


def test_erasures_are_forgotten_with_their_records() -> None:
    ledger = Ledger()
    for number, at in enumerate((10.0, 20.0, 30.0)):
        ledger.erased(number + 1, erased(f"t{number}", at), 0.0)
    ledger.erased(9, erased("t0", 40.0), 0.0)
    ledger.forget_tombs(30.0)
    assert [ledger.is_erased(f"t{number}") for number in range(3)] == [True, False, True]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, ev.Entry | Erased, set[str]]]:
    found: list[tuple[int, ev.Entry | Erased, set[str]]] = []
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
        found.append((seq, entry(tree, n, first, *last), refs))
    return found


def taken(ledger: Ledger, history: list[tuple[int, ev.Entry | Erased, set[str]]]) -> Ledger:
    for seq, what, refs in history:
        if isinstance(what, Erased):
            ledger.erased(seq, what, 0.0)
        else:
            ledger.take(seq, what, refs, float(seq))
    return ledger


def as_saved(ledger: Ledger) -> bytes:
    books = ledger.books()
    for holding in books.holdings:
        holding.blobs.sort()
    return msgspec.json.encode(books)


@given(histories(), st.data())
def test_going_on_from_the_saved_books_is_the_same(
    history: list[tuple[int, ev.Entry | Erased, set[str]]], data: st.DataObject
) -> None:
    """Also when some of what the books tell is read again."""
    cut = data.draw(st.integers(0, len(history)))
    again = data.draw(st.integers(0, cut))
    books = msgspec.json.decode(msgspec.json.encode(taken(Ledger(), history[:cut]).books()), type=Books)
    resumed, whole = taken(Ledger(books), history[again:]), taken(Ledger(), history)
    for tree in "abc":
        assert (resumed.holding(tree) is None) == (whole.holding(tree) is None)
        assert resumed.is_erased(tree) == whole.is_erased(tree)
    assert resumed.next_end() == whole.next_end()
    assert [resumed.is_named(blob) for blob in (A, B)] == [whole.is_named(blob) for blob in (A, B)]


# --- files of a workspace


def test_files_name_blobs_and_may_be_there_before_the_run() -> None:
    ledger = Ledger()
    assert ledger.take_file(1, "a", {A}, 5.0) is Verdict.PART
    assert ledger.unbegun == Ledger(ledger.books()).unbegun == {"a": 5.0}
    ledger.take(2, entry("a", 1, accepted("a")), (), 6.0)
    assert ledger.unbegun == {}
    assert ledger.take_file(3, "a", {B}, 7.0) is Verdict.PART
    assert ledger.unbegun == {}
    assert ledger.is_named(A)
    assert ledger.is_named(B)
    ledger.erased(4, erased("a"), 0.0)
    assert sorted(ledger.erasing["a"].blobs) == [A, B]
    assert not ledger.is_named(A)


def test_a_file_that_comes_late_for_an_erased_run_is_a_ghost() -> None:
    ledger = Ledger()
    ledger.take(1, entry("a", 1, accepted("a")), (), 1.0)
    ledger.erased(5, erased("a"), 0.0)
    assert ledger.take_file(4, "a", {A}, 2.0) is Verdict.GONE
    assert ledger.take_file(6, "a", {A}, 2.0) is Verdict.GHOST
    assert ledger.ghosts == {"a": 6}
    assert not ledger.is_named(A)


def test_files_of_a_run_that_never_begins_are_forgotten_whole() -> None:
    ledger = Ledger()
    ledger.take_file(1, "a", {A}, 5.0)
    assert ledger.forget("a") == [A]
    assert (ledger.unbegun, ledger.is_named(A), len(ledger)) == ({}, False, 0)
