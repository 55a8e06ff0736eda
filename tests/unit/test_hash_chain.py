"""The hash chain of a journal finds each changed, missing, repeated or reordered entry."""

import re
from collections.abc import Callable, Iterable

import msgspec
import pytest

from cadre.delivery.codec import decode
from cadre.delivery.hash_chain import ChainCheck, moved, seal
from cadre.journal.entry import Entry
from unit.loop.build import ANSWER, SimulatedRun, call, result


def sealed() -> list[bytes]:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(), 3))
    sim.say(ANSWER)
    journal, before = [], ""
    for entry in sim.journal():
        data, before = seal(entry, before)
        journal.append(data)
    return journal


def checked(journal: Iterable[bytes]) -> ChainCheck:
    check = ChainCheck()
    for data in journal:
        check.take(data)
    return check


def places(journal: list[bytes]) -> list[int]:
    return [broken.n for broken in checked(journal).broken]


def test_a_journal_holds_as_it_was_written() -> None:
    chain = checked(sealed())
    assert (chain.entries, chain.broken) == (4, [])
    assert all(decode(data, Entry).hash for data in sealed())


def test_runs_side_by_side_are_checked_each_by_itself() -> None:
    journal, before = [], ""
    for entry in SimulatedRun().begin().journal():
        data, before = seal(msgspec.structs.replace(entry, run="r1_1_0"), before)
        journal.append(data)
    own = sealed()
    check = checked([own[0], *journal, *own[1:]])
    assert (check.runs, check.entries, check.broken) == (2, len(own) + len(journal), [])
    alone = ChainCheck()
    for data in [own[0], *journal, *own[1:]]:
        alone.take(data, lambda run: run == "r1")
    assert (alone.runs, alone.entries) == (1, len(own))


def test_new_places_in_another_stream_change_nothing() -> None:
    assert places([moved(data, "RgE") for data in sealed()]) == []


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("change", [rb'"at":100.0', rb'"run":"r1"', rb'"agent":"'])
def test_a_changed_entry_is_found(n: int, change: bytes) -> None:
    journal = sealed()
    assert change in journal[n - 1]
    journal[n - 1] = journal[n - 1].replace(change, change.replace(b"1", b"2").replace(b"agent", b"agency"), 1)
    assert n in places(journal)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda journal: journal[1:], [2]),
        (lambda journal: [*journal[:1], *journal[2:]], [3]),
        (lambda journal: [journal[0], journal[2], journal[1], journal[3]], [2, 3, 4]),
        (lambda journal: [*journal[:2], journal[1], *journal[2:]], [2]),
        (
            lambda journal: [journal[0], journal[1].replace(b'"hash":"', b'"hash":"0', 1), *journal[2:]],
            [2, 3],
        ),
        (
            lambda journal: [journal[0], re.sub(rb'"hash":"[\w-]*"', b'"hash":""', journal[1]), *journal[2:]],
            [2, 3],
        ),
    ],
    ids=["first missing", "missing", "reordered", "repeated", "other hash", "no hash"],
)
def test_entries_out_of_place_are_found(change: Callable[[list[bytes]], list[bytes]], shown: list[int]) -> None:
    assert sorted(set(places(change(sealed())))) == shown
