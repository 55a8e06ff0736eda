"""A run of so many steps with LangGraph: `MODEL_URL MODEL` and `stream`, where answers are to come in pieces.

Without a checkpointer: nothing of it is durable.
"""

import asyncio
import sys
import warnings

from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from bench.peers.playing import in_tasks, serve
from bench.peers.run import END, STEPS, TASK, page


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return page(number)


@tool(return_direct=True)
def final_answer(answer: str) -> str:
    """Give the answer."""
    return answer


def main(url: str, model: str, *options: str) -> None:
    streams = "stream" in options
    endpoint = ChatOpenAI(model=model, base_url=url, api_key="none", streaming=streams, max_retries=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has a successor in another package, which is this graph and more around it
        graph = create_react_agent(endpoint, [read_page, final_answer])
    config = {"recursion_limit": 4 * STEPS}

    async def run() -> None:
        task = {"messages": [("user", TASK)]}
        if streams:
            last = None
            async for piece, _ in graph.astream(task, config, stream_mode="messages"):
                last = piece
        else:
            last = (await graph.ainvoke(task, config))["messages"][-1]
        if not isinstance(last, ToolMessage) or last.content != END:
            raise RuntimeError(f"the run ended with {last!r}")

    loop = asyncio.new_event_loop()
    serve(in_tasks(loop, run))


if __name__ == "__main__":
    main(*sys.argv[1:])
