"""The body of a request as it goes to an endpoint: what a run asks, as the model's spec has it sent, to chat
completions or in the terms of the Responses API."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from cadre.adapters.models.profiles import endpoint_id, profile_of
from cadre.adapters.models.sent_messages import chat_messages
from cadre.engine.context.context_budget import answer_tokens
from cadre.engine.model_request import ModelRequest, without_items
from cadre.spec.answer_schema import is_strict
from cadre.spec.model import ModelSpec, Profile, TokenLimit
from cadre.spec.schema_form import typed

TOKEN_LIMITS = get_args(TokenLimit)


class EndpointLimits(msgspec.Struct, kw_only=True):
    """The limits of an endpoint as a process knows them; a refusal may correct them."""

    id: str
    """The name under which journals know the endpoint and its model."""
    profile: Profile
    context: int | None = None
    """Tokens that the endpoint itself names as the model's context."""
    answer: int | None = None
    """Tokens that the endpoint itself names as the most of an answer."""
    encrypted: bool = True
    """Reasoning may be asked for in the form that can be sent back."""


def limits_of(
    spec: ModelSpec, url: str, name: str, learned: dict[str, Any] | None = None, context: int | None = None
) -> EndpointLimits:
    """Return what is known of the endpoint at that URL, with what its refusals have taught."""
    profile = profile_of(spec, url, name, learned)
    if spec.extra_body.keys() & {*TOKEN_LIMITS, "max_output_tokens"}:
        profile = msgspec.structs.replace(profile, token_limit=None)
    return EndpointLimits(id=endpoint_id(spec, url, name), profile=profile, context=context)


def as_seen(request: ModelRequest, spec: ModelSpec) -> ModelRequest:
    """Return the request as that model, if it is a fallback, is shown it: the messages are made for the first model,
    which may see images."""
    if not request.fallback or spec.vision:
        return request
    return msgspec.structs.replace(request, messages=list(map(_without_images, request.messages)))


def chat_body(spec: ModelSpec, request: ModelRequest, name: str, limits: EndpointLimits) -> dict[str, Any]:
    """Return the request to the model of this name in the terms of chat completions, without `extra_body`."""
    profile = limits.profile
    body: dict[str, Any] = {"model": name, "messages": _messages(spec, request, limits)}
    native = spec.native_tools if request.native_tools else []
    if request.tools or native:
        body["tools"] = [*request.tools, *native]
    if request.tools:
        if (choice := _tool_choice(spec, request, profile)) != "auto":
            body["tool_choice"] = choice
        if spec.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = spec.parallel_tool_calls
    if request.schema is not None:
        schema = typed(request.schema)
        strict = {"strict": True} if profile.strict and is_strict(schema) else {}
        form = {"name": "answer", **strict, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    if request.stop and profile.stop and spec.api == "chat":
        body["stop"] = request.stop
    for option in ("temperature", "reasoning_effort", "seed"):
        if (value := getattr(spec, option)) is not None:
            body[option] = value
    if profile.token_limit is not None:
        most = answer_tokens(spec, limits.context)
        body[profile.token_limit] = min(most, request.max_tokens or most, limits.answer or most)
    if spec.api == "responses" and limits.encrypted and "include" not in spec.extra_body:
        body["include"] = [ENCRYPTED]
    if spec.stream:
        body["stream"] = True
        if profile.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def raw_body(spec: ModelSpec, request: ModelRequest, name: str, limits: EndpointLimits) -> dict[str, Any]:
    """Return the body of a program's own request, for the model of this name: it comes as a stream where the agent's
    models do, so that people can watch, however the program reads it."""
    assert request.raw is not None
    body = {key: value for key, value in request.raw.items() if key not in ("stream", "stream_options")}
    body["model"] = name
    if spec.stream:
        body["stream"] = True
        if request.api == "chat" and limits.profile.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body | spec.extra_body


def sent_body(spec: ModelSpec, body: dict[str, Any]) -> dict[str, Any]:
    """Return what is posted for such a body: in the terms of the model's API, with what its spec adds."""
    return {**(responses_body(body) if spec.api == "responses" else body), **spec.extra_body}


def _without_images(message: dict[str, Any]) -> dict[str, Any]:
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    return {**message, "content": [part for part in parts if part.get("type") != "image_url"]}


def _messages(spec: ModelSpec, request: ModelRequest, limits: EndpointLimits) -> list[dict[str, Any]]:
    if spec.api == "responses":
        return [own_items(message, limits.id) for message in request.messages]
    return chat_messages(request.messages, limits.profile, limits.id)


def _tool_choice(spec: ModelSpec, request: ModelRequest, profile: Profile) -> str | dict[str, Any]:
    """Return the agent's choice in the terms of the API; a function that is not on offer cannot be asked for."""
    choice = spec.tool_choice or profile.tool_choice
    if isinstance(choice, str):
        return request.tool_choice or choice
    if all(tool["function"]["name"] != choice.function for tool in request.tools):
        return "required"
    return {"type": "function", "function": {"name": choice.function}}


ENCRYPTED = "reasoning.encrypted_content"
"""The value of `include` that requests reasoning which can be sent back to an endpoint that stores nothing."""

_SAME = ("model", "temperature", "stream", "parallel_tool_calls", "include")

_LEAST_ANSWER_TOKENS = 16
"""OpenAI refuses a lower limit."""


def responses_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the request that asks the same; `include` says whether reasoning can be sent back."""
    encrypted = ENCRYPTED in chat.get("include", ())
    body = {name: chat[name] for name in _SAME if name in chat}
    body["store"] = False
    body["input"] = [item for message in chat["messages"] for item in _items(message, encrypted)]
    if "tools" in chat:
        body["tools"] = [_tool(tool) for tool in chat["tools"]]
    if "tool_choice" in chat:
        body["tool_choice"] = _responses_choice(chat["tool_choice"])
    if "response_format" in chat:
        form = chat["response_format"]
        body["text"] = {"format": {**_schema(form), "type": form["type"]}}
    if "reasoning_effort" in chat:
        body["reasoning"] = {"effort": chat["reasoning_effort"]}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in chat:
            body["max_output_tokens"] = max(chat[name], _LEAST_ANSWER_TOKENS)
    return body


def own_items(message: dict[str, Any], endpoint: str) -> dict[str, Any]:
    """Return the message without the items of its answer, unless they came from the endpoint of that id."""
    if message.get("items_of") == endpoint:
        return message
    return without_items(message)


def _items(message: dict[str, Any], encrypted: bool) -> list[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message["tool_call_id"],
                "output": _parts(content),
            }
        ]
    if role != "assistant":
        return [{"role": role, "content": _parts(content)}]
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    return _as_answered(message.get("items") or [], content, calls, encrypted) or [
        *([{"role": "assistant", "content": content}] if content else []),
        *calls,
    ]


def _as_answered(
    items: list[dict[str, Any]], text: Any, calls: list[dict[str, Any]], encrypted: bool
) -> list[dict[str, Any]]:
    """Return the answer as the endpoint gave it; [] where it would refuse that.

    Reasoning must be whole, and belongs to the item behind it.
    """
    if not all(_can_be_sent(item, encrypted) for item in items):
        return []
    left, found = list(calls), list[dict[str, Any]]()
    for item in items:
        if item["type"] == "function_call":
            found += [{**item, **left.pop(0)}] if left else []
        elif item["type"] == "message" and "content" not in item:
            part = {"type": "output_text", "text": text, "annotations": item.get("annotations", [])}
            bare = {key: value for key, value in item.items() if key != "annotations"}
            found += [{**bare, "role": "assistant", "content": [part]}] if text else []
        else:
            found.append(item)
    if text and not any(item["type"] == "message" for item in items):
        found.append({"role": "assistant", "content": text})
    found += left
    return [] if not found or found[-1].get("type") == "reasoning" else found


def _can_be_sent(item: dict[str, Any], encrypted: bool) -> bool:
    if item.get("status") in ("in_progress", "incomplete"):
        return False
    return item["type"] != "reasoning" or bool((encrypted and item.get("encrypted_content")) or item.get("content"))


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "input_image", "detail": "auto", **_image(part["image_url"])}
        if part["type"] == "image_url"
        else {"type": "input_text", "text": part["text"]}
        for part in content
    ]


def _image(image: dict[str, Any]) -> dict[str, Any]:
    return {"image_url": image["url"], **({"detail": image["detail"]} if "detail" in image else {})}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call["id"], **call["function"]}


def _schema(form: dict[str, Any]) -> dict[str, Any]:
    return {"strict": False, **form["json_schema"]} if "json_schema" in form else {}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    # A chat completion is not strict unless it says so, a response is.
    return {"type": "function", "strict": False, **tool["function"]} if "function" in tool else tool


def _responses_choice(choice: Any) -> Any:
    return choice if isinstance(choice, str) else {"type": "function", "name": choice["function"]["name"]}
