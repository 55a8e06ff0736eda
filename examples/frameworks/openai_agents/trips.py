"""An agent of the OpenAI Agents SDK, which asks its model by the Responses API."""

from agents import Agent, Runner, function_tool
from cadre_program import tools


@function_tool
def lookup(item: str) -> str:
    """Look a trip up."""
    return f"{item}: known"


async def main(task: str) -> str:
    agent = Agent(name="trips", instructions="Book trips.", model="m", tools=[lookup, *tools.openai_agents()])
    return str((await Runner.run(agent, task)).final_output)
