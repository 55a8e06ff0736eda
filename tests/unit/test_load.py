"""Tests of what a gateway says of how much there is to do."""

import msgspec

from cadre.journal.entry import Entry
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.routes.directory import MOST_RUNS, load_of
from unit.inline_index import index_of
from unit.journal_entries import FINISHED, accepted, entry


def run(number: int, agent: str, seconds: float | None) -> list[Entry]:
    """A run that began at `number`."""
    name = f"r{number}"
    begun = msgspec.structs.replace(entry(name, 1, float(number), accepted(name)), agent=agent)
    if seconds is None:
        return [begun]
    return [begun, msgspec.structs.replace(entry(name, 2, number + seconds, FINISHED), agent=agent)]


def lag(kind: str, name: str, shard: int, count: int) -> Sample:
    labels = {names.QUEUE_KIND: kind, names.QUEUE_NAME: name, names.SHARD: str(shard)}
    return Sample(names.QUEUE_LAG, count, labels)


async def test_queues_are_summed_over_shards_and_only_the_last_runs_count() -> None:
    old = [run(number, "clerk", 40.0) for number in range(50)]
    last = [run(1000 + number, "clerk", number + 1.0) for number in range(MOST_RUNS)]
    runs = [*old, *last, run(900, "clerk", None), run(901, "chief", None)]
    index = await index_of(one for entries in runs for one in entries)
    load = await load_of(index, [lag("agent", "clerk", 0, 2), lag("agent", "clerk", 1, 3), lag("tool", "pay", 0, 0)])
    chief, clerk = load.agents
    assert (chief.name, chief.going, chief.p50_seconds, chief.counted) == ("chief", 1, None, 0)
    assert (clerk.going, clerk.p50_seconds, clerk.p95_seconds) == (1, MOST_RUNS / 2, MOST_RUNS * 0.95)
    assert [(one.kind, one.name, one.messages) for one in load.queues] == [
        ("agent", "clerk", 5),
        ("tool", "pay", 0),
    ]
