"""Entries that two tails read from one stream, and decode once."""

from cadre.adapters.nats.reading.tail import Decoded, Read
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.journal.entry import Entry
from cadre.ports import Stored


def read_of(seq: int) -> Read:
    return Read(0, seq, "t", Stored(seq, Entry(run="t", n=1, cause="c", at=0.0, agent="a", events=[])), set(), 0.0)


def message(seq: int, data: bytes) -> StoredMessage:
    return StoredMessage(seq, "cadre.run.0.t.t", data)


def test_an_entry_is_kept_for_the_other_tail_once() -> None:
    decoded, read = Decoded(), read_of(7)
    decoded.keep(message(7, b"as stored"), read)
    assert decoded.take(0, message(7, b"as stored")) is read
    assert decoded.take(0, message(7, b"as stored")) is None


def test_a_stream_that_was_made_again_has_entries_of_its_own() -> None:
    decoded = Decoded()
    decoded.keep(message(7, b"of the former stream"), read_of(7))
    assert decoded.take(0, message(7, b"of this stream")) is None
    assert decoded.take(1, message(7, b"of the former stream")) is None


def test_a_tail_that_is_far_ahead_keeps_few_entries_and_no_large_ones() -> None:
    decoded = Decoded(2)
    for seq in (1, 2, 3):
        decoded.keep(message(seq, b"small"), read_of(seq))
    decoded.keep(message(4, b"x" * 100_000), read_of(4))
    assert [decoded.take(0, message(seq, b"small")) is not None for seq in (1, 2, 3)] == [False, True, True]
    assert decoded.take(0, message(4, b"x" * 100_000)) is None
