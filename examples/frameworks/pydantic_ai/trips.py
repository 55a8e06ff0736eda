"""An agent of pydantic-ai."""

from cadre_program import tools
from pydantic_ai import Agent


def lookup(item: str) -> str:
    """Look a trip up."""
    return f"{item}: known"


async def main(task: str) -> str:
    agent = Agent("openai-chat:m", instructions="Book trips.", tools=[lookup, *tools.pydantic_ai()])
    return str((await agent.run(task)).output)
