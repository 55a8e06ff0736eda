"""Answers of endpoints, one file each in `tests/endpoints/answers`, played over HTTP to the production client.

A cassette that `cadre scripted-model --mode record` wrote is such a file too: put it into the folder, and it is played.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelError, ModelRefused, ModelUnavailable
from cadre.ports import ModelReply
from cadre.spec.model import ModelSpec
from cadre_scripted_model.record_replay import Cassette
from harness.memory_ports import MemoryBlobs
from integration.model_calls import NO_ENDPOINT
from integration.raw_endpoint import raw_endpoint

FOLDER = Path(__file__).parents[1] / "endpoints/answers"
PAGE = Path(__file__).parents[2] / "docs/endpoints.md"
FILES = sorted(FOLDER.glob("*.json"))
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "Looks.", "parameters": {"type": "object"}},
    }
    for name in ("weather", "get_info")
]


async def outcome_of(answer: Cassette) -> ModelReply | ModelError:
    """The reply to one request that is answered so, or the failure."""

    async def ignore(text: str, *, of_answer: bool = False, chunk: object = None) -> None: ...

    async with raw_endpoint(answer.status, answer.content_type, answer.content) as url:
        stream = "event-stream" in answer.content_type
        # With its limit in the spec a refusal is final: none of it is asked for again.
        spec = ModelSpec(name="any", url=url, stream=stream, max_tokens=100)
        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        try:
            request = ModelRequest(messages=[{"role": "user", "content": "Go."}], tools=TOOLS)
            return await model.complete(request, ignore)
        except ModelError as error:
            return error
        finally:
            await model.close()


@pytest.mark.parametrize("text", [file.read_text() for file in FILES], ids=[file.stem for file in FILES])
async def test_an_answer_comes_to_what_its_file_says(text: str) -> None:
    expected: dict[str, Any] = json.loads(text).get("outcome", {})
    found = await outcome_of(msgspec.json.decode(text, type=Cassette))
    if "failure" in expected:
        kind = ModelUnavailable if expected["failure"] == "unavailable" else ModelRefused
        assert isinstance(found, kind)
        assert found.status == expected["status"]
        assert getattr(found, "too_long", False) == (expected["failure"] == "too_long")
        assert expected.get("words", "") in str(found)
        return
    if not expected:
        # A report without a verdict: no matter what it comes to, it is an answer or a clear failure.
        return
    assert isinstance(found, ModelReply), found
    assert [[call.name, call.arguments] for call in found.calls if call.error is None] == expected.get("calls", [])
    refused = [call.name for call in found.calls if call.error is not None]
    assert refused == expected.get("refused_calls", [])
    assert found.content == expected.get("text", found.content)


def test_each_file_says_where_it_comes_from_and_the_page_names_it() -> None:
    page = PAGE.read_text()
    for file in FILES:
        answer = msgspec.json.decode(file.read_bytes(), type=Cassette)
        assert answer.endpoint, file.name
        assert (answer.origin == "reported") == bool(answer.source), file.name
        assert f"`{file.stem}`" in page, file.name
