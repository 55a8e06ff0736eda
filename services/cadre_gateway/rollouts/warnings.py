"""What is to be said of a rollout that does not go as it should: pure."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from cadre.protocol.rollout import Rollout, Share


def warnings_of(
    rollout: Rollout,
    live: Collection[str],
    open_runs: Mapping[str, int] | None,
    waiting: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """A line for everything that keeps runs waiting, or is not what the weights say, with the way out. `open_runs` are
    those of each revision, None while that is not known; `waiting` the messages of each slot, where they were
    counted."""
    return list(_lines(rollout, live, open_runs, waiting)) if rollout.shares else []


def _lines(
    rollout: Rollout, live: Collection[str], open_runs: Mapping[str, int] | None, waiting: Mapping[int, int]
) -> Iterator[str]:
    agent = rollout.agent
    weighted = [share for share in rollout.shares if share.weight]
    away = [share for share in weighted if share.revision not in live]
    if away and away == weighted:
        names = " or ".join(share.revision for share in away)
        yield f"new runs of {agent} wait for a live replica of revision {names}"
    else:
        for share in away:
            yield f"revision {share.revision} of {agent} has no live replica: the others get its new runs"
    if open_runs is None:
        yield (
            f"how many runs of each revision of {agent} go on is not known while the gateway has no index of runs"
            " (`cadre index show`): none is taken for drained"
        )
    for share in rollout.shares:
        # Of the messages some may be tasks of runs that nobody has begun, and no other revision takes.
        counts = {"run": (open_runs or {}).get(share.revision, 0), "message": waiting.get(share.slot, 0)}
        if any(counts.values()) and not is_served(rollout, share, live):
            what = " and ".join(f"{many} {one}{'s' * (many > 1)}" for one, many in counts.items() if many)
            wait = "waits" if sum(counts.values()) == 1 else "wait"
            yield (
                f"{what} {wait} for revision {share.revision} of {agent}, which has no live replica: start it again"
                f" from its files, or `cadre rollout {agent} --adopt {share.revision} --by REV`"
            )
    for revision in sorted(set(live) - {share.revision for share in rollout.shares}):
        remedy = f"`cadre rollout {agent} --to {revision} --weight N`"
        if open_runs is not None and not open_runs.get(revision):
            remedy += ", or stop it: none of its runs goes on"
        yield f"revision {revision} of {agent} is live and gets no runs: {remedy}"


def is_served(rollout: Rollout, share: Share, live: Collection[str]) -> bool:
    """Whether somebody goes on with the runs of a revision."""
    owner = rollout.owner(share.revision)
    return owner is None or owner.revision in live
