"""A chat completion request in the terms of the Responses API.

Requests are stateless: nothing is stored at the endpoint, and each has the whole conversation, with the items that the
endpoint gave in addition to its texts and calls.
"""

from collections.abc import Mapping
from typing import Any

from cadre.engine.model_request import without_items

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
        body["tool_choice"] = _tool_choice(chat["tool_choice"])
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
    return item["type"] != "reasoning" or bool(
        (encrypted and item.get("encrypted_content")) or item.get("content")
    )


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


def _tool_choice(choice: Any) -> Any:
    return choice if isinstance(choice, str) else {"type": "function", "name": choice["function"]["name"]}
