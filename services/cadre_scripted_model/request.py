"""Read chat completion requests into the fields that rules match on and templates read; and what a rule answers:
text, calls of tools, or an error, and how it is sent."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

_OBSERVED = "Observation:\n"


class BadRequest(Exception):
    """The body is no chat completion request. `param` is the offending key, None for the whole body."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as rules and templates see it."""

    model: str
    body: dict[str, Any]
    """The whole request, as it was sent."""
    messages: list[dict[str, Any]]
    user: str
    """Text of the last user message."""
    first: str
    """Text of the first user message."""
    system: str
    """All system and developer messages, a line between them."""
    last: str
    """Text of the last message, of any role."""
    tool: str
    """The tool results that end the conversation, one a line; empty when it does not end in any."""
    tool_results: list[str]
    """Text of every tool result, oldest first."""
    results: dict[str, list[str]]
    """The same by name of the tool."""
    called: list[str]
    """Names of the tools called so far."""
    turn: int
    """Number of assistant messages so far."""
    tools: list[str]
    """Names of the tools on offer."""
    offered: dict[str, dict[str, Any]]
    """JSON schema of each tool's arguments."""
    in_text: bool
    """The answer must be one call written as JSON: what holds it to that is a schema, and `offered` is read from it."""
    tool_choice: str | None
    """`none`, `auto`, `required`, or the name of the one tool that must be called."""
    parallel: bool
    schema: dict[str, Any] | None
    """The JSON schema that the answer must fit; {} when any JSON object will do."""
    images: int
    tokens: int
    """The approximate size of the messages and tools: four characters a token, images not counted."""
    stop: list[str]
    stream: bool
    include_usage: bool
    api: Literal["chat", "responses"] = "chat"
    """The API that it was sent to, in whose form it is answered."""

    @property
    def has_tool(self) -> bool:
        """Return whether there is any tool result."""
        return bool(self.tool_results)


def text_of(content: object) -> str:
    """Return the text of a message's content, which may be a string, a list of parts, or missing."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def rough_tokens(text: str) -> int:
    """Return an estimate: four characters a token."""
    return -(-len(text) // 4)


def read_request(body: object) -> RequestView:
    """Return what a chat completion request's JSON body says. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message", "messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"messages[{index}] must be an object with a role", "messages")
    offered, schema = _offered(body.get("tools") or []), _schema(body.get("response_format"))
    held = {} if offered else callable_by(schema)
    seen = as_native(messages) if held else messages
    users = _texts(seen, "user")
    calls, results = _tool_traffic(seen)
    stop = body.get("stop") or []
    return RequestView(
        model=str(body.get("model") or ""),
        body=body,
        messages=messages,
        user=users[-1] if users else "",
        first=users[0] if users else "",
        system="\n".join(_texts(messages, "system", "developer")),
        last=text_of(messages[-1].get("content")),
        tool="\n".join(_ending_results(seen)),
        tool_results=_texts(seen, "tool"),
        results=results,
        called=calls,
        turn=sum(message["role"] == "assistant" for message in messages),
        tools=list(offered or held),
        offered=offered or held,
        in_text=bool(held),
        tool_choice=_tool_choice(body.get("tool_choice")),
        parallel=not held and body.get("parallel_tool_calls") is not False,
        schema=schema,
        images=sum(_image_parts(message.get("content")) for message in messages),
        tokens=rough_tokens("".join(map(_written, messages)) + _json(body.get("tools"))),
        stop=[stop] if isinstance(stop, str) else [str(text) for text in stop],
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def _texts(messages: list[dict[str, Any]], *roles: str) -> list[str]:
    return [text_of(message.get("content")) for message in messages if message["role"] in roles]


def _ending_results(messages: list[dict[str, Any]]) -> list[str]:
    results: list[str] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.insert(0, text_of(message.get("content")))
    return results


def _tool_traffic(messages: list[dict[str, Any]]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names called, and the texts of results by name. A result names its call by id only."""
    called: list[str] = []
    names: dict[str, str] = {}
    results: dict[str, list[str]] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            name = str((call.get("function") or {}).get("name") or "")
            called.append(name)
            names[str(call.get("id"))] = name
        if message["role"] == "tool":
            name = names.get(str(message.get("tool_call_id"))) or str(message.get("name") or "")
            results.setdefault(name, []).append(text_of(message.get("content")))
    return called, results


def _offered(tools: list[Any]) -> dict[str, dict[str, Any]]:
    offered: dict[str, dict[str, Any]] = {}
    for index, tool in enumerate(tools):
        if isinstance(tool, dict) and tool.get("type", "function") != "function":
            continue  # the endpoint would run it itself
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not function.get("name"):
            raise BadRequest(f"tools[{index}] must be a function with a name", "tools")
        offered[str(function["name"])] = function.get("parameters") or {"type": "object"}
    return offered


def _tool_choice(choice: object) -> str | None:
    if isinstance(choice, dict):
        return str((choice.get("function") or {}).get("name") or "") or None
    return choice if isinstance(choice, str) else None


def _schema(response_format: object) -> dict[str, Any] | None:
    if not isinstance(response_format, dict):
        return None
    if response_format.get("type") == "json_object":
        return {}
    wrapped = response_format.get("json_schema")
    return (wrapped.get("schema") or {}) if isinstance(wrapped, dict) else None


def _written(message: dict[str, Any]) -> str:
    """Return all that a message says, its calls included."""
    return text_of(message.get("content")) + _json(message.get("tool_calls"))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode() if value else ""


def _image_parts(content: object) -> int:
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


def callable_by(schema: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the schema of the arguments of each function that may be called; {} for a schema of anything else."""
    held = ((schema or {}).get("properties") or {}).get("function") or {}
    definitions = {"$defs": (schema or {}).get("$defs") or {}}
    found: dict[str, dict[str, Any]] = {}
    for branch in held.get("anyOf") or [held]:
        properties = branch.get("properties") or {}
        name = properties.get("name") or {}
        for one in name.get("enum") or [name.get("const")]:
            if isinstance(one, str) and isinstance(properties.get("arguments"), dict):
                found[one] = {**properties["arguments"], **definitions}
    return found


def as_native(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with calls that were written as JSON, and what came of them, in their native form."""
    found: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        before, content = found[-1] if found else {}, message.get("content")
        if message["role"] == "assistant" and (name := _called(content)):
            call = {"id": f"text_{place}", "function": {"name": name}}
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif before.get("tool_calls") and isinstance(content, str) and content.startswith(_OBSERVED):
            [call] = before["tool_calls"]
            text = content.removeprefix(_OBSERVED).removeprefix(f"{call['function']['name']}: ")
            found.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        else:
            found.append(message)
    return found


def as_text(reply: Reply) -> Reply:
    """Return the reply with its first call written as the schema wants it."""
    call = reply.tool_calls[0]
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    text = f'{{"function": {{"name": {json.dumps(call.name)}, "arguments": {arguments}}}}}'
    return msgspec.structs.replace(reply, content=text, tool_calls=[])


def _called(content: object) -> str:
    """Return the name of the function that a text calls; "" when it is no call."""
    try:
        value = json.loads(content) if isinstance(content, str) else None
    except ValueError:
        return ""
    function = value.get("function") if isinstance(value, dict) else None
    return str(function.get("name") or "") if isinstance(function, dict) else ""


class CallReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call of a reply."""

    name: str
    arguments: dict[str, Any] | str = {}
    """An object, or text that is sent as it stands (so that a script can play broken JSON)."""
    id: str = ""


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An HTTP error instead of a completion."""

    status: int
    message: str = "an error that the script asked for"
    type: str = ""
    code: str | None = None
    param: str | None = None
    headers: dict[str, str | int | float] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The answer of a rule. Every text may be a template."""

    content: str | None = None
    tool_calls: list[CallReply] = []
    items: list[dict[str, Any]] = []
    """Output items before the text, such as `web_search_call`: in answers of the Responses API only."""
    annotations: list[dict[str, Any]] = []
    """Citations of the text."""
    error: ErrorReply | None = None
    latency: float = 0.0
    """Seconds before the first byte."""
    hold: bool = False
    """Wait, before anything else, for `POST /script/release`."""
    delay: float = 0.0
    """Seconds after each streamed piece."""
    chunk: int = 12
    """Characters in a streamed piece."""
    drop_after: int | None = None
    """Cut the connection after so many streamed pieces; a reply that is not streamed is cut in the middle."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """Numbers in the usage: tokens read from the cache, and tokens written as reasoning."""
    finish: str | None = None
    """The finish_reason; `tool_calls` or `stop` when it is left out. In the Responses API `length` and `content_filter`
    make the response incomplete, `failed` has it fail, `error` ends its stream with an error."""
