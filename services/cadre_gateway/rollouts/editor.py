"""Shows and changes rollouts."""

from collections.abc import Collection, Container, Mapping

from msgspec.structs import replace

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.rollouts import NatsRollouts, NatsSlots
from cadre.api.directory import RevisionView, RolloutChange, RolloutView
from cadre.engine.offer import offered_cards
from cadre.errors import Fenced
from cadre.ports import Clock
from cadre.protocol.rollout import SLOTS, Rollout, Share
from cadre.service.revision import live_revisions, schemas_of
from cadre_gateway.index.figures import known_open_runs_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.rollouts.keeper import RolloutKeeper, renewed
from cadre_gateway.rollouts.warnings import warnings_of


class RolloutEditor:
    """The rollouts of a deployment, for people."""

    def __init__(
        self,
        rollouts: NatsRollouts,
        slots: NatsSlots,
        registry: NatsRegistry,
        index: RunIndex,
        clock: Clock,
        keeper: RolloutKeeper,
    ) -> None:
        self._rollouts = rollouts
        self._slots = slots
        self._registry = registry
        self._index = index
        self._clock = clock
        self._keeper = keeper

    async def show(self, agent: str) -> RolloutView:
        """The rollout, and the revisions beside it. Raises RetryableError, a 404 Problem."""
        rollout = (await self._rollouts.read(agent)).rollout
        open_runs = await known_open_runs_of(self._index, agent)
        live = self._live(agent)
        if not rollout.version and not open_runs and not self._is_known(agent):
            raise Problem(
                404, "unknown-agent", f"no live agent is named {agent!r}, and no run of it is known to go on"
            )
        waiting = await self._slots.waiting(agent) if rollout.shares else {}
        counts = {slot: sum(many) for slot, many in waiting.items()}
        view = _view(rollout, live, open_runs, counts, self._schemas(agent))
        if not live and not rollout.shares and self._is_known(agent):
            view.warnings.append(
                f"{agent} is at rest: a revision is known, and can be given a weight, once it has a replica: start one"
            )
        return view

    async def lag(self, agent: str, beside: str) -> int:
        """The messages that are for the revisions whose objects are called so. Raises BusUnavailable."""
        lags = {slot: sum(many) for slot, many in (await self._slots.lags(agent)).items()}
        return lag_beside(self._registry.rollout(agent), lags, self._live(agent), beside)

    async def change(self, agent: str, change: RolloutChange) -> RolloutView:
        """Changes the rollout. Raises RetryableError, and 404, 409 and 422 Problems."""
        live = self._live(agent)
        while True:
            stored = await self._rollouts.read(agent)
            rollout = stored.rollout
            if not rollout.version and not self._is_known(agent):
                raise Problem(
                    404, "unknown-agent", f"no live agent is named {agent!r}: start its service first"
                )
            if change.version not in (None, rollout.version):
                raise _stale(rollout)
            try:
                following = changed(rollout, change, live.keys())
            except RefusedChange as refused:
                raise invalid(str(refused)) from refused
            try:
                await self._rollouts.write(renewed(following, rollout, self._clock.now()), stored.fence)
                break
            except Fenced:
                continue
        await self._keeper.settle(agent)
        return await self.show(agent)

    def _is_known(self, agent: str) -> bool:
        """Whether it is live or at rest."""
        return card_of(self._registry.reachable(), agent) is not None

    def _live(self, agent: str) -> dict[str, int]:
        return live_revisions(self._registry.presences(), agent)

    def _schemas(self, agent: str) -> dict[str, str]:
        """Of each live revision the digest of what its tools say of themselves at the moment."""
        presences = self._registry.presences()
        cards = offered_cards(presences)
        return {
            one.revision: schemas_of(cards, one.agent.tools)
            for one in presences
            if one.agent is not None and one.agent.name == agent
        }


def _stale(rollout: Rollout) -> Problem:
    shares = ", ".join(f"{share.revision} {share.weight}" for share in rollout.shares) or "none"
    return Problem(
        409,
        "stale-version",
        f"somebody has changed the rollout of {rollout.agent} meanwhile (version {rollout.version}: {shares}): look at"
        " it, then decide anew",
        version=rollout.version,
    )


def _view(
    rollout: Rollout,
    live: Mapping[str, int],
    open_runs: Mapping[str, int] | None,
    waiting: Mapping[int, int],
    schemas: Mapping[str, str],
) -> RolloutView:
    def going(revision: str) -> int | None:
        return None if open_runs is None else open_runs.get(revision, 0)

    shared = [
        RevisionView(
            revision=share.revision,
            weight=share.weight,
            state=share.state,
            replicas=live.get(share.revision, 0),
            open_runs=going(share.revision),
            waiting=waiting.get(share.slot, 0),
            adopted_by=share.adopted_by,
            schemas=schemas.get(share.revision, ""),
        )
        for share in rollout.shares
    ]
    known = {one.revision for one in shared}
    others = [
        RevisionView(
            revision=revision,
            weight=None,
            state="live",
            replicas=live.get(revision, 0),
            open_runs=going(revision),
            waiting=0,
            schemas=schemas.get(revision, ""),
        )
        for revision in sorted({*live, *(open_runs or ())} - known)
    ]
    return RolloutView(
        agent=rollout.agent,
        version=rollout.version,
        active=bool(shared),
        revisions=[*shared, *others],
        warnings=warnings_of(rollout, live.keys(), open_runs, waiting),
    )


def lag_beside(rollout: Rollout | None, lags: Mapping[int, int], live: Container[str], beside: str) -> int:
    """Messages, waiting or in hand, for the revisions whose objects are called so; empty for the first's.

    `lags` are those of each slot, 0 for the agent's own queue. What lies there, everybody takes: each revision is given
    as much of it as it gets of the new runs. Without a rollout it is anybody's.
    """
    through = lags.get(0, 0)
    if rollout is None or not rollout.shares:
        return through
    own = sum(lags.get(one.slot, 0) for one in rollout.shares if rollout.taker(one).beside == beside)
    candidates = rollout.candidates(live)
    if not candidates:
        return own + (0 if beside else through)
    of_all = sum(one.weight for one in candidates)
    here = sum(one.weight for one in candidates if one.beside == beside)
    return own - (-through * here // of_all)


WHOLE = 100


class RefusedChange(Exception):
    """The rollout cannot be changed so; the text says what to do."""


def changed(rollout: Rollout, change: RolloutChange, live: Collection[str]) -> Rollout:
    """The rollout after the change; `live` are the revisions that have a live replica, the oldest first. Raises
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
        raise RefusedChange(
            f"{rollout.agent} has no rollout: `cadre rollout {rollout.agent} --to REV` begins one"
        )
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
    """The revision that begins so."""
    known = dict.fromkeys([*(share.revision for share in rollout.shares), *live])
    found = [one for one in known if one == named] or [
        one for one in known if named and one.startswith(named)
    ]
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
            raise RefusedChange(
                f"the queue of revision {share.revision} is being removed: try again in some seconds"
            )
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


def _shared(
    rollout: Rollout, to: str, weight: int, rest: str | None, live: Collection[str]
) -> dict[str, int]:
    """The weights, together a hundred: the others share what is left as they shared before."""
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
        raise RefusedChange(
            f"{whose if share is None else taker} has no part in the rollout: give it one with `to`"
        )
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
