"""An agent of smolagents."""

from cadre_program import tools
from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def lookup(item: str) -> str:
    """Look a trip up.

    Args:
        item: the trip.
    """
    return f"{item}: known"


def main(task: str) -> str:
    agent = ToolCallingAgent([lookup, *tools.smolagents()], OpenAIModel("m"), verbosity_level=0)
    return str(agent.run(task))
