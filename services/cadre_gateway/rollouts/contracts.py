"""What cannot work between the revisions of an agent and the live agents and tools: its members, and the managers that
call it."""

from collections.abc import Iterable, Mapping

from cadre.adapters.nats.registry import NatsRegistry
from cadre.engine.contract import contract_problems
from cadre.engine.toolset import offered_cards
from cadre.protocol.cards import Presence
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TeamReach
from cadre_gateway.reading.directory import LiveContracts


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
