"""What is to be said of a rollout that does not go as it should: pure."""

from collections.abc import Collection, Iterator, Mapping

from cadre.protocol.rollout import Rollout, Share


def warnings_of(rollout: Rollout, live: Collection[str], open_runs: Mapping[str, int]) -> list[str]:
    """A line for everything that keeps runs waiting, or is not what the weights say, with the way out."""
    return list(_lines(rollout, live, open_runs)) if rollout.shares else []


def _lines(rollout: Rollout, live: Collection[str], open_runs: Mapping[str, int]) -> Iterator[str]:
    agent = rollout.agent
    weighted = [share for share in rollout.shares if share.weight]
    away = [share for share in weighted if share.revision not in live]
    for share in away:
        what = "all new runs wait for it" if len(away) == len(weighted) else "the others get its new runs"
        yield f"revision {share.revision} of {agent} has no live replica: {what}"
    for share in rollout.shares:
        if (many := open_runs.get(share.revision, 0)) and not is_served(rollout, share, live):
            yield (
                f"{many} runs of revision {share.revision} of {agent} wait, for it has no live replica: start it again"
                f" from its files, or `cadre rollout {agent} --adopt {share.revision} --by REV`"
            )
    for revision in sorted(set(live) - {share.revision for share in rollout.shares}):
        remedy = f"`cadre rollout {agent} --to {revision} --weight N`"
        if not open_runs.get(revision):
            remedy += ", or stop it: none of its runs goes on"
        yield f"revision {revision} of {agent} is live and gets no runs: {remedy}"


def is_served(rollout: Rollout, share: Share, live: Collection[str]) -> bool:
    """Whether somebody goes on with the runs of a revision."""
    owner = rollout.owner(share.revision)
    return owner is None or owner.revision in live
