"""The messages of a chat completion as an endpoint takes them: with those parts of its answers that it wants back, and
in an order that strict templates accept too."""

import hashlib
from typing import Any

from cadre.engine.model_request import ChatMessage, without_items
from cadre.spec.model import Profile

BRIDGE = "I have read the results."
"""The model's message between a tool's result and a message of the user, for endpoints that require one there."""

_NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The value that Google's API accepts for the signature that another model's calls do not have."""

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def chat_messages(messages: list[ChatMessage], profile: Profile, endpoint: str) -> list[ChatMessage]:
    """Return the messages for the endpoint of that id (`cadre.adapters.models.profiles.endpoint_id`)."""
    sent: list[ChatMessage] = []
    ids: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant":
            _add(sent, _answer(message, profile, endpoint, ids))
        elif message["role"] == "tool":
            own = message["tool_call_id"]
            sent.append({**message, "tool_call_id": ids.get(own) or call_id(own)})
        else:
            if message["role"] == "user" and not profile.user_after_tool and sent and sent[-1]["role"] == "tool":
                sent.append({"role": "assistant", "content": BRIDGE})
            _add(sent, message)
    return sent


def call_id(id: str) -> str:
    """Return the id of a call for an endpoint: nine letters and digits, which every endpoint takes."""
    number, letters = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]), ""
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters += _LETTERS[place]
    return letters


def _answer(message: ChatMessage, profile: Profile, endpoint: str, ids: dict[str, str]) -> ChatMessage:
    """Return a message of the model with its parts besides text and calls, if this model gave them."""
    own = message.get("items") if message.get("items_of") == endpoint else None
    items = own if own and profile.reasoning_back != "never" else []
    said = without_items(message)
    for item in items:
        if item["type"] != "message":
            continue
        left_out = {"type", "annotations", "thinking"}
        if profile.reasoning_back != "verbatim":
            left_out.add("content")
        fields = {key: value for key, value in item.items() if key not in left_out}
        if isinstance(thinking := item.get("thinking"), dict):
            text = said.get("content")
            fields["content"] = [thinking, *([{"type": "text", "text": text}] if text else [])]
        said |= fields
    if "tool_calls" not in message:
        return said
    if said.get("content") is None:
        # Some endpoints refuse null, others a message without content.
        said["content"] = ""
    calls = [item for item in items if item["type"] == "function_call"]
    said["tool_calls"] = [
        _call(call, calls[place] if len(calls) == len(message["tool_calls"]) else {}, ids)
        for place, call in enumerate(message["tool_calls"])
    ]
    first = said["tool_calls"][0]
    if profile.reasoning_back == "signed" and "extra_content" not in {*first, *said}:
        first["extra_content"] = _NO_SIGNATURE
    if profile.reasoning_back == "required" and not any(key.startswith("reasoning") for key in said):
        said["reasoning_content"] = " "
    return said


def _call(call: dict[str, Any], item: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    ids[call["id"]] = str(item.get("id") or call_id(call["id"]))
    more = {key: value for key, value in item.items() if key not in ("type", "id")}
    return {**call, "id": ids[call["id"]], **more}


def _add(sent: list[ChatMessage], message: ChatMessage) -> None:
    """Add a message, to the one before it where both are plain and of the same role: templates refuse two in a row."""
    last = sent[-1] if sent else None
    plain = {"role", "content"}
    if last is None or last["role"] != message["role"] or not last.keys() == message.keys() == plain:
        sent.append(message)
        return
    before, now = last["content"], message["content"]
    if isinstance(before, str) and isinstance(now, str):
        sent[-1] = {**last, "content": f"{before}\n\n{now}"}
    else:
        sent[-1] = {**last, "content": [*_parts(before), *_parts(now)]}


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
