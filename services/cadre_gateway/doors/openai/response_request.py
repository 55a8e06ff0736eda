"""The body of a response as a turn: what is said now, what was said before, and what is answered."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.protocol.cards import AgentCard
from cadre_gateway.doors.callers_tools import schema_of, tools_of
from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.doors.openai.content_parts import content_of, text_of
from cadre_gateway.doors.openai.response_id import place_of_response
from cadre_gateway.doors.openai.turn import Said, Turn
from cadre_gateway.doors.openai.turn_request import Envelope, session_name
from cadre_gateway.doors.verdict_words import PersonsWord
from cadre_gateway.requests.problems import invalid

OWN_NOTE = "openai."
"""Begins the keys of a run's metadata that are this door's own."""
BACKGROUND, PREVIOUS = f"{OWN_NOTE}background", f"{OWN_NOTE}previous"

_RULES = ("system", "developer")
_PASSED_OVER = ("function_call", "reasoning", "item_reference", "mcp_approval_request", "mcp_list_tools")


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
        self.said: list[Said] = []
        self.now = MessageContent()
        """Of the last message of a person."""
        self.results: dict[str, str] = {}
        """Since that message, by call; likewise the words."""
        self.words: dict[str, PersonsWord] = {}

    def take(self, item: dict[str, Any], where: str) -> None:
        """Reads one item. Raises a 422 problem."""
        match item:
            case {"type": "function_call_output", "call_id": str(call)}:
                self.results[call] = text_of(item.get("output"), f"{where}.output")
            case {"type": "mcp_approval_response", "approval_request_id": str(call), "approve": bool(yes)}:
                reason = item.get("reason")
                self.words[call] = PersonsWord("approved" if yes else "rejected", str(reason or ""))
            case {"type": str(kind)} if kind in _PASSED_OVER:
                pass
            case {"role": str(role)} if item.get("type", "message") == "message":
                self._take_message(role, content_of(item.get("content"), f"{where}.content"))
            case _:
                raise invalid(f"an item of type {item.get('type')!r} cannot be used - at `$.{where}`")

    def _take_message(self, role: str, content: MessageContent) -> None:
        self.said.append(Said(role, content.text))
        if role == "user":
            self.now, self.results, self.words = content, {}, {}


def response_turn(body: ResponseBody, envelope: Envelope, card: AgentCard | None) -> Turn:
    """The turn that the body asks for. Raises a 404 or 422 problem that names what cannot be used."""
    read = _Read()
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    for index, item in enumerate(items):
        read.take(item, f"input[{index}]")
    metadata = dict(body.metadata or {})
    if body.background:
        metadata[BACKGROUND] = "true"
    continues = None
    if body.previous_response_id is not None:
        continues = place_of_response(body.previous_response_id)
        metadata[PREVIOUS] = body.previous_response_id
    rules = [body.instructions or "", *(said.text for said in read.said if said.role in _RULES)]
    turn = Turn(
        agent=body.model,
        text="",
        instructions="\n\n".join(rule for rule in rules if rule),
        session=_session(body.conversation) or envelope.session,
        continues=continues,
        user=envelope.user,
        by=envelope.by,
        may_decide=envelope.may_decide,
        tools=tools_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of((body.text or {}).get("format"), "text.format"),
        metadata=metadata,
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )
    if read.results or read.words:
        return msgspec.structs.replace(turn, results=read.results, words=read.words)
    last = max((index for index, said in enumerate(read.said) if said.role == "user"), default=None)
    text = read.now.text.strip() or ("What is in this?" if read.now.images or read.now.files else "")
    if last is None or not text:
        raise invalid("say what the agent shall do, in a message of the role user - at `$.input`")
    history = [said for said in read.said[:last] if said.role in ("user", "assistant") and said.text]
    return msgspec.structs.replace(
        turn, text=text, images=read.now.images, files=read.now.files, history=history
    )


def _session(conversation: Any) -> str | None:
    given = conversation.get("id") if isinstance(conversation, dict) else conversation
    return session_name(given) if isinstance(given, str) and given else None
