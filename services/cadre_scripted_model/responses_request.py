"""Reads requests of the Responses API as chat completion requests, so that one script serves both."""

from typing import Any

import msgspec

from cadre_scripted_model.request import BadRequest, RequestView, read_request

_CALL, _RESULT = "function_call", "function_call_output"


def read_responses_request(body: object) -> RequestView:
    """Returns what a request's JSON body says. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise BadRequest("input must be a text or a list with at least one item", "input")
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not (item.get("role") or item.get("type")):
            raise BadRequest(f"input[{index}] must be an object with a role or a type", "input")
    _check_calls(items)
    system = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    chat = {
        "model": body.get("model"),
        "messages": [*system, *_messages(items)],
        "tools": [_tool(tool) for tool in body.get("tools") or []],
        "tool_choice": _tool_choice(body.get("tool_choice")),
        "parallel_tool_calls": body.get("parallel_tool_calls"),
        "response_format": _response_format((body.get("text") or {}).get("format")),
        "stream": body.get("stream"),
    }
    return msgspec.structs.replace(read_request(chat), body=body, api="responses")


def _check_calls(items: list[dict[str, Any]]) -> None:
    """Raises BadRequest for a result without its call, and the other way round, in the words of the real API."""
    calls = {str(item.get("call_id")) for item in items if item.get("type") == _CALL}
    results = {str(item.get("call_id")) for item in items if item.get("type") == _RESULT}
    for lone in sorted(results - calls):
        raise BadRequest(f"No tool call found for function call output with call_id {lone}.", "input")
    for lone in sorted(calls - results):
        raise BadRequest(f"No tool output found for function call {lone}.", "input")


def _messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as messages: what the model said and called in one answer is one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == _RESULT:
            content = _content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind == "message" and item.get("role") != "assistant":
            messages.append({"role": str(item.get("role")), "content": _content(item.get("content"))})
        else:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            _add_said(messages[-1], kind, item)
    return messages


def _add_said(message: dict[str, Any], kind: str, item: dict[str, Any]) -> None:
    if kind == "message":
        content = _content(item.get("content"))
        texts = [content] if isinstance(content, str) else [str(part.get("text") or "") for part in content]
        message["content"] += "".join(texts)
    elif kind == _CALL:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        called = {"id": item.get("call_id"), "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(called)


def _content(content: object) -> Any:
    """A message's content; images as chat completions have them."""
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "image_url", "image_url": {"url": part.get("image_url")}}
        if part.get("type") == "input_image"
        else part
        for part in content
        if isinstance(part, dict)
    ]


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _response_format(form: Any) -> Any:
    if not isinstance(form, dict) or form.get("type") == "text":
        return None
    return {"type": "json_schema", "json_schema": form} if form.get("type") == "json_schema" else form
