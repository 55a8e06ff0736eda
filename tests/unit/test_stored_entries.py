"""Entries as they lie in a stream: short, and read back as they were; their back-pointers lead to all before them."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.delivery.codec import decode, encode
from cadre.delivery.hash_chain import moved, seal, whole_journal
from cadre.journal.entry import FAN, BackPointers, Entry, positions, unpacked
from cadre.journal.events import MessageReceived
from cadre.ports import Stored
from unit.loop.build import ANSWER, SimulatedRun, call, result

RUN = "0123456789abcdef0123456789abcdef"
TEXTS = ["~", "~~", "~_1_0", f"{RUN}~", RUN, f"{RUN}_1_0", f"{RUN}:task", f'"{RUN}_1_0"', '":"~_1_0"', "\\~"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    event = MessageReceived(text=text, sender=text)
    entry = Entry(run=RUN, agent="a", n=1, cause=f"{RUN}:m1", at=1.0, events=[event])
    assert decode(encode(entry), Entry) == entry
    assert encode(entry).count(RUN.encode()) == 1 + (f'"{RUN}' in text) * 2 + (text == f"{RUN}~") * 2


@given(st.text(alphabet='~_:"\\,[{x' + RUN[0]), st.text(alphabet="~_:x"))
def test_whatever_begins_a_text_comes_back(text: str, end: str) -> None:
    for one in (text, RUN + end):
        event = MessageReceived(text=one, sender=one)
        entry = Entry(run=RUN, agent="a", n=1, cause=one, at=1.0, events=[event])
        assert decode(encode(entry), Entry) == entry or not one


def test_what_follows_from_the_rest_is_not_stored() -> None:
    sim = SimulatedRun(run=RUN).begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(), 3))
    sim.say(ANSWER)
    for entry in sim.journal():
        fields = msgspec.json.decode(encode(entry))
        assert fields.keys() <= {"type", "v", "run", "agent", "n", "at", "events"}
        assert all("cause" not in event for event in fields["events"])
        assert decode(encode(entry), Entry) == entry


def test_an_entry_moves_to_another_stream_with_its_hash() -> None:
    entry = SimulatedRun().begin().journal()[0]
    sealed = seal(msgspec.structs.replace(entry, prev="Ag"), "before")
    there: Entry = decode(moved(sealed.data, "RgE"), Entry)
    assert (there.earlier, there.hash) == ([70, 71], sealed.hash)
    assert decode(moved(sealed.data, ""), Entry).earlier == []


@given(st.lists(st.integers(1, 2**40), unique=True, max_size=200))
def test_the_pointers_of_the_last_entry_lead_to_all_before_it(seqs: list[int]) -> None:
    seqs.sort()
    pointers, journal = BackPointers(), dict[int, Stored]()
    for n, seq in enumerate(seqs, 1):
        assert unpacked(pointers.packed()) == pointers.sequences()
        entry = Entry(run="r", agent="a", n=n, cause="c", at=0.0, events=[], prev=pointers.packed())
        journal[seq] = Stored(seq, entry)
        pointers.note(seq)
    if not seqs:
        return
    rounds = 0

    async def read(wanted: object) -> list[Stored]:
        nonlocal rounds
        rounds += 1
        return [journal[seq] for seq in wanted]  # type: ignore[attr-defined]

    found = asyncio.run(whole_journal(journal[seqs[-1]], read))
    assert [one.entry.n for one in found] == list(range(1, len(seqs) + 1))
    assert rounds == (0 if len(seqs) == 1 else 1 if len(seqs) <= FAN else 2)


@pytest.mark.parametrize("text", ["gA", "x"])
def test_pointers_that_were_not_packed_here_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(text)


@pytest.mark.parametrize("last", [1, FAN - 1, FAN, FAN + 1, FAN**2, FAN**2 + 5, FAN**3 + 2 * FAN**2 + 3])
def test_the_positions_that_an_entry_names_follow_from_its_own(last: int) -> None:
    pointers = BackPointers()
    for n in range(1, last + 1):
        if n == last or n < FAN * 3:
            assert positions(n) == pointers.sequences()
        pointers.note(n)
