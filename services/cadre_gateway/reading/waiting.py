"""What a run waits for that nobody serves at the moment."""

from collections.abc import Iterable

from cadre.journal.run import Phase, Run
from cadre.protocol.cards import Presence
from cadre.protocol.memory import MEMORY_TOOLS, RECALL
from cadre.protocol.rollout import Rollout
from cadre.spec.kinds import declaration_of


class LiveNames:
    """Names of the agents with their revisions, tools and sandbox pools that some live service offers."""

    def __init__(self, presences: Iterable[Presence], rollouts: Iterable[Rollout] = ()) -> None:
        self.agents: set[str] = set()
        self._revisions: set[tuple[str, str]] = set()
        self._rollouts = {rollout.agent: rollout for rollout in rollouts}
        self.tools: set[str] = set()
        self.pools: set[str] = set()
        for presence in presences:
            if presence.agent is not None:
                self.agents.add(presence.agent.name)
                self._revisions.add((presence.agent.name, presence.revision))
            if presence.tool is not None:
                self.tools.add(presence.tool.name)
            if presence.sandbox is not None:
                self.pools.add(presence.sandbox.pool)

    def has_revision(self, agent: str, revision: str) -> bool:
        """Whether some replica goes on with runs of that revision: any does, unless revisions share them."""
        owner = self._rollouts[agent].owner(revision) if revision and agent in self._rollouts else None
        return owner is None or (agent, owner.revision) in self._revisions

    def awaited_revisions(self, agent: str) -> list[str]:
        """Those of which one is to begin the agent's new runs, while none of them has a replica."""
        live = {revision for name, revision in self._revisions if name == agent}
        shares = self._rollouts[agent].candidates(live) if agent in self._rollouts else []
        return [share.revision for share in shares if share.revision not in live]


def missing_service(agent: str, run: Run | None, live: LiveNames) -> str | None:
    """`agent NAME`, `revision REV of agent NAME`, `tool NAME`, `sandbox POOL` or `memory`, when the run waits for it
    and nobody serves it; else None.

    `run` is None for one that its agent has not taken up yet; a run that has ended waits for nothing.
    """
    if run is not None and run.phase is Phase.DONE:
        return None
    if agent not in live.agents:
        return f"agent {agent}"
    if run is None:
        awaited = live.awaited_revisions(agent)
        return f"revision {' or '.join(awaited)} of agent {agent}" if awaited else None
    if not live.has_revision(agent, run.revision):
        return f"revision {run.revision} of agent {agent}"
    if run.recalling is not None and RECALL not in live.tools:
        return "memory"
    sent = [call for call in run.open_calls() if call.opened and call.hold is None]
    for call in sent:
        if call.kind == "member" and call.name not in live.agents:
            return f"agent {call.name}"
        if call.kind == "tool" and call.name not in live.tools:
            return "memory" if call.name in MEMORY_TOOLS else f"tool {call.name}"
    if run.phase is Phase.ACTING and run.spec is not None and not run.open_calls():
        pools = declaration_of(run.decided_by).needs(run.spec).pools
        return next((f"sandbox {pool}" for pool in pools if pool not in live.pools), None)
    return None
