"""The body of a request as it goes to an endpoint: what a run asks, as the model's spec has it sent."""

from typing import Any, get_args

import msgspec

from cadre.adapters.models.profiles import endpoint_id, profile_of
from cadre.adapters.models.responses_request import ENCRYPTED, own_items, responses_body
from cadre.adapters.models.sent_messages import chat_messages
from cadre.engine.context.context_budget import answer_tokens
from cadre.engine.model_request import ModelRequest
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
