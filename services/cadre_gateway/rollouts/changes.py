"""Apply a change to a rollout, and warn of a rollout that does not go as it should. Pure."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from cadre.api.directory import RolloutChange
from cadre.protocol.rollout import SLOTS, Rollout, Share

WHOLE = 100


class RefusedChange(Exception):
    """The rollout cannot be changed so; the text says what to do."""


def changed(rollout: Rollout, change: RolloutChange, live: Collection[str]) -> Rollout:
    """Return the rollout after the change; `live` are the revisions that have a live replica, the oldest first. Raises
    RefusedChange."""
    asked = [change.to is not None, change.rollback, change.adopt is not None, change.end]
    if sum(asked) != 1:
        raise RefusedChange("say one thing: `to` with `weight`, `rollback`, `adopt` with `by`, or `end`")
    if change.to is not None:
        if change.weight is None:
            raise RefusedChange(f"say the `weight` of {change.to!r} too: its share in a hundred new runs")
        known = _begun(rollout, live)
        to = _meant(change.to, known, live)
        rest = _meant(change.rest, known, live) if change.rest is not None else None
        return _weighted(known, to, change.weight, rest, live)
    if not rollout.shares:
        raise RefusedChange(f"{rollout.agent} has no rollout: `cadre rollout {rollout.agent} --to REV` begins one")
    if change.rollback:
        return _rolled_back(rollout, live)
    if change.adopt is not None:
        return _adopted(rollout, change.adopt, change.by, live)
    return _ended(rollout, live)


def _begun(rollout: Rollout, live: Collection[str]) -> Rollout:
    """With a share of every live revision: their runs are to stay with them."""
    for revision in live:
        if not rollout.shares or rollout.share_of(revision) is None:
            rollout = _with(rollout, revision) if _has_room(rollout) else rollout
    return rollout


def _has_room(rollout: Rollout) -> bool:
    return len(rollout.shares) < SLOTS


def _with(rollout: Rollout, revision: str) -> Rollout:
    taken = {share.slot for share in rollout.shares}
    slot = next((one for one in range(1, SLOTS + 1) if one not in taken), None)
    if slot is None:
        names = ", ".join(share.revision for share in rollout.shares)
        raise RefusedChange(
            f"{rollout.agent} has {SLOTS} revisions in its rollout already ({names}), and no more have room: one"
            " without weight leaves it some seconds after its last run has ended"
        )
    share = Share(revision=revision, slot=slot, state="opening")
    return replace(rollout, shares=[*rollout.shares, share])


def _meant(named: str, rollout: Rollout, live: Collection[str]) -> str:
    """Return the revision with this prefix."""
    known = dict.fromkeys([*(share.revision for share in rollout.shares), *live])
    found = [one for one in known if one == named] or [one for one in known if named and one.startswith(named)]
    if len(found) == 1:
        return found[0]
    what = "begins several revisions" if found else "is no revision"
    raise RefusedChange(
        f"{named!r} {what} of {rollout.agent}: there are {', '.join(known) or 'none; start its service first'}"
    )


def _weighted(rollout: Rollout, to: str, weight: int, rest: str | None, live: Collection[str]) -> Rollout:
    if not 0 <= weight <= WHOLE:
        raise RefusedChange(f"weight must be from 0 to {WHOLE}: it is a share in a hundred new runs")
    if rest == to:
        raise RefusedChange("rest must be another revision than to")
    for revision in (to, rest):
        if revision is not None and rollout.share_of(revision) is None:
            rollout = _with(rollout, revision)
    for revision, its in ((to, weight), (rest, WHOLE - weight)):
        if revision is not None and its > 0 and revision not in live:
            raise RefusedChange(f"revision {revision} has no live replica: start one first")
    for share in rollout.shares:
        if share.state == "closing" and share.revision in (to, rest):
            raise RefusedChange(f"the queue of revision {share.revision} is being removed: try again in some seconds")
    weights = _shared(rollout, to, weight, rest, live)
    shares = [
        replace(
            share,
            weight=weights.get(share.revision, 0),
            adopted_by="" if weights.get(share.revision) else share.adopted_by,
        )
        for share in rollout.shares
    ]
    return replace(rollout, shares=shares)


def _shared(rollout: Rollout, to: str, weight: int, rest: str | None, live: Collection[str]) -> dict[str, int]:
    """Return the weights, together a hundred: the others share what is left as they shared before."""
    left = WHOLE - weight
    others = [share for share in rollout.shares if share.revision != to and share.state != "closing"]
    if rest is not None or not left:
        return {to: weight, **({rest: left} if rest is not None else {})}
    sum_before = sum(share.weight for share in others)
    if sum_before:
        weights = {share.revision: left * share.weight // sum_before for share in others}
        weights[max(others, key=lambda share: share.weight).revision] += left - sum(weights.values())
        return {to: weight, **weights}
    candidates = [share.revision for share in others if share.revision in live and not share.adopted_by]
    if len(candidates) != 1:
        names = ", ".join(candidates) or "no other live one"
        raise RefusedChange(f"name the revision that gets the other {left} with `rest`: there is {names}")
    return {to: weight, candidates[0]: left}


def _rolled_back(rollout: Rollout, live: Collection[str]) -> Rollout:
    """Without new runs for the youngest revision that gets any: one that never got any is nothing to go back from."""
    shares = [share for share in rollout.shares if share.state != "closing" and not share.adopted_by]
    youngest = max((place for place, share in enumerate(shares) if share.weight), default=0)
    if not youngest:
        raise RefusedChange(
            f"{rollout.agent} has no older revision to go back to: start replicas with the files of then, and"
            f" `cadre rollout {rollout.agent} --to REV --weight {WHOLE}`"
        )
    others_have = any(share.weight for share in shares[:youngest])
    rest = None if others_have else shares[youngest - 1].revision
    return _weighted(rollout, shares[youngest].revision, 0, rest, live)


def _adopted(rollout: Rollout, adopt: str, by: str | None, live: Collection[str]) -> Rollout:
    if by is None:
        raise RefusedChange("say by which revision: `by`")
    whose, taker = _meant(adopt, rollout, live), _meant(by, rollout, live)
    share, taking = rollout.share_of(whose), rollout.share_of(taker)
    if share is None or taking is None:
        raise RefusedChange(f"{whose if share is None else taker} has no part in the rollout: give it one with `to`")
    if taking.state == "closing" or (taking.adopted_by and whose != taker):
        raise RefusedChange(f"revision {taker} takes no runs itself any more")
    if taker not in live:
        raise RefusedChange(f"revision {taker} has no live replica: start one first")
    if share.weight and whose != taker:
        raise RefusedChange(f"revision {whose} gets new runs: give its weight to another one first")
    return replace(
        rollout,
        shares=[
            replace(one, adopted_by="" if whose == taker else taker) if one.revision == whose else one
            for one in rollout.shares
        ],
    )


def _ended(rollout: Rollout, live: Collection[str]) -> Rollout:
    if len(rollout.shares) > 1:
        names = ", ".join(share.revision for share in rollout.shares)
        raise RefusedChange(
            f"{rollout.agent} has several revisions in its rollout ({names}): the rollout ends when one is left, and"
            " one without weight leaves it some seconds after its last run has ended"
        )
    if others := sorted({*live} - {share.revision for share in rollout.shares}):
        raise RefusedChange(
            f"revision {', '.join(others)} of {rollout.agent} is live as well, and would get new runs again: stop its"
            " replicas first"
        )
    return replace(rollout, shares=[replace(share, state="closing") for share in rollout.shares])


def warnings_of(
    rollout: Rollout,
    live: Collection[str],
    open_runs: Mapping[str, int] | None,
    waiting: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """Return a line for everything that keeps runs waiting, or is not what the weights say, with the way out.
    `open_runs` are those of each revision, None while that is not known; `waiting` the messages of each slot, where
    they were counted."""
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
        # Of the messages some may be tasks of runs that have not begun, and that no other revision takes.
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
    """Return whether a service goes on with the runs of a revision."""
    owner = rollout.owner(share.revision)
    return owner is None or owner.revision in live
