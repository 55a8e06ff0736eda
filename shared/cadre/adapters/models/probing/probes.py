"""The questions that find out what a model can do through its endpoint, each a small request."""

import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cadre.adapters.models.context_size import excess_of, listed_context
from cadre.adapters.models.probing.endpoint import ProbedEndpoint, ProbeFailed, ProbeReply
from cadre.adapters.models.probing.report import Probe
from cadre.adapters.models.sent_messages import BRIDGE, chat_messages
from cadre.spec.model import ModelSpec, Profile, ReasoningBack

_ANSWER_TOKENS = 200
_HUGE_ANSWER_TOKENS = 100_000_000
"""More than any model takes: an endpoint that checks this refuses, and says what it takes."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather of one city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}

TOWN = {
    "type": "object",
    "properties": {"town": {"type": "string", "enum": ["Oslo", "Lima"]}, "people": {"type": "integer"}},
    "required": ["town", "people"],
    "additionalProperties": False,
}

_COUNT = "Count from 1 to 40, with a comma between two numbers."
_ASK_WEATHER = "What is the weather in Lima? Call the function get_weather."
_USE_AUTO = "set tool_choice: auto"
_ASK_BOTH = "What is the weather in Lima, and what is it in Oslo? Call get_weather once for each, both at once."


async def probe_all(spec: ModelSpec, seconds: float, embeddings: str | None = None) -> AsyncIterator[Probe]:
    """Ask the model of a spec, which names its URL and its model, one thing after the other.

    Args:
        seconds: the most that one request may take.
        embeddings: the name of the model to ask for vectors; None asks for none.
    """
    endpoint = ProbedEndpoint(spec, seconds)
    try:
        listed = await _models(endpoint, spec.name)
        yield listed
        answering = await _streaming(endpoint)
        for probe in answering:
            yield probe
        if spec.api == "chat":
            yield Probe("token_limit", "yes", endpoint.token_limit, choice=endpoint.token_limit)
        if not any(probe.verdict == "yes" for probe in answering):
            for name in [*_QUESTIONS, *(["embeddings"] if embeddings else [])]:
                yield Probe(name, "unknown", "not asked: the model answers nothing")
            return
        if listed.value is None:
            yield await _context(endpoint)
        for name, question in _QUESTIONS.items():
            if spec.api == "responses" and name in _OF_CHAT:
                continue
            yield await _verdict(name, question(endpoint))
        if embeddings:
            yield await _verdict("embeddings", _embeddings(endpoint, embeddings))
    finally:
        await endpoint.close()


async def first_model(spec: ModelSpec, seconds: float) -> str:
    """Return the name of the first model in the endpoint's list; "" where it has none."""
    endpoint = ProbedEndpoint(spec, seconds)
    try:
        listed = await endpoint.models()
    except ProbeFailed:
        return ""
    finally:
        await endpoint.close()
    return str(listed[0].get("id", "")) if listed else ""


async def _verdict(name: str, question: Awaitable[Probe]) -> Probe:
    """Return the probe, or what its failure says: a refusal is a no, anything else is not known."""
    try:
        return await question
    except ProbeFailed as failure:
        return Probe(name, "no" if failure.refused else "unknown", str(failure))


async def _models(endpoint: ProbedEndpoint, name: str) -> Probe:
    try:
        listed = await endpoint.models()
    except ProbeFailed as failure:
        return Probe("models", "no" if failure.refused else "unknown", str(failure))
    ids = [str(one.get("id")) for one in listed]
    entry = next((one for one in listed if one.get("id") == name), None)
    shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
    if entry is None:
        return Probe("models", "no", f"{name!r} is not among the endpoint's models: {shown}")
    size = listed_context(entry)
    return Probe("models", "yes", shown if size is None else f"{shown}; {size} tokens of context", size)


async def _streaming(endpoint: ProbedEndpoint) -> list[Probe]:
    """Return whether it streams and counts; where it does not, whether it answers at all."""
    try:
        streamed = await _asked_in_either_way(endpoint, stream=True)
    except ProbeFailed as failure:
        first = Probe("streaming", "no" if failure.refused else "unknown", str(failure))
        try:
            whole = await _asked_in_either_way(endpoint, stream=False)
        except ProbeFailed as again:
            return [first, Probe("whole answers", "no" if again.refused else "unknown", str(again))]
        return [first, Probe("whole answers", "yes"), _usage("usage", whole)]
    if streamed.pieces < 3:
        yes = Probe("streaming", "no", "the whole answer comes at once, though as a stream")
        return [yes, Probe("whole answers", "yes"), _usage("usage in streams", streamed)]
    return [Probe("streaming", "yes", f"{streamed.pieces} pieces"), _usage("usage in streams", streamed)]


async def ask_plainly(endpoint: ProbedEndpoint, *, stream: bool = True) -> Probe:
    """Return whether the model answers. Raises ProbeFailed."""
    asked = await endpoint.ask(_COUNT, 60, stream=stream)
    return Probe("answer", "yes" if asked.reply.content else "no", "" if asked.reply.content else "it is empty")


async def _asked_in_either_way(endpoint: ProbedEndpoint, *, stream: bool) -> ProbeReply:
    """Ask with the limit of tokens under one name, and under the other where that is refused."""
    try:
        return await endpoint.ask(_COUNT, 60, stream=stream)
    except ProbeFailed as failure:
        if not failure.refused or endpoint.token_limit not in failure.sent:
            raise
        names = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        endpoint.token_limit = names[endpoint.token_limit]
        return await endpoint.ask(_COUNT, 60, stream=stream)


def _usage(name: str, answered: ProbeReply) -> Probe:
    used = answered.reply.usage
    if not used.total_tokens:
        return Probe(name, "no", "not reported: Cadre estimates the usage of its calls")
    return Probe(name, "yes", f"{used.input_tokens} in, {used.output_tokens} out")


async def _context(endpoint: ProbedEndpoint) -> Probe:
    size = excess_of(await endpoint.limit_told(_HUGE_ANSWER_TOKENS)).context
    if size is None:
        return Probe("context", "unknown", "the endpoint does not tell: set context to what the model takes")
    return Probe("context", "yes", f"{size} tokens, as a refusal says", size)


async def call_tool(endpoint: ProbedEndpoint, choice: str, *, stream: bool = True) -> Probe:
    """Return whether the model calls a tool, with that `tool_choice`. Raises ProbeFailed."""
    name = "tools" if choice == "auto" else f"tool_choice: {choice}"
    asked = await endpoint.ask(_ASK_WEATHER, _ANSWER_TOKENS, stream=stream, tools=[WEATHER], tool_choice=choice)
    if asked.ran_on and choice != "auto":
        return Probe(name, "no", f"the answer ran on for {_ANSWER_TOKENS} tokens; {_USE_AUTO}")
    return _called(name, asked)


async def told_context(endpoint: ProbedEndpoint, name: str) -> int | None:
    """Return the tokens that this model takes, by the endpoint's list; None where it does not tell. Raises
    ProbeFailed."""
    return next((listed_context(one) for one in await endpoint.models() if one.get("id") == name), None)


async def _tools(endpoint: ProbedEndpoint) -> Probe:
    return await call_tool(endpoint, "auto")


async def _required(endpoint: ProbedEndpoint) -> Probe:
    try:
        return await call_tool(endpoint, "required")
    except ProbeFailed as failure:
        if failure.refused or failure.slow:
            return Probe("tool_choice: required", "no", f"{failure}; {_USE_AUTO}")
        raise


def _called(name: str, asked: ProbeReply) -> Probe:
    calls = asked.reply.calls
    if not calls:
        wrote = "ran on" if asked.ran_on else "answered in text"
        seen = " ".join(asked.reply.content.split())[:80]
        return Probe(name, "no", f"the model {wrote} instead of calling: {seen!r}")
    wrong = [call for call in calls if call.name != "get_weather" or "city" not in _object(call.arguments)]
    if wrong:
        return Probe(name, "no", f"the model called {wrong[0].name}({wrong[0].arguments})")
    return Probe(name, "yes", ", ".join(f"{call.name}({call.arguments})" for call in calls[:2]))


async def _parallel(endpoint: ProbedEndpoint) -> Probe:
    asked = await endpoint.ask(_ASK_BOTH, _ANSWER_TOKENS, tools=[WEATHER], tool_choice="auto", parallel_tool_calls=True)
    calls = len(asked.reply.calls)
    return Probe("parallel calls", "yes" if calls > 1 else "no", f"{calls} calls in one answer")


async def ask_under_schema(endpoint: ProbedEndpoint, *, stream: bool = True) -> Probe:
    """Return whether an answer is held to a JSON Schema. Raises ProbeFailed."""
    form: dict[str, Any] = {"name": "town", "strict": True, "schema": TOWN}
    question = "Name a town and how many live there."
    try:
        wanted = {"type": "json_schema", "json_schema": form}
        asked = await endpoint.ask(question, 100, stream=stream, response_format=wanted)
    except ProbeFailed as failure:
        if not failure.refused or "strict" not in failure.sent:
            raise
        del form["strict"]
        asked = await endpoint.ask(question, 100, stream=stream, response_format=wanted)
    found = _object(asked.reply.content)
    fits = set(found) == {"town", "people"} and found["town"] in ("Oslo", "Lima")
    text = " ".join(asked.reply.content.split())[:80]
    if fits and isinstance(found["people"], int):
        return Probe("json_schema", "yes", text)
    return Probe("json_schema", "no", f"the answer does not fit the schema: {text!r}")


async def _json_object(endpoint: ProbedEndpoint) -> Probe:
    wanted = {"type": "json_object"}
    asked = await endpoint.ask('Name a town as JSON: {"town": "…"}', 100, response_format=wanted)
    text = " ".join(asked.reply.content.split())[:80]
    if _object(asked.reply.content):
        return Probe("json_object", "yes", text)
    return Probe("json_object", "no", f"the answer is no JSON object: {text!r}")


async def _images(endpoint: ProbedEndpoint) -> Probe:
    picture = f"data:image/png;base64,{base64.b64encode(_red_square()).decode()}"
    content: list[dict[str, Any]] = [
        {"type": "text", "text": "Which colour is this picture? Answer with one word."},
        {"type": "image_url", "image_url": {"url": picture}},
    ]
    try:
        asked = await endpoint.ask(content, 60)
    except ProbeFailed as failure:
        # llama.cpp says with status 500 that it has no eyes.
        if "image" in failure.sent:
            return Probe("images", "no", str(failure))
        raise
    text = " ".join(asked.reply.content.split())[:80]
    if "red" in text.lower():
        return Probe("images", "yes", f"a red picture: {text!r}")
    return Probe("images", "no", f"the endpoint takes a picture, but of a red one the model says {text!r}")


async def _max_completion_tokens(endpoint: ProbedEndpoint) -> Probe:
    name, used = "max_completion_tokens", endpoint.token_limit
    endpoint.token_limit = name
    try:
        asked = await endpoint.ask(_COUNT, 8)
    finally:
        endpoint.token_limit = used
    if asked.ran_on or asked.reply.usage.output_tokens in range(1, 9):
        return Probe(name, "yes")
    return Probe(name, "no", f"ignored: the answer had {asked.reply.usage.output_tokens} tokens, not 8")


async def _responses(endpoint: ProbedEndpoint) -> Probe:
    name, used = "api: responses", endpoint.api
    if used == "responses":
        return Probe(name, "yes", "asked through it")
    endpoint.api = "responses"
    try:
        asked = await endpoint.ask(_COUNT, 60, stream=False)
    finally:
        endpoint.api = used
    return Probe(name, "yes" if asked.reply.content else "no")


async def _seed(endpoint: ProbedEndpoint) -> Probe:
    question = "Write five random words."
    texts = [(await endpoint.ask(question, 24, seed=7)).reply.content for _ in range(2)]
    if texts[0] == texts[1]:
        return Probe("seed", "yes", "the same answer twice")
    return Probe("seed", "no", "taken, but two answers differ")


async def _reasoning(endpoint: ProbedEndpoint) -> Probe:
    asked = await endpoint.ask("Is 91 a prime number?", _ANSWER_TOKENS, reasoning_effort="low")
    if asked.reasoned:
        return Probe("reasoning", "yes", "the model reasons before it answers")
    return Probe("reasoning", "no", "reasoning_effort is taken, but nothing of any reasoning comes back")


async def _embeddings(endpoint: ProbedEndpoint, name: str) -> Probe:
    size = await endpoint.dimensions(name)
    return Probe("embeddings", "yes", f"{name}: {size} dimensions", size)


async def _stop(endpoint: ProbedEndpoint) -> Probe:
    await endpoint.ask(_COUNT, 8, stop=["###"])
    return Probe("stop", "yes")


async def _strict(endpoint: ProbedEndpoint) -> Probe:
    """Return whether `strict` is taken, where a schema is: it may be refused with it alone."""
    form = {"name": "town", "schema": TOWN}
    question = "Name a town and how many live there."
    try:
        await endpoint.ask(
            question, 100, response_format={"type": "json_schema", "json_schema": {**form, "strict": True}}
        )
    except ProbeFailed as failure:
        if not failure.refused:
            raise
        await endpoint.ask(question, 100, response_format={"type": "json_schema", "json_schema": form})
        return Probe("strict", "no", str(failure))
    return Probe("strict", "yes")


_CALLED: dict[str, Any] = {"id": "call00001", "type": "function"}
_CALLED |= {"function": {"name": "get_weather", "arguments": '{"city": "Lima"}'}}
_RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "Lima: mild"}


async def _user_after_tool(endpoint: ProbedEndpoint) -> Probe:
    name = "user_after_tool"
    said = {"role": "assistant", "content": "", "tool_calls": [_CALLED]}
    before: list[dict[str, Any]] = [{"role": "user", "content": _ASK_WEATHER}, said, _RESULT]
    try:
        await endpoint.go_on([*before, {"role": "user", "content": "Say yes."}], 40, tools=[WEATHER])
    except ProbeFailed as failure:
        if not failure.refused:
            raise
        bridged = [*before, {"role": "assistant", "content": BRIDGE}, {"role": "user", "content": "Say yes."}]
        await endpoint.go_on(bridged, 40, tools=[WEATHER])
        return Probe(name, "no", str(failure))
    return Probe(name, "yes")


_WAYS: tuple[ReasoningBack, ...] = ("received", "required", "signed", "never")


async def _reasoning_back(endpoint: ProbedEndpoint) -> Probe:
    """In which form a call of the model goes back to it: the first that the endpoint takes."""
    name = "reasoning_back"
    asked = await endpoint.ask(_ASK_WEATHER, _ANSWER_TOKENS, tools=[WEATHER])
    if not asked.reply.calls:
        return Probe(name, "unknown", "not asked: the model calls nothing")
    said = {"role": "assistant", "content": asked.reply.content or None, "tool_calls": [_CALLED]}
    said |= {"items": asked.reply.items, "items_of": "it"}
    messages: list[dict[str, Any]] = [{"role": "user", "content": _ASK_WEATHER}, said, _RESULT]
    refusal = ""
    for way in _WAYS:
        try:
            await endpoint.go_on(chat_messages(messages, Profile(reasoning_back=way), "it"), 60, tools=[WEATHER])
        except ProbeFailed as failure:
            if not failure.refused:
                raise
            refusal = str(failure)
            continue
        return Probe(name, "yes", way, choice=way)
    return Probe(name, "no", refusal)


_QUESTIONS: dict[str, Callable[[ProbedEndpoint], Awaitable[Probe]]] = {
    "tools": _tools,
    "tool_choice: required": _required,
    "parallel calls": _parallel,
    "user_after_tool": _user_after_tool,
    "reasoning_back": _reasoning_back,
    "stop": _stop,
    "json_schema": ask_under_schema,
    "strict": _strict,
    "json_object": _json_object,
    "images": _images,
    "api: responses": _responses,
    "max_completion_tokens": _max_completion_tokens,
    "seed": _seed,
    "reasoning": _reasoning,
}


def _object(text: Any) -> dict[str, Any]:
    """Return the JSON object in a text; {} if it is not one."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _red_square(side: int = 64) -> bytes:
    """Return a red picture as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\x00" + b"\xff\x00\x00" * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


_OF_CHAT = ("max_completion_tokens", "seed", "stop", "strict", "user_after_tool", "reasoning_back")
"""Parameters that the Responses API does not have."""
