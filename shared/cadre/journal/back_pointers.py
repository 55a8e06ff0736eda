"""Back-pointers: each entry names earlier entries of its run, so that a reader who has the last one finds all.

The pointers lie in levels, like the digits of a number. Level 0 holds the sequences of the entries since the last full
block of FAN. When a level is full, only its last entry moves up one level: that entry names all others of its block. So
an entry names fewer than FAN entries of each level, whatever the length of the run, and a reader needs one round of
reads for each level: one up to FAN entries, two up to FAN ** 2.

They are stored as text: URL-safe Base64 without padding of the differences between the sequences in ascending order,
each in LEB128 (seven bits to a byte, the lowest first).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

FAN = 32
"""Entries of a block, and blocks of a block of blocks."""

_BITS = 7
_MORE = 1 << _BITS


class BackPointers:
    """The sequences that the next entry of a run names."""

    def __init__(self) -> None:
        self._levels: list[list[int]] = []

    def note(self, seq: int) -> None:
        """Take in the sequence of the run's next entry: larger than those before."""
        for level in self._levels:
            level.append(seq)
            if len(level) < FAN:
                return
            level.clear()
        self._levels.append([seq])

    def sequences(self) -> list[int]:
        """Return them in ascending order."""
        return [seq for level in reversed(self._levels) for seq in level]

    def packed(self) -> str:
        """Return them as an entry stores them."""
        data, before = bytearray(), 0
        for seq in self.sequences():
            left, before = seq - before, seq
            while left >= _MORE:
                data.append(left % _MORE | _MORE)
                left >>= _BITS
            data.append(left)
        return urlsafe_b64encode(data).rstrip(b"=").decode()


def positions(n: int) -> list[int]:
    """Return the positions of the entries that the entry at position `n` of its run names, in the order of their
    sequences."""
    count, block, levels = n - 1, 1, []
    while block <= count:
        full = count - count % (block * FAN)
        levels.append(range(full + block, count + 1, block))
        block *= FAN
    return [position for level in reversed(levels) for position in level]


def unpacked(text: str) -> list[int]:
    """Return the sequences that `BackPointers.packed` has stored, in ascending order. Raises ValueError for a text
    that was cut off."""
    found: list[int] = []
    before = shift = number = 0
    for byte in urlsafe_b64decode(text + "=" * (-len(text) % 4)):
        number |= (byte % _MORE) << shift
        shift += _BITS
        if byte < _MORE:
            before += number
            found.append(before)
            shift = number = 0
    if shift:
        raise ValueError("back-pointers end within a number")
    return found
