"""A journal read from its last entry along the back-pointers."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from cadre.ports import Stored


async def whole_journal(
    last: Stored, read: Callable[[Sequence[int]], Awaitable[Iterable[Stored]]]
) -> list[Stored]:
    """Return all entries of a run up to its `last`, in ascending order.

    `read` returns the entries at the given sequences. It is called once for each level of back-pointers, since the
    entries of one level name those of the level below: once up to FAN entries, twice up to FAN ** 2.
    """
    found = {last.seq: last}
    latest: Iterable[Stored] = [last]
    while missing := sorted({seq for one in latest for seq in one.entry.earlier} - found.keys()):
        latest = await read(missing)
        found |= {one.seq: one for one in latest}
    return [found[seq] for seq in sorted(found)]
