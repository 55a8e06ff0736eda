"""Tests of what endpoints want back and refuse, by the real client: known by address and name, set in the spec, or
learned."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from cadre import tool
from cadre.adapters.models.model_chain import ModelChain
from cadre.adapters.models.openai_model import OpenAIModel
from cadre.adapters.models.profiles import profile_of
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused
from cadre.journal.events import ModelAnswered
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec, Profile
from cadre.testing import Team
from harness.memory_ports import MemoryBlobs
from harness.patience import patience
from integration.model_calls import ADD, NO_ENDPOINT, saying
from integration.probed_server import Body, ProbedServer, Refused, call, probed_server

USER = {"role": "user", "content": "Go."}


@tool(read_only=True)
def weather(city: str) -> str:
    """Says what the weather is.

    Args:
        city: Where.
    """
    return f"{city}: mild"


def agent(**model: Any) -> AgentSpec:
    return AgentSpec(name="a", description="A.", tools=["weather"], model=ModelSpec(name="trial", retries=0, **model))


def asks(**message: Any) -> Body:
    """An answer that calls the tool."""
    return {"tool_calls": [call("weather", '{"city": "Bern"}')], **message}


def ends(text: str = "ok") -> Body:
    return {"tool_calls": [call("final_answer", json.dumps({"answer": text}))]}


def answers_of(body: Body) -> list[Body]:
    return [one for one in body["messages"] if one["role"] == "assistant"]


async def played(server: ProbedServer, spec: AgentSpec, replicas: int = 1) -> tuple[object, list[ModelAnswered]]:
    """Return what a run comes to, each model call made by the next of so many replicas, and the answers in its
    journal."""
    settings, blobs = ModelSettings(url=server.url, name="trial"), MemoryBlobs()
    models = [ModelChain(spec.model, settings, blobs) for _ in range(replicas)]
    turns = iter(range(100))

    class InTurn:
        async def complete(self, request: ModelRequest, on_text: Any) -> Any:
            return await models[next(turns) % replicas].complete(request, on_text)

    async with Team([spec], [weather], InTurn()) as team:
        run = await team.start("a", "Go.")
        async with asyncio.timeout(patience()):
            output = await run.result()
        events = run.events
    for model in models:
        await model.close()
    return output, [event for event in events if isinstance(event, ModelAnswered)]


REASONED = {
    "DeepSeek": {"reasoning_content": "I look."},
    "OpenRouter": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "Ej==", "id": "c0", "index": 0}]},
    "Groq": {"reasoning": "I look."},
    "Mistral": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}], "closed": True}]},
    "Gemini": {"extra_content": {"google": {"thought_signature": "Ej=="}}},
    "LiteLLM": {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "Ej=="}]},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("sent", REASONED.values(), ids=REASONED)
async def test_what_came_with_a_call_goes_back_with_it(sent: Body, stream: bool) -> None:
    with probed_server(lambda body: ends() if answers_of(body) else asks(**sent)) as server:
        _, answered = await played(server, agent(stream=stream))
        [said] = answers_of(server.asked[1])
    assert {key: said[key] for key in sent} == sent
    assert answered[0].items


@pytest.mark.parametrize("field", ["extra_content", "provider_specific_fields"])
@pytest.mark.parametrize("index", [True, False])
async def test_the_signatures_of_parallel_calls_stay_with_their_calls(index: bool, field: str) -> None:
    signature = {"google": {"thought_signature": "Ej=="}}
    calls = [call("weather", f'{{"city": "{city}"}}', n) for n, city in enumerate(("Bern", "Rome"))]
    calls[0][field] = signature
    if not index:
        for one in calls:
            del one["index"]
            one["id"] = ""
    with probed_server(lambda body: ends() if answers_of(body) else {"tool_calls": calls}) as server:
        await played(server, agent())
        [said] = answers_of(server.asked[1])
        results = [one["tool_call_id"] for one in server.asked[1]["messages"] if one["role"] == "tool"]
    assert [one.get(field) for one in said["tool_calls"]] == [signature, None]
    assert [one["id"] for one in said["tool_calls"]] == results


def test_pieces_of_reasoning_are_put_together() -> None:
    from cadre.adapters.models.answer import KeptParts

    kept = KeptParts()
    for text in ("I ", "look."):
        kept.add({"reasoning": text, "reasoning_content": text})
    assert kept.items([], []) == [{"type": "message", "reasoning_content": "I look."}]
    kept = KeptParts()
    for block in (
        {"type": "thinking", "thinking": "I ", "signature": None},
        {"type": "thinking", "thinking": "look."},
        {"type": "thinking", "thinking": "", "signature": "Ej=="},
        {"type": "redacted_thinking", "data": "Ek=="},
        {"type": "thinking", "thinking": "Then on."},
    ):
        kept.add({"reasoning_content": block.get("thinking", ""), "thinking_blocks": [block]})
    [message] = kept.items([], [])
    assert message["thinking_blocks"] == [
        {"type": "thinking", "thinking": "I look.", "signature": "Ej=="},
        {"type": "redacted_thinking", "data": "Ek=="},
        {"type": "thinking", "thinking": "Then on."},
    ]
    kept = KeptParts()
    for more in ({"text": "I "}, {"text": "look."}, {"signature": "Ej=="}):
        kept.add({"reasoning_details": [{"type": "reasoning.text", "index": 0, **more}]})
    [message] = kept.items([], [])
    whole = {"type": "reasoning.text", "index": 0, "text": "I look.", "signature": "Ej=="}
    assert message["reasoning_details"] == [whole]


async def test_another_model_gets_none_of_it() -> None:
    """Neither one of another name, nor the same at another address."""
    with probed_server(lambda body: asks(reasoning_content="I look.")) as server:
        first = OpenAIModel(ModelSpec(name="m-1", url=server.url), NO_ENDPOINT, MemoryBlobs())
        reply = await first.complete(saying("hello"), _ignore)
        call = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        said |= {"items": reply.items, "items_of": reply.endpoint}
        result = {"role": "tool", "tool_call_id": "x", "content": "mild"}
        request = ModelRequest(messages=[USER, said, result])
        other = server.url.replace("/v1", "/v2")
        for spec in (ModelSpec(name="m-2", url=server.url), ModelSpec(name="m-1", url=other)):
            model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
            await model.complete(request, _ignore)
            await model.close()
        await first.complete(request, _ignore)
        await first.close()
        found = ["reasoning_content" in answers_of(body)[0] for body in server.asked[1:]]
    assert found == [False, False, True]


def _needs_reasoning(body: Body) -> None:
    if not all(one.get("reasoning_content") for one in answers_of(body)):
        raise Refused(400, "thinking is enabled but reasoning_content is missing in assistant tool call message")


def _takes_no_reasoning(body: Body) -> None:
    if any("reasoning_content" in one for one in answers_of(body)):
        raise Refused(400, "property 'messages.2.assistant.reasoning_content' is unsupported")


def _forbids_reasoning(body: Body) -> None:
    if any("reasoning_content" in one for one in answers_of(body)):
        place = ["body", "messages", 2, "assistant", "reasoning_content"]
        error = {"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"}
        raise Refused(422, json.dumps({"detail": [error]}))


def _needs_signature(body: Body) -> None:
    if not all("extra_content" in one["tool_calls"][0] for one in answers_of(body)):
        raise Refused(400, "Function call is missing a thought_signature in functionCall parts.")


REFUSALS: dict[str, tuple[Callable[[Body], None], Body, Body]] = {
    "no reasoning": (_takes_no_reasoning, {"reasoning_content": "Hm."}, {"reasoning_back": "never"}),
    "no more fields": (_forbids_reasoning, {"reasoning_content": "Hm."}, {"reasoning_back": "never"}),
    "reasoning": (_needs_reasoning, {}, {"reasoning_back": "required"}),
    "signature": (_needs_signature, {}, {"reasoning_back": "signed"}),
}


@pytest.mark.parametrize(("check", "sent", "learned"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_teaches_and_the_journal_keeps_it(
    check: Callable[[Body], None], sent: Body, learned: Body
) -> None:
    """Each call is made by another replica: the refusal happens once."""
    refused = 0

    def answer(body: Body) -> Body:
        nonlocal refused
        try:
            check(body)
        except Refused:
            refused += 1
            raise
        done = len(answers_of(body))
        city = json.dumps({"city": f"city {done}"})
        return ends() if done == 3 else {"tool_calls": [call("weather", city)], **sent}

    with probed_server(answer) as server:
        output, answered = await played(server, agent(), replicas=4)
    assert (output, refused) == ("ok", 1)
    assert [one.learned for one in answered if one.learned] == [learned]


OPENAI = {"token_limit": "max_completion_tokens", "tool_choice": "required"}

PARAMETERS = [
    ("stop", {"stop": False}, "Argument not supported on this model: stop"),
    ("tool_choice", {"tool_choice": "auto"}, "tool_choice 'specified' is incompatible with thinking enabled"),
    ("tool_choice", {"tool_choice": "auto"}, "deepseek-reasoner does not support this tool_choice"),
    ("stream_options", {"stream_usage": False}, "stream_options: Extra inputs are not permitted"),
    ("max_tokens", {"token_limit": "max_completion_tokens"}, "Unsupported parameter: 'max_tokens'"),
]


@pytest.mark.parametrize(("name", "learned", "words"), PARAMETERS)
async def test_a_parameter_that_is_refused_is_left_out(
    name: str, learned: Body, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cadre.adapters.models.profiles._known", lambda *_: Profile(stop=True, tool_choice="required"))

    def picky(body: Body) -> Body:
        if name in body:
            raise Refused(400, words)
        return {"content": "done"}

    request = ModelRequest(messages=[USER], tools=[ADD], stop=["END"])
    with probed_server(picky) as server:
        spec = ModelSpec(name="m-1", url=server.url)
        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        reply = await model.complete(request, _ignore)
        known = ModelRequest(messages=[USER], tools=[ADD], learned={reply.endpoint: reply.learned})
        other = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        again = await other.complete(known, _ignore)
        await model.close()
        await other.close()
    assert (reply.learned, again.learned, len(server.asked)) == (learned, {}, 3)


async def test_strict_is_left_out_where_it_is_refused() -> None:
    def picky(body: Body) -> Body:
        if body["response_format"]["json_schema"].get("strict"):
            raise Refused(422, "response_format.json_schema.strict is not permitted")
        return {"content": "{}"}

    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    with probed_server(picky) as server:
        model = OpenAIModel(ModelSpec(name="m-1", url=server.url), NO_ENDPOINT, MemoryBlobs())
        reply = await model.complete(ModelRequest(messages=[USER], schema=schema), _ignore)
        await model.close()
    assert (reply.learned, len(server.asked)) == ({"strict": False}, 2)


@pytest.mark.parametrize(
    ("status", "words", "change"),
    [
        (400, "tool_choice is not supported", "model.tool_choice: auto"),
        (400, "tool_choice 'specified' is incompatible with thinking enabled", "model.tool_choice: auto"),
        (400, "Thinking may not be enabled when tool_choice forces tool use.", "model.tool_choice: auto"),
        (400, "tool choice required is not supported", "model.tool_choice: auto"),
        (404, "No endpoints found that support the provided 'tool_choice' value.", "model.tool_choice: auto"),
        (400, "Argument not supported on this model: stop", "model.stop: false"),
        (422, '"stop": Extra inputs are not permitted', "model.stop: false"),
    ],
)
async def test_what_the_file_asks_for_is_never_left_out(status: int, words: str, change: str) -> None:
    def picky(body: Body) -> Body:
        raise Refused(status, words)

    with probed_server(picky) as server:
        spec = ModelSpec(name="m-1", url=server.url, tool_choice="required", stop=True)
        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        with pytest.raises(ModelRefused) as error:
            await model.complete(ModelRequest(messages=[USER], tools=[ADD], stop=["END"]), _ignore)
        await model.close()
        assert len(server.asked) == 1
    assert change in str(error.value)


THOUGHT = "<think>I look.</think>\nBern, then."


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("name", "back"), [("MiniMax-M2", THOUGHT), ("trial", "Bern, then.")])
async def test_a_thought_in_the_text_goes_back_where_the_profile_says_so(name: str, back: str, stream: bool) -> None:
    with probed_server(lambda body: ends() if answers_of(body) else asks(content=THOUGHT)) as server:
        output, answered = await played(server, agent(stream=stream, reasoning_back=_back_of(name)))
        [said] = answers_of(server.asked[1])
    assert (output, answered[0].content) == ("ok", "Bern, then.")
    assert said["content"] == back


def _back_of(name: str) -> Any:
    return profile_of(ModelSpec(), "http://127.0.0.1/v1", name).reasoning_back


@pytest.mark.parametrize(("name", "leaks"), [("GLM-4.6", 0), ("trial-thinking", 0), ("unheard-of", 1)])
async def test_a_thought_that_the_template_opens_is_held_back(name: str, leaks: int) -> None:
    """By the model's name from the first answer on, else from the second: text of other models is heard at once."""
    text = "I weigh it, and weigh it again.\n</think>\nSo: Bern."
    with probed_server(lambda body: {"content": text}) as server:
        model = OpenAIModel(ModelSpec(name=name, url=server.url), NO_ENDPOINT, MemoryBlobs())
        for answer in range(2):
            heard: list[str] = []

            async def hear(
                piece: str, *, of_answer: bool = False, chunk: object = None, into: list[str] = heard
            ) -> None:
                into.append(piece)

            await model.complete(ModelRequest(messages=[USER]), hear)
            assert ("".join(heard).strip() == "So: Bern.") is (answer >= leaks)
        await model.close()


async def test_a_refusal_that_stays_ends_the_call() -> None:
    def stubborn(body: Body) -> Body:
        raise Refused(400, "Unexpected role 'user' after role 'tool'; reasoning_content is missing")

    with probed_server(stubborn) as server:
        model = OpenAIModel(ModelSpec(name="m-1", url=server.url), NO_ENDPOINT, MemoryBlobs())
        with pytest.raises(ModelRefused):
            await model.complete(saying("hello"), _ignore)
        await model.close()
        assert len(server.asked) < 5


def _strict_template(body: Body) -> None:
    roles = [one["role"] for one in body["messages"] if one["role"] != "system"]
    for before, now in itertools.pairwise(roles):
        if before == now != "tool":
            raise Refused(400, "Conversation roles must alternate user/assistant/user/assistant/...")
        if (before, now) == ("tool", "user"):
            raise Refused(400, "Unexpected role 'user' after role 'tool'")


@pytest.mark.parametrize("name", ["trial", "mistral-large-latest"])
async def test_a_strict_template_is_followed(name: str) -> None:
    def answer(body: Body) -> Body:
        _strict_template(body)
        return {"content": "done"}

    calls = [{"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    messages: list[Body] = [
        {"role": "system", "content": "Be brief."},
        *(USER, USER),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "x", "content": "mild"},
        {"role": "user", "content": picture},
        *(USER, {"role": "assistant", "content": "So."}, {"role": "assistant", "content": "Yes."}, USER),
    ]
    with probed_server(answer) as server:
        model = OpenAIModel(ModelSpec(name=name, url=server.url), NO_ENDPOINT, MemoryBlobs())
        await model.complete(ModelRequest(messages=messages), _ignore)
        await model.close()
    sent = server.asked[-1]["messages"]
    assert len(server.asked) == (2 if name == "trial" else 1)
    assert sent[1]["content"] == "Go.\n\nGo."
    assert sent[5]["content"] == [*picture, {"type": "text", "text": "Go."}]


async def test_ids_of_calls_are_nine_letters_and_digits_and_differ() -> None:
    with probed_server(
        lambda body: (
            ends() if answers_of(body) else {"tool_calls": [call("weather", f'{{"city": "{n}"}}', n) for n in range(3)]}
        )
    ) as server:
        await played(server, agent())
        ids = [one["id"] for one in answers_of(server.asked[1])[0]["tool_calls"]]
    assert len(set(ids)) == 3
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in ids)


@pytest.mark.parametrize(
    ("url", "name", "expected"),
    [
        ("http://127.0.0.1:8000/v1", "any", {}),
        (
            "https://api.openai.com/v1",
            "gpt-4.1",
            OPENAI,
        ),
        (
            "https://me.openai.azure.com/openai/v1",
            "x",
            OPENAI,
        ),
        ("https://openrouter.ai/api/v1", "google/gemini-3-pro", {"reasoning_back": "signed"}),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "x", {"reasoning_back": "signed"}),
        (
            "https://api.mistral.ai/v1",
            "any",
            {"user_after_tool": False, "strict": False, "stream_usage": False},
        ),
        ("https://api.deepseek.com", "deepseek-chat", {"reasoning_back": "required", "strict": False}),
        ("https://api.deepseek.com.evil.example/v1", "x", {}),
    ],
)
def test_a_profile_is_known_by_address_and_name(url: str, name: str, expected: Body) -> None:
    assert profile_of(ModelSpec(), url, name) == Profile(**expected)


def test_the_file_of_an_agent_wins_over_what_is_known_and_learned() -> None:
    spec = ModelSpec(token_limit="max_tokens", reasoning_back="never")
    found = profile_of(spec, "https://api.openai.com/v1", "o3", {"token_limit": None, "tool_choice": "auto"})
    assert found == Profile(reasoning_back="never")


async def _ignore(_: str, *, of_answer: bool = False, chunk: object = None) -> None: ...
