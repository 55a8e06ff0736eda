"""What a remote agent asks, as a person reads it, and the person's word as the message that it is sent."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.context.observation import observation_of
from cadre.protocol.a2a import RemoteTask
from cadre.protocol.messages import Decision

_ASK_USER = "ask_user"
"""The tool by which agents of Cadre ask people: it takes an answer, not a consent."""


def question_of(found: RemoteTask) -> str:
    """Its words, and the calls that an agent of Cadre asks about."""
    calls = [f"{one['tool']} {observation_of(one.get('arguments') or {})}" for one in _calls(found.asked)]
    return "\n".join([found.said, *calls]).strip() or "The remote agent asks for an answer."


def reply_to(asked: Sequence[Any], decision: Decision) -> dict[str, Any]:
    """The word as text; for each call that an agent of Cadre has named, as the data that it reads."""
    calls = _calls(asked)
    is_no = decision.verdict == "rejected"
    if not calls:
        no = f"reject: {decision.feedback}" if decision.feedback else "reject"
        return {"text": no if is_no else decision.feedback or "approve"}
    return {"data": [_ruling(one, decision, is_no=is_no) for one in calls]}


def _calls(asked: Sequence[Any]) -> list[dict[str, Any]]:
    return [one for one in asked if isinstance(one, dict) and {"call", "tool"} <= one.keys()]


def _ruling(one: dict[str, Any], decision: Decision, *, is_no: bool) -> dict[str, Any]:
    if one.get("tool") == _ASK_USER and not is_no:
        return {
            "call": one["call"],
            "decision": "correct",
            "arguments": {"answer": decision.feedback or "yes"},
        }
    found = {"call": one["call"], "decision": "reject" if is_no else "approve"}
    return found | ({"feedback": decision.feedback} if decision.feedback else {})
