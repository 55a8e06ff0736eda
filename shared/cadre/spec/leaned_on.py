"""What an agent leans on beside its tools and its team, as far as its spec tells."""

from typing import NamedTuple

from cadre.protocol.code import INTERPRETER_TOOL
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.spec.agent import AgentSpec, MemorySpec
from cadre.spec.kinds import declaration_of


class LeanedOn(NamedTuple):
    """The services that an agent leans on."""

    pools: tuple[str, ...]
    """Sandbox pools that run code for it."""
    isolation: bool
    """The agent itself writes code: where no code can be run it can do nothing."""
    memory: bool
    """It keeps something beyond its runs."""


def leaned_on(spec: AgentSpec) -> LeanedOn:
    """The services that an agent of this spec leans on. Raises SpecError for a kind that is not installed."""
    own = declaration_of(spec.kind).needs(spec).pools
    pools = [*_interpreter_pools(spec), *own]
    memory = spec.memory != MemorySpec() or not set(MEMORY_TOOLS).isdisjoint(spec.tools)
    return LeanedOn(tuple(pools), bool(own), memory)


def _interpreter_pools(spec: AgentSpec) -> list[str]:
    """Pools whose interpreter the agent calls as a tool: `python_interpreter`, or `python_interpreter_POOL`."""
    called = [tool.removeprefix(INTERPRETER_TOOL) for tool in spec.tools if tool.startswith(INTERPRETER_TOOL)]
    return ["default" if not rest else rest[1:] for rest in called if not rest or rest[0] == "_"]
