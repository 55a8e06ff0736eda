"""Asks agents through three frameworks, in the environment that has them; prints what they answer as one line of JSON.

`python frameworks.py BASE_URL CASE`: the cases are the functions of this module.
"""

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return {"Oslo": "3 degrees", "Rome": "21 degrees"}.get(city, "9 degrees")


def openai_agents_chat(url: str) -> Any:
    """The Agents SDK over chat completions, with a function tool and a handed-back history."""
    from agents import OpenAIChatCompletionsModel

    return asyncio.run(
        _openai_agents(OpenAIChatCompletionsModel("host", AsyncOpenAI(base_url=url, api_key="any")))
    )


def openai_agents_responses(url: str) -> Any:
    """The same over responses, which is what the SDK does by itself."""
    from agents import OpenAIResponsesModel

    return asyncio.run(_openai_agents(OpenAIResponsesModel("host", AsyncOpenAI(base_url=url, api_key="any"))))


async def _openai_agents(model: Any) -> Any:
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    set_tracing_disabled(True)
    plain = await Runner.run(Agent(name="guest", model=model), "Good day")
    asked = await Runner.run(Agent(name="guest", model=model, tools=[function_tool(weather)]), "the weathers")
    formed = await Runner.run(Agent(name="guest", model=model, output_type=Person), "Ann as JSON")
    begun = await Runner.run(Agent(name="guest", model=model), "my name is Iris")
    history = [*begun.to_input_list(), {"role": "user", "content": "what is my name?"}]
    gone_on = await Runner.run(Agent(name="guest", model=model), history)
    streamed = Runner.run_streamed(Agent(name="guest", model=model), "Good evening")
    async for _ in streamed.stream_events():
        pass
    answers = [one.final_output for one in (plain, asked, formed, gone_on, streamed)]
    return [one if isinstance(one, str) else one.model_dump() for one in answers]


def pydantic_ai_chat(url: str) -> Any:
    """pydantic-ai over chat completions, with a tool, a form and its own message history."""
    from pydantic_ai.models.openai import OpenAIChatModel

    return asyncio.run(_pydantic_ai(OpenAIChatModel, url))


def pydantic_ai_responses(url: str) -> Any:
    """The same over responses."""
    from pydantic_ai.models.openai import OpenAIResponsesModel

    return asyncio.run(_pydantic_ai(OpenAIResponsesModel, url))


async def _pydantic_ai(kind: Any, url: str) -> Any:
    from pydantic import BaseModel
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.providers.openai import OpenAIProvider

    class Person(BaseModel):
        name: str
        age: int

    model = kind("host", provider=OpenAIProvider(base_url=url, api_key="any"))
    guest = Agent(model)
    plain = await guest.run("Good day")
    asked = await Agent(model, tools=[weather]).run("the weathers")
    formed = await Agent(model, output_type=NativeOutput(Person)).run("Ann as JSON")
    begun = await guest.run("my name is Iris")
    gone_on = await guest.run("what is my name?", message_history=begun.all_messages())
    async with guest.run_stream("Good evening") as stream:
        streamed = await stream.get_output()
    return [plain.output, asked.output, formed.output.model_dump(), gone_on.output, streamed]


def smolagents_chat(url: str) -> Any:
    """smolagents' model for OpenAI servers, as the model of an agent that calls tools."""
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel(model_id="host", api_base=url, api_key="any")
    plain = model([{"role": "user", "content": [{"type": "text", "text": "Good day"}]}])
    streamed = model.generate_stream(
        [{"role": "user", "content": [{"type": "text", "text": "Good evening"}]}]
    )
    said = "".join(piece.content or "" for piece in streamed)
    agent = ToolCallingAgent(tools=[tool(weather)], model=model, max_steps=3, verbosity_level=0)
    return [plain.content, agent.run("the weathers"), said]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](sys.argv[1])))
