"""What a gateway says of how much there is to do."""

from cadre.api.runs import RunSummary, State
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.run_index import RunIndex, TreeSummary
from cadre_gateway.reading.load import MOST_RUNS, load_of


def tree(number: int, agent: str, seconds: float | None) -> TreeSummary:
    ended = None if seconds is None else number + seconds
    state: State = "running" if seconds is None else "success"
    run = RunSummary(
        id=f"r{number}", tree=f"r{number}", agent=agent, state=state, started_at=number, ended_at=ended
    )
    return TreeSummary(id=run.id, at=float(number), first=number, last=number, runs={run.id: run})


def lag(kind: str, name: str, shard: int, count: int) -> Sample:
    labels = {names.QUEUE_KIND: kind, names.QUEUE_NAME: name, names.SHARD: str(shard)}
    return Sample(names.QUEUE_LAG, count, labels)


def test_queues_are_summed_over_shards_and_only_the_last_runs_count() -> None:
    old = [tree(number, "clerk", 1000.0) for number in range(50)]
    last = [tree(50 + number, "clerk", number + 1.0) for number in range(MOST_RUNS)]
    index = RunIndex([*old, *last, tree(900, "clerk", None), tree(901, "chief", None)])
    load = load_of(
        index, [lag("agent", "clerk", 0, 2), lag("agent", "clerk", 1, 3), lag("tool", "pay", 0, 0)]
    )
    chief, clerk = load.agents
    assert (chief.name, chief.going, chief.p50_seconds, chief.counted) == ("chief", 1, None, 0)
    assert (clerk.going, clerk.p50_seconds, clerk.p95_seconds) == (1, MOST_RUNS / 2, MOST_RUNS * 0.95)
    assert [(one.kind, one.name, one.messages) for one in load.queues] == [
        ("agent", "clerk", 5),
        ("tool", "pay", 0),
    ]
