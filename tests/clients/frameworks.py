"""Asks agents through clients in Python, in the environment that has them; prints what they answer as one line of JSON.

`python frameworks.py BASE_URL CASE`: the cases are the functions of this module.
"""

import asyncio
import json
import os
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

    return asyncio.run(_openai_agents(OpenAIChatCompletionsModel("host", AsyncOpenAI(base_url=url, api_key="any"))))


def openai_agents_responses(url: str) -> Any:
    """The same over responses, which is what the SDK does on its own."""
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
    streamed = model.generate_stream([{"role": "user", "content": [{"type": "text", "text": "Good evening"}]}])
    said = "".join(piece.content or "" for piece in streamed)
    agent = ToolCallingAgent(tools=[tool(weather)], model=model, max_steps=3, verbosity_level=0)
    return [plain.content, agent.run("the weathers"), said]


def openai_sdk(url: str) -> Any:
    """OpenAI's own client: chats, streams, responses, a conversation and a file."""
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="any")
    asked: Any = [{"role": "user", "content": "Good day"}]
    chat = client.chat.completions.create(model="host", messages=asked)
    with client.responses.stream(model="host", input="Good evening") as stream:
        streamed = stream.get_final_response()
    talk = client.conversations.create(metadata={"topic": "names"})
    client.responses.create(model="host", input="my name is Iris", conversation=talk.id)
    recalled = client.responses.create(model="host", input="what is my name?", conversation=talk.id)
    file = client.files.create(file=("a.txt", b"text"), purpose="user_data")
    content = client.files.content(file.id).read().decode()
    answers = [chat.choices[0].message.content, streamed.output_text, recalled.output_text, content]
    return [*answers, len(client.conversations.items.list(talk.id).data)]


openai_sdk_responses = openai_sdk


def openai_agents_handoff(url: str) -> Any:
    """The Agents SDK hands over from one agent of Cadre to another one, by both protocols."""
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel

    return [asyncio.run(_handoff(kind, url)) for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel)]


async def _handoff(kind: Any, url: str) -> Any:
    from agents import Agent, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="any")
    clerk = Agent(name="clerk", model=kind("clerk", client))
    front = Agent(name="front", model=kind("host", client), handoffs=[clerk])
    result = await Runner.run(front, "hand over")
    return [result.last_agent.name, "has read" in result.final_output]


def langchain_chat(url: str) -> Any:
    """LangChain's model over chat completions, as the model of an agent, with its forms and streams."""
    return _langchain(url, use_responses_api=False)


def langchain_responses(url: str) -> Any:
    """The same over responses."""
    return _langchain(url, use_responses_api=True)


def _langchain(url: str, **options: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    model = ChatOpenAI(model="host", base_url=url, api_key="any", **options)
    agent = create_agent(model, tools=[weather])
    asked = agent.invoke({"messages": [("user", "the weathers")]})["messages"][-1]
    formed = model.with_structured_output(Person).invoke("Ann as JSON")
    called = model.with_structured_output(Person, method="function_calling").invoke("extract Ann")
    history = [("user", "my name is Iris"), ("assistant", "Noted."), ("user", "what is my name?")]
    streamed = "".join(piece.text for piece in model.stream("Good evening"))
    plain = model.invoke("Good day").text
    return [plain, asked.text, formed.model_dump(), called.model_dump(), model.invoke(history).text, streamed]


def litellm_chat(url: str) -> Any:
    """LiteLLM with Cadre as an endpoint of OpenAI's form."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks for no list of models elsewhere
    import litellm

    where: dict[str, Any] = {"model": "openai/host", "api_base": url, "api_key": "any"}

    def asked(text: str) -> Any:
        return [{"role": "user", "content": text}]

    plain = litellm.completion(messages=asked("Good day"), max_tokens=500, temperature=0.2, **where)
    pieces = litellm.completion(messages=asked("Good evening"), stream=True, **where)
    streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    called = litellm.completion(messages=asked("weather in Oslo"), tools=[tool], **where).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "3 degrees"}
    told = litellm.completion(messages=[*asked("weather in Oslo"), called.model_dump(), result], **where)
    response = litellm.responses(input="Good night", **where)
    said = [plain.choices[0].message.content, streamed, told.choices[0].message.content]
    return [*said, response.output[-1].content[0].text]


def instructor_default(url: str) -> Any:
    """instructor in its default mode: a form by a forced call."""
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    client = instructor.from_openai(OpenAI(base_url=url, api_key="any"))
    asked: Any = [{"role": "user", "content": "extract Ann"}]
    made = client.chat.completions.create(model="host", response_model=Person, messages=asked)
    return made.model_dump()


def fastmcp_client(url: str) -> Any:
    """FastMCP's client, with the agents as tools."""
    from fastmcp import Client

    async def talk() -> Any:
        async with Client(url.removesuffix("/v1") + "/mcp") as client:
            names = sorted(tool.name for tool in await client.list_tools())
            agents = [name for name in names if not name.startswith("cadre_")]
            result = await client.call_tool("host", {"task": "Good day"})
            return [agents, result.content[0].text]

    return asyncio.run(talk())


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](sys.argv[1])))
