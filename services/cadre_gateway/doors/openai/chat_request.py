"""The body of a chat completion as a turn: what is said now, what was said before, and what is to come back."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.protocol.cards import AgentCard
from cadre_gateway.doors.callers_tools import schema_of, tools_of
from cadre_gateway.doors.history import ToldHistory
from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.doors.openai.content_parts import content_of
from cadre_gateway.doors.openai.turn import Turn
from cadre_gateway.doors.openai.turn_request import Envelope
from cadre_gateway.requests.problems import invalid

_RULES = ("system", "developer")


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message of the conversation."""

    role: str
    content: Any = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


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
        raise invalid("an agent gives one answer: leave n out, or send several requests", field="n")
    messages = body.messages
    contents = [content_of(one.content, f"messages[{at}].content") for at, one in enumerate(messages)]
    asked = max((at for at, one in enumerate(messages) if one.role == "user"), default=-1)
    results = _results(messages, contents, asked + 1)
    if asked < 0 and not results:
        raise invalid("say what the agent shall do, in a message of the role user", field="messages")
    history, mark = _history(messages, contents, asked)
    now = contents[asked] if asked >= 0 else MessageContent()
    text = now.text.strip() or ("What is in this?" if now.images or now.files else "")
    if asked >= 0 and not text:
        raise invalid("the message is empty: say what the agent shall do", field=f"messages[{asked}].content")
    rules = [content.text for one, content in zip(messages, contents, strict=True) if one.role in _RULES]
    return Turn(
        agent=body.model,
        text=text,
        images=now.images,
        files=now.files,
        instructions="\n\n".join(rule for rule in rules if rule),
        history=history,
        mark=mark,
        results=results,
        session=envelope.session,
        user=envelope.user,
        by=envelope.by,
        caller=envelope.caller,
        tools=tools_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of(body.response_format, "response_format"),
        metadata=body.metadata or {},
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )


def _history(
    messages: list[ChatMessage], contents: list[MessageContent], asked: int
) -> tuple[ToldHistory, str]:
    """Return all messages but the one that is `asked`, and what stands for those up to that one."""
    history, mark = ToldHistory(), ""
    for at, (one, content) in enumerate(zip(messages, contents, strict=True)):
        if at == asked:
            mark = history.mark(one.role, content, name=one.name)
        elif one.role not in _RULES:
            history.add(
                one.role,
                content,
                name=one.name,
                calls=[_call(call) for call in one.tool_calls or []],
                call=one.tool_call_id,
                function=one.function_call,
                reasoning=one.reasoning_content,
                after_task=at > asked,
            )
    return history, mark


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call of a function as a run reads it."""
    function = call.get("function")
    about = function if isinstance(function, dict) else call.get("custom") or {}
    return {"id": call.get("id"), **about} if isinstance(about, dict) else {"id": call.get("id")}


def _results(messages: list[ChatMessage], contents: list[MessageContent], since: int) -> dict[str, str]:
    """Return the results of the caller's functions since the last message of a person."""
    found = {}
    for at, one in enumerate(messages[since:], since):
        if one.role == "tool":
            if not one.tool_call_id:
                raise invalid("whose result is it?", field=f"messages[{at}].tool_call_id")
            found[one.tool_call_id] = contents[at].text
    return found
