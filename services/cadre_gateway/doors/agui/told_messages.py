"""The messages of a thread as its client has them by now: what it sent, and the calls that it was told since."""

from __future__ import annotations

from typing import Any

from cadre_gateway.doors.agui.events import Json, ThreadEvents
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.progress import Place, Progress

_OWN_AFFAIRS = ("reasoning", "activity")
"""Roles of messages that clients keep although a snapshot lacks them, as long as it has none of that role."""


async def messages_told(answers: Answers, progress: Progress, sent: list[Json]) -> list[Json]:
    """What a client that has `sent` these has made of what was told since. Raises as `Answers.so_far` does."""
    place = Place(progress.run, progress.after)
    events, found = ThreadEvents("", "", place), _Messages(sent)
    async with answers.pages(place) as pages:
        async for page in pages:
            for stored in page:
                if stored.seq <= progress.seq:
                    found.take(events.take(stored))
    return found.all


class _Messages:
    def __init__(self, sent: list[Json]) -> None:
        self.all = [message for message in sent if message.get("role") not in _OWN_AFFAIRS]

    def take(self, events: list[Json]) -> None:
        """Makes of events what a client makes of them."""
        for event in events:
            who: dict[str, Any] = {key: event[key] for key in ("subagentRunId",) if key in event}
            match event["type"]:
                case "TOOL_CALL_START":
                    function = {"name": event["toolCallName"], "arguments": ""}
                    call = {"id": event["toolCallId"], "type": "function", "function": function}
                    self.all.append({"id": call["id"], "role": "assistant", "toolCalls": [call], **who})
                case "TOOL_CALL_ARGS":
                    self.all[-1]["toolCalls"][0]["function"]["arguments"] += event["delta"]
                case "TOOL_CALL_RESULT":
                    told = {key: event[key] for key in ("toolCallId", "role", "content")}
                    self.all.append({"id": event["messageId"], **told, **who})
                case _:
                    pass
