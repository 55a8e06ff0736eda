"""The tools that an agent's model may call: the live registry, narrowed to what the spec names."""

from collections.abc import Iterable

import msgspec

from cadre.journal.arrivals import Toolset
from cadre.protocol.cards import AgentCard, Presence, ToolCard, presence_order
from cadre.protocol.memory import QUERY_RESOURCES, RECALL, REMEMBER
from cadre.spec.agent import AgentSpec, Selector
from cadre.spec.names import FINAL_ANSWER
from cadre.spec.policy import is_expression


def card_of(spec: AgentSpec, prompt_tokens: int = 0) -> AgentCard:
    """The card that an agent announces itself by."""
    return AgentCard(
        name=spec.name,
        description=spec.description,
        kind=spec.kind,
        labels=spec.labels,
        version=spec.version,
        tools=spec.tools,
        team=[str(member) if isinstance(member, Selector) else member for member in spec.team],
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        policies=[policy.name for policy in spec.policies],
        prompt_tokens=prompt_tokens,
    )


def toolset_of(spec: AgentSpec, presences: Iterable[Presence]) -> Toolset:
    """Of several replicas' cards the one with the highest version (then the latest started) counts.

    A run that began with files may search them wherever a memory service is there for that, and misses nothing else.
    """
    tools: dict[str, ToolCard] = {}
    members: dict[str, AgentCard] = {}
    live: set[str] = set()
    checks = [check for check in spec.checks if not is_expression(check)]
    hidden = [*checks, *_of_memory(spec)]
    with_calls: set[str] = set()
    for presence in sorted(presences, key=presence_order):
        if presence.tool is not None and presence.tool.name in hidden:
            live.add(presence.tool.name)
            if "calls" in presence.tool.input_schema.get("properties", {}):
                with_calls.add(presence.tool.name)
        if presence.tool is not None and presence.tool.name in (*spec.tools, QUERY_RESOURCES):
            tools[presence.tool.name] = presence.tool
        if presence.agent is not None and _in_team(spec, presence.agent):
            members[presence.agent.name] = presence.agent
    search = tools.get(QUERY_RESOURCES) if QUERY_RESOURCES not in (*spec.tools, *members) else None
    # To a model all of them are functions: one name stands for one thing, and a tool was named on purpose.
    for taken in (*(name for name in spec.tools if name in tools), FINAL_ANSWER):
        members.pop(taken, None)
    named = [*spec.tools, *(member for member in spec.team if isinstance(member, str))]
    named += [name for name in hidden if name not in (*live, *named)]
    toolset = Toolset(
        tools={name: tools[name] for name in spec.tools if name in tools},
        members={name: members[name] for name in sorted(members)},
        missing=[name for name in named if name not in tools and name not in members],
        checks_with_calls=[check for check in checks if check in with_calls],
    )
    if search is None:
        return toolset
    with_files = msgspec.structs.replace(toolset, tools={**toolset.tools, QUERY_RESOURCES: search})
    return msgspec.structs.replace(toolset, with_files=with_files)


def offered_cards(presences: Iterable[Presence]) -> dict[str, ToolCard]:
    """Every live tool's card by its name: of several replicas' cards, the one offered to agents."""
    live = sorted(presences, key=presence_order)
    return {one.tool.name: one.tool for one in live if one.tool is not None}


def called_tools(spec: AgentSpec) -> list[str]:
    """Return the names of the tools that the agent's file has it call, also of those that its model is not shown."""
    checks = [check for check in spec.checks if not is_expression(check)]
    return [*dict.fromkeys([*spec.tools, *checks, *_of_memory(spec)])]


def callable_tools(spec: AgentSpec) -> list[str]:
    """Names of all tools that the agent may ever call: in a run with files also the one that searches them."""
    return [*dict.fromkeys([*called_tools(spec), QUERY_RESOURCES])]


def _of_memory(spec: AgentSpec) -> list[str]:
    """Tools that the agent calls of itself."""
    used = {RECALL: spec.memory.recall > 0, REMEMBER: spec.memory.remember != "nothing"}
    return [name for name, is_used in used.items() if is_used]


def _in_team(spec: AgentSpec, card: AgentCard) -> bool:
    """Labels select others only; an agent that may call itself says so by its name."""
    if card.name in spec.team:
        return True
    selectors = (member for member in spec.team if isinstance(member, Selector))
    return card.name != spec.name and any(s.labels.items() <= card.labels.items() for s in selectors)
