"""An agent of LangGraph."""

from cadre_program import tools
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def lookup(item: str) -> str:
    """Look a trip up."""
    return f"{item}: known"


async def main(task: str) -> str:
    agent = create_react_agent(ChatOpenAI(model="m"), [lookup, *tools.langchain()], prompt="Book trips.")
    found = await agent.ainvoke({"messages": [("user", task)]})
    return str(found["messages"][-1].content)
