"""Messages as an endpoint takes them: the conversation that they are made of is kept for the next request."""

import copy
from typing import Any

import pytest

from cadre.adapters.models.sent_messages import chat_messages
from cadre.spec.model import Profile

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "You count."},
    {"role": "user", "content": "Count."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"run_1_{place}", "type": "function", "function": {"name": "count", "arguments": "{}"}}
            for place in range(2)
        ],
    },
    {"role": "tool", "tool_call_id": "run_1_0", "content": "1"},
    {"role": "tool", "tool_call_id": "run_1_1", "content": "2"},
    {"role": "user", "content": "Go on."},
    {"role": "user", "content": "Quickly."},
]
OWN = [{"type": "message", "reasoning_content": "I count."}]


@pytest.mark.parametrize("reasoning", ["never", "received", "required", "signed"])
@pytest.mark.parametrize("items", [[], OWN])
def test_sending_a_conversation_changes_nothing_of_it(reasoning: Any, items: list[dict[str, Any]]) -> None:
    messages = copy.deepcopy(CONVERSATION)
    if items:
        messages[2] |= {"items": items, "items_of": "here"}
    before = copy.deepcopy(messages)
    profile = Profile(reasoning_back=reasoning, user_after_tool=False)
    first = copy.deepcopy(chat_messages(messages, profile, "here"))
    assert messages == before
    assert chat_messages(messages, profile, "here") == first
    called = [call["id"] for message in first for call in message.get("tool_calls") or []]
    assert called == [message["tool_call_id"] for message in first if message["role"] == "tool"]
    assert all(len(one) == 9 and one.isalnum() for one in called)


@pytest.mark.parametrize("items", [[], OWN])
def test_a_call_without_a_text_goes_with_an_empty_one(items: list[dict[str, Any]]) -> None:
    """llama.cpp, LM Studio and Ollama have refused null here."""
    messages = copy.deepcopy(CONVERSATION)
    if items:
        messages[2] |= {"items": items, "items_of": "here"}
    assert chat_messages(messages, Profile(), "here")[2]["content"] == ""
