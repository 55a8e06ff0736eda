"""Tests of how many tokens the request of a plain agent takes, by the tokenizer o200k of newer models.

The tokenizer is 42 MB and no dependency, so the counts stand here, each with a digest of what was counted. After a
change of prompts or declarations, `pip install bpe-openai` and run this file: it prints the new lines.
"""

import asyncio
import hashlib
import importlib
from typing import Any

import msgspec
import pytest

from cadre import tool
from cadre.adapters.models.request_body import chat_body, limits_of
from cadre.spec.agent import AgentSpec
from cadre.testing import Team, answer

COUNTED = {
    "helper": ("42e7ec95613072ff", 282),
    "five tools": ("6aa407d26a95679d", 539),
}
MOST = {"helper": 350, "five tools": 700}


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


@tool(read_only=True)
def search(query: str, limit: int = 5) -> str:
    """Search the web.

    Args:
        query: What to search for.
        limit: The most results.
    """
    return f"{query} {limit}"


@tool(read_only=True)
def read_page(url: str) -> str:
    """Read a web page as text.

    Args:
        url: Its address.
    """
    return url


@tool(read_only=True)
def convert(amount: float, to: str) -> float:
    """Convert an amount of euros into another currency.

    Args:
        amount: How many euros.
        to: The code of the currency.
    """
    return amount * len(to)


@tool
def save(path: str, text: str) -> str:
    """Save a text as a file.

    Args:
        path: Where to save it.
        text: What to save.
    """
    return path + text


TOOLS: dict[str, list[Any]] = {
    "helper": [count_words],
    "five tools": [count_words, search, read_page, convert, save],
}


async def sent(tools: list[Any]) -> bytes:
    """The messages and tools of the first request of README's agent, as they are posted."""
    spec = AgentSpec(name="helper", description="Answers questions about texts.", tools=[one.name for one in tools])
    async with Team([spec], tools, [answer("8")]) as team:
        run = await team.start("helper", "How many words has 'to be or not to be'?")
        await run.result()
        request = team.requests[0].request
    body = chat_body(spec.model, request, "any", limits_of(spec.model, "http://any/v1", "any"))
    return msgspec.json.encode({"messages": body["messages"], "tools": body["tools"]})


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("name", TOOLS)
async def test_the_default_is_lean(name: str) -> None:
    digest, tokens = COUNTED[name]
    data = await sent(TOOLS[name])
    assert digest_of(data) == digest, "the request has changed: count it again, as this file's head says"
    assert tokens <= MOST[name]


async def test_tools_are_described_once() -> None:
    body = msgspec.json.decode(await sent(TOOLS["five tools"]))
    said = str(body["messages"])
    for one in body["tools"]:
        assert one["function"]["description"] not in said
        assert one["function"]["name"] in (
            *("count_words", "search", "read_page"),
            "convert",
            "save",
            "final_answer",
        )


if __name__ == "__main__":
    encoding = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    for case, tools in TOOLS.items():
        data = asyncio.run(sent(tools))
        print(f'    "{case}": ("{digest_of(data)}", {len(encoding.encode(data.decode()))}),')
