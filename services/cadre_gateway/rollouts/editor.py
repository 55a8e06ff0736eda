"""Show and change rollouts, with the pending work of each revision; refuse what cannot work between revisions and
their team."""

from collections.abc import Container, Iterable, Mapping

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.rollouts import NatsRollouts, NatsSlots
from cadre.api.directory import RevisionView, RolloutChange, RolloutView
from cadre.engine.contract import contract_problems
from cadre.engine.toolset import offered_cards
from cadre.errors import Fenced
from cadre.ports import Clock
from cadre.protocol.cards import Presence
from cadre.protocol.rollout import Rollout
from cadre.service.revision import live_revisions, schemas_of
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TeamReach
from cadre_gateway.index.lists import known_open_runs_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading.directory import LiveContracts, card_of
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.rollouts.changes import RefusedChange, changed, warnings_of
from cadre_gateway.rollouts.keeper import RolloutKeeper, renewed


class RevisionContracts:
    """Holds each live revision of an agent against every live agent."""

    def __init__(self, registry: NatsRegistry, contracts: LiveContracts) -> None:
        self.registry = registry
        self._contracts = contracts

    async def problems(self, agent: str) -> dict[str, list[ContractProblem]]:
        """Return what cannot work, by live revision, as far as the specifications can be read."""
        presences = self.registry.presences()
        members = await self._contracts.specs(presences)
        others = await self._specs(one for one in presences if one.agent and one.agent.name != agent)
        tools, found = offered_cards(presences), dict[str, list[ContractProblem]]()
        for one in presences:
            if one.agent is None or one.agent.name != agent or one.revision in found:
                continue
            spec = await self._contracts.spec(one.spec) if one.spec else None
            if spec is not None:
                without = TeamReach(tools=tools, agents=_without(members, agent), is_whole=False)
                reach = TeamReach(tools=tools, agents={**members, agent: spec}, is_whole=False)
                about = contract_problems(spec, reach)
                for other in others:
                    known = contract_problems(other, without)
                    about += [problem for problem in contract_problems(other, reach) if problem not in known]
                found[one.revision] = [problem for problem in about if problem.level == "error"]
        return found

    async def _specs(self, presences: Iterable[Presence]) -> list[AgentSpec]:
        """Return the specifications of all revisions."""
        refs = dict.fromkeys(one.spec for one in presences if one.spec)
        specs = [await self._contracts.spec(ref) for ref in refs]
        return [spec for spec in specs if spec is not None]


def contract_lines(agent: str, problems: Mapping[str, list[ContractProblem]]) -> list[str]:
    """Return a line for each problem of each revision."""
    return [
        f"with revision {revision} of {agent}, agent {one.agent} cannot work: {one.path}: {one.text}"
        for revision, found in sorted(problems.items())
        for one in found
    ]


def _without(members: Mapping[str, AgentSpec], agent: str) -> dict[str, AgentSpec]:
    return {name: spec for name, spec in members.items() if name != agent}


class RolloutEditor:
    """The rollouts of a deployment, for people."""

    def __init__(
        self,
        rollouts: NatsRollouts,
        slots: NatsSlots,
        index: RunIndex,
        clock: Clock,
        keeper: RolloutKeeper,
        contracts: RevisionContracts,
    ) -> None:
        self._rollouts = rollouts
        self._slots = slots
        self._registry = contracts.registry
        self._index = index
        self._clock = clock
        self._keeper = keeper
        self._contracts = contracts

    async def show(self, agent: str) -> RolloutView:
        """Return the rollout, and its revisions. Raises RetryableError, a 404 Problem."""
        rollout = (await self._rollouts.read(agent)).rollout
        open_runs = await known_open_runs_of(self._index, agent)
        live = self._live(agent)
        if not rollout.version and not open_runs and not self._is_known(agent):
            raise Problem(404, "unknown-agent", f"no live agent is named {agent!r}, and no run of it is known to go on")
        waiting = await self._slots.waiting(agent) if rollout.shares else {}
        counts = {slot: sum(many) for slot, many in waiting.items()}
        view = _view(rollout, live, open_runs, counts, self._schemas(agent))
        view.warnings += contract_lines(agent, await self._contracts.problems(agent))
        if not live and not rollout.shares and self._is_known(agent):
            view.warnings.append(
                f"{agent} is at rest: a revision is known, and can be given a weight, once it has a replica: start one"
            )
        return view

    async def lag(self, agent: str, beside: str) -> int:
        """Return the messages that are for the revisions whose objects are called so. Raises BusUnavailable."""
        lags = {slot: sum(many) for slot, many in (await self._slots.lags(agent)).items()}
        return lag_beside(self._registry.rollout(agent), lags, self._live(agent), beside)

    async def change(self, agent: str, change: RolloutChange) -> RolloutView:
        """Change the rollout. Raises RetryableError, and 404, 409 and 422 Problems: `contract-broken` where a revision
        would get new runs that cannot work, and the change does not say `anyway`."""
        live = self._live(agent)
        while True:
            stored = await self._rollouts.read(agent)
            rollout = stored.rollout
            if not rollout.version and not self._is_known(agent):
                raise Problem(404, "unknown-agent", f"no live agent is named {agent!r}: start its service first")
            if change.version not in (None, rollout.version):
                raise _stale(rollout)
            try:
                following = changed(rollout, change, live.keys())
            except RefusedChange as refused:
                raise invalid(str(refused)) from refused
            if change.to is not None and not change.anyway:
                await self._check_contracts(rollout, following)
            try:
                await self._rollouts.write(renewed(following, rollout, self._clock.now()), stored.fence)
                break
            except Fenced:
                continue
        await self._keeper.settle(agent)
        return await self.show(agent)

    async def _check_contracts(self, before: Rollout, after: Rollout) -> None:
        """Raise a 409 Problem where a revision gets new runs for the first time, and something cannot work with it
        that works with the others."""
        problems = await self._contracts.problems(after.agent)
        for share in after.shares:
            earlier = before.share_of(share.revision) if before.shares else None
            others = [found for revision, found in problems.items() if revision != share.revision]
            if not share.weight or (earlier is not None and earlier.weight) or not others:
                continue
            known = [one for found in others for one in found]
            new = [one for one in problems.get(share.revision, []) if one not in known]
            if new:
                lines = "; ".join(contract_lines(after.agent, {share.revision: new}))
                advice = "Mend one of the two sides, or say `anyway` (`cadre rollout … --anyway`)."
                raise Problem(409, "contract-broken", f"{lines}. {advice}")

    def _is_known(self, agent: str) -> bool:
        """Return whether it is live or at rest."""
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
        " it, then decide again",
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
