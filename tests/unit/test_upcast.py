"""Messages of an earlier schema version are read as what they mean now."""

import json
from typing import Any

import pytest

from cadre.delivery.codec import STEPS, decode, encode, upcast
from cadre.errors import NewerSchema, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.protocol.messages import (
    SCHEMA_VERSION,
    CodeCall,
    EffectClaim,
    EffectResult,
    Record,
    ToolCall,
)
from journals import kept

MESSAGES = [(version, stored.type) for version in kept.VERSIONS for stored in kept.messages(version)]


@pytest.mark.parametrize(("version", "kind"), MESSAGES)
def test_a_stored_message_says_what_it_said(version: str, kind: str) -> None:
    stored = next(one for one in kept.messages(version) if one.type == kind)
    said = json.loads(stored.data)
    message = decode(stored.data, Record | ToolCall | CodeCall | EffectClaim | EffectResult)
    now = json.loads(encode(message))
    assert {key: now[key] for key in said} == said
    assert message.v == SCHEMA_VERSION


@pytest.mark.parametrize("version", kept.VERSIONS)
def test_every_kept_entry_is_read(version: str) -> None:
    for name in kept.names(version):
        for line in kept.lines(version, name):
            entry = decode(line.data, Entry)
            assert line.subject.endswith(f".{entry.tree}.{entry.run}")


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> int:
    """Invent a predecessor of this schema, in which a call's `tool` was its `function`; return its version."""

    def from_0(message: dict[str, Any]) -> dict[str, Any]:
        for part in (message, message.get("claim"), message.get("result")):
            if part is not None and "function" in part:
                part["tool"] = part.pop("function")
        return message

    monkeypatch.setitem(STEPS, SCHEMA_VERSION - 1, from_0)
    return SCHEMA_VERSION - 1


def as_stored_in(version: int, message: Any) -> dict[str, Any]:
    """Return the message as a service of the invented predecessor wrote it."""
    said: dict[str, Any] = json.loads(encode(message))
    for part in (said, said.get("claim"), said.get("result")):
        if part is not None:
            part["v"] = version
            part["function"] = part.pop("tool", "add")
    return said


def effect_result() -> EffectResult:
    stored = next(one for one in kept.messages("1.0") if one.type == "effect_result")
    found: EffectResult = decode(stored.data, EffectResult)
    return found


def test_an_earlier_message_is_converted_with_the_messages_within_it(renamed: int) -> None:
    now = effect_result()
    said = as_stored_in(renamed, now)
    assert decode(json.dumps(said).encode(), EffectResult) == now


def test_what_users_wrote_is_left_alone(renamed: int) -> None:
    """A task may carry what looks like a message of the protocol."""
    stored = next(one for one in kept.messages("1.0") if one.type == "task")
    said = json.loads(stored.data)
    said |= {"v": renamed, "inputs": {"type": "task", "v": renamed, "task": {"function": 1}}}
    message = decode(json.dumps(said).encode(), Record)
    assert message.inputs == {"type": "task", "v": renamed, "task": {"function": 1}}


def test_steps_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, 1, lambda message: message | {"passed": [1]})
    monkeypatch.setitem(STEPS, 2, lambda message: message | {"passed": [*message["passed"], 2]})
    assert upcast({"type": "cancel", "v": 1}, 1, 3) == {"type": "cancel", "v": 3, "passed": [1, 2]}


def test_a_version_without_a_step_is_not_read() -> None:
    with pytest.raises(UnreadableMessage):
        decode(json.dumps(as_stored_in(0, effect_result())).encode(), EffectResult)
    with pytest.raises(NewerSchema):
        decode(json.dumps(as_stored_in(SCHEMA_VERSION + 1, effect_result())).encode(), EffectResult)
