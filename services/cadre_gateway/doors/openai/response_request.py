"""The body of a response as a turn: what is said now, what was said before, and what is answered."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from cadre.protocol.cards import AgentCard
from cadre_gateway.doors.callers_tools import schema_of, tools_of
from cadre_gateway.doors.history import ToldHistory
from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.doors.openai.content_parts import content_of, text_of
from cadre_gateway.doors.openai.response_id import place_of_response
from cadre_gateway.doors.openai.turn import Turn
from cadre_gateway.doors.openai.turn_request import Envelope, session_name
from cadre_gateway.doors.verdict_words import PersonsWord
from cadre_gateway.requests.problems import invalid

OWN_NOTE = "openai."
"""Begins the keys of a run's metadata that are this door's own."""
BACKGROUND, PREVIOUS = f"{OWN_NOTE}background", f"{OWN_NOTE}previous"

_RULES = ("system", "developer")


class ResponseBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/responses, as far as an agent has a use for it."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None


class _Read:
    """The items of an input, as they are read one by one."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.history, self.mark = ToldHistory(), ""
        """The messages besides `now`, and the mark of those up to `now`."""
        self.now: MessageContent | None = None
        """The last message of a person."""
        self.results: dict[str, str] = {}
        """Since that message, by call; likewise the words."""
        self.words: dict[str, PersonsWord] = {}

    def take(self, item: dict[str, Any], where: str, *, is_last: bool, is_after: bool) -> None:
        """Read one item: `is_last`: the last message of a person; `is_after`: it comes behind that. Raise a 422
        problem."""
        add = partial(self.history.add, after_task=is_after)
        match item:
            case {"type": "function_call_output", "call_id": str(call)}:
                output = content_of(item.get("output"), f"{where}.output")
                add("tool", output, call=call)
                if is_after:
                    self.results[call] = output.text
            case {"type": "mcp_approval_response", "approval_request_id": str(call), "approve": bool(yes)}:
                reason = str(item.get("reason") or "")
                add("user", MessageContent(text=reason), call=call, approve=str(yes).lower())
                if is_after:
                    self.words[call] = PersonsWord("approved" if yes else "rejected", reason)
            case {"type": "function_call", "name": str(name)}:
                called = {"id": item.get("call_id"), "name": name, "arguments": item.get("arguments")}
                add("assistant", MessageContent(), calls=[called])
            case {"type": "mcp_approval_request", "name": str(name)}:
                asked = {"id": item.get("id"), "name": name, "arguments": item.get("arguments")}
                add("assistant", MessageContent(), asked=[asked])
            case {"type": "reasoning"}:
                parts = [*(item.get("summary") or []), *(item.get("content") or [])]
                add("assistant", MessageContent(), reasoning=text_of(parts, where))
            case {"type": "item_reference", "id": str(named)}:
                add("assistant", MessageContent(), item=named)
            case {"type": "mcp_list_tools"}:
                pass
            case {"role": str(role)} if item.get("type", "message") == "message":
                content = content_of(item.get("content"), f"{where}.content")
                if is_last:
                    self.now, self.mark = content, self.history.mark(role, content)
                elif role in _RULES:
                    self.rules.append(content.text)
                else:
                    add(role, content)
            case _:
                raise invalid(f"an item of type {item.get('type')!r} cannot be used", field=where)


def _is_persons(item: dict[str, Any]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "user"


def response_turn(body: ResponseBody, envelope: Envelope, card: AgentCard | None) -> Turn:
    """The turn that the body asks for. Raises a 404 or 422 problem that names what cannot be used."""
    read = _Read()
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    last = max((at for at, item in enumerate(items) if _is_persons(item)), default=-1)
    for index, item in enumerate(items):
        read.take(item, f"input[{index}]", is_last=index == last, is_after=index > last)
    metadata = dict(body.metadata or {})
    if body.background:
        metadata[BACKGROUND] = "true"
    continues = None
    if body.previous_response_id is not None:
        continues = place_of_response(body.previous_response_id)
        metadata[PREVIOUS] = body.previous_response_id
    conversation = _session(body.conversation)
    now = read.now or MessageContent()
    text = now.text.strip() or ("What is in this?" if now.images or now.files else "")
    if not text and (last >= 0 or not (read.results or read.words)):
        raise invalid("say what the agent shall do, in a message of the role user", field="input")
    rules = [body.instructions or "", *read.rules]
    return Turn(
        agent=body.model,
        text=text,
        images=now.images,
        files=now.files,
        instructions="\n\n".join(rule for rule in rules if rule),
        history=read.history,
        mark=read.mark,
        results=read.results,
        words=read.words,
        session=conversation or envelope.session,
        continues=continues,
        adds=continues is not None or conversation is not None,
        user=envelope.user,
        by=envelope.by,
        caller=envelope.caller,
        tools=tools_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of((body.text or {}).get("format"), "text.format"),
        metadata=metadata,
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )


def _session(conversation: Any) -> str | None:
    given = conversation.get("id") if isinstance(conversation, dict) else conversation
    return session_name(given) if isinstance(given, str) and given else None
