"""Messages of earlier schema versions are read as what they mean now; real ones, as they were stored."""

import json
from typing import Any

import pytest

from cadre.delivery.codec import decode, encode
from cadre.journal.entry import EarlierEntry, Entry
from cadre.protocol.messages import (
    SCHEMA_VERSION,
    CodeCall,
    EffectClaim,
    EffectResult,
    Record,
    Spilled,
    ToolCall,
)
from cadre.protocol.upcast import OLDEST, upcast
from journals import kept

MESSAGES = [(version, stored.type) for version in kept.VERSIONS for stored in kept.messages(version)]


def test_there_is_a_step_from_every_version_to_the_next() -> None:
    for version in range(OLDEST, SCHEMA_VERSION):
        assert upcast({"type": "cancel", "v": version}, version, SCHEMA_VERSION)["v"] == SCHEMA_VERSION


@pytest.mark.parametrize(("version", "kind"), MESSAGES)
def test_a_stored_message_says_what_it_said(version: str, kind: str) -> None:
    stored = next(one for one in kept.messages(version) if one.type == kind)
    earlier = json.loads(stored.data)
    message = decode(stored.data, Record | ToolCall | CodeCall | EffectClaim | EffectResult)
    now = json.loads(encode(message))
    assert without_new_fields(now, earlier) == without_versions(earlier)
    assert message.v == SCHEMA_VERSION


def without_versions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_versions(part) for key, part in value.items() if key != "v"}
    return [without_versions(part) for part in value] if isinstance(value, list) else value


def without_new_fields(now: Any, earlier: Any) -> Any:
    """Of a message as it is written now what the old one had fields for."""
    if isinstance(now, dict) and isinstance(earlier, dict):
        return {key: without_new_fields(now[key], part) for key, part in earlier.items() if key != "v"}
    return without_versions(now)


@pytest.mark.parametrize("version", kept.VERSIONS)
def test_every_kept_entry_is_read(version: str) -> None:
    for name in kept.names(version):
        for line in kept.lines(version, name):
            entry = decode(line.data, Entry | Spilled)
            assert isinstance(entry, EarlierEntry) == (json.loads(line.data)["v"] < SCHEMA_VERSION)
            assert line.subject.endswith(f".{entry.tree}.{entry.run}")


def test_messages_within_messages_are_taken_along() -> None:
    stored = next(one for one in kept.messages("0.1") if one.type == "effect_result")
    message = decode(stored.data, EffectResult)
    assert (message.claim.v, message.result.v) == (SCHEMA_VERSION, SCHEMA_VERSION)


def test_what_users_wrote_is_left_alone() -> None:
    """A task may carry whatever looks like a message of ours."""
    stored = next(one for one in kept.messages("0.1") if one.type == "task")
    earlier = json.loads(stored.data)
    earlier["additional_args"] = {"type": "task", "v": 1, "task": {"v": 1}}
    message = decode(json.dumps(earlier).encode(), Record)
    assert message.additional_args == {"type": "task", "v": 1, "task": {"v": 1}}
