"""The body of a chat completion as a turn: what is said now, what was said before, and what is to come back."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.protocol.cards import AgentCard
from cadre_gateway.doors.callers_tools import schema_of, tools_of
from cadre_gateway.doors.openai.content_parts import content_of, text_of
from cadre_gateway.doors.openai.turn import Said, Turn
from cadre_gateway.doors.openai.turn_request import Envelope
from cadre_gateway.requests.problems import invalid

_RULES = ("system", "developer")


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message of the conversation."""

    role: str
    content: Any = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    """How a stream is told."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/chat/completions, as far as an agent has a use for it: the rest, such as `temperature`, is
    the agent's own."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    n: int | None = None


def chat_turn(body: ChatBody, envelope: Envelope, card: AgentCard | None) -> Turn:
    """The turn that the body asks for. Raises a 422 problem that names what cannot be used."""
    if body.n not in (None, 1):
        raise invalid("an agent gives one answer: leave n out, or send several requests - at `$.n`")
    last = next(
        (index for index in reversed(range(len(body.messages))) if _is_said(body.messages[index])), None
    )
    if last is None:
        raise invalid("say what the agent shall do, in a message of the role user - at `$.messages`")
    now = body.messages[last]
    earlier = [Said(one.role, text_of(one.content, "messages")) for one in body.messages[:last]]
    turn = Turn(
        agent=body.model,
        text="",
        instructions="\n\n".join(said.text for said in earlier if said.role in _RULES and said.text),
        history=[said for said in earlier if said.role in ("user", "assistant") and said.text],
        session=envelope.session,
        user=envelope.user,
        by=envelope.by,
        may_decide=envelope.may_decide,
        tools=tools_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of(body.response_format, "response_format"),
        metadata=body.metadata or {},
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )
    if now.role == "tool":
        return msgspec.structs.replace(turn, results=_results(body.messages))
    content = content_of(now.content, f"messages[{last}].content")
    text = content.text.strip() or ("What is in this?" if content.images or content.files else "")
    if not text:
        raise invalid(f"the message is empty: say what the agent shall do - at `$.messages[{last}].content`")
    return msgspec.structs.replace(turn, text=text, images=content.images, files=content.files)


def _is_said(message: ChatMessage) -> bool:
    return message.role in ("user", "tool")


def _results(messages: list[ChatMessage]) -> dict[str, str]:
    """The results of the caller's functions since the last message of a person."""
    since = max((index for index, one in enumerate(messages) if one.role == "user"), default=-1)
    found = {}
    for index, one in enumerate(messages[since + 1 :], since + 1):
        if one.role == "tool":
            if not one.tool_call_id:
                raise invalid(f"whose result is it? - at `$.messages[{index}].tool_call_id`")
            found[one.tool_call_id] = text_of(one.content, f"messages[{index}].content")
    return found
