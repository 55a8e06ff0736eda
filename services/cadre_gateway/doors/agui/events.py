"""A tree of runs as AG-UI's events: the same entries always give the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.ports import Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import is_within
from cadre_gateway.doors.following import LiveText
from cadre_gateway.doors.progress import PendingAnswer, Place, Progress, answer_text

Json = dict[str, Any]

_ANSWER_SCHEMA = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["approved", "rejected", "corrected"]},
        "arguments": {"type": "object"},
        "feedback": {"type": "string"},
    },
    "required": ["verdict"],
}


class ThreadEvents:
    """The events of one AG-UI run: of what a run of Cadre does behind a place, until it pauses or ends."""

    def __init__(self, thread: str, run: str, place: Place) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._root, self._after = place.run, place.after
        self._members: dict[str, Json] = {}
        """Runs below that are at work, and the form in which their start was sent."""
        self._told: set[str] = set()
        self._paused: set[str] = set()
        """Calls that were unfinished: a no to what they ask is no end of them."""
        self._is_resumed = place.after == 0
        self._live = LiveText(place)
        mark = f"-{place.after}" if place.after else ""
        self._message = {"messageId": f"{place.run}-answer{mark}"}

    def begin(self) -> list[Json]:
        """Return the first event."""
        return [{"type": "RUN_STARTED", **self._ids, "metadata": {"cadre": {"run": self._root}}}]

    def take(self, stored: Stored) -> list[Json]:
        """Return the events for the next entry."""
        again: list[Json] = []
        is_news = stored.seq > self._after
        if is_news and not self._is_resumed:
            self._is_resumed, again = True, list(self._members.values())
        told = [event for one in stored.entry.events for event in self._of(one, stored.entry)]
        return [*again, *told] if is_news else []

    def written(self, delta: Delta) -> list[Json]:
        """Return the events for the model's new text of the answer."""
        self._live.take(delta)
        is_open = bool(self._live.told)
        return self._text(self._live.more(), is_open=is_open)

    def settle(self, progress: Progress) -> list[Json]:
        """Return the last events: the run pauses, or has ended. See `_answer` for a snapshot among them."""
        if progress.end is None:
            return self._pause(progress)
        end = progress.end
        left = [
            {"type": "SUBAGENT_ERROR", "subagentRunId": run, "message": "its run was ended"} for run in self._members
        ]
        tokens = {"inputTokens": progress.tokens.input, "outputTokens": progress.tokens.output}
        if end.state == "error" and end.error is not None:
            error = {
                "type": "RUN_ERROR",
                "message": end.error.message,
                "code": end.error.code,
                "usage": [tokens],
            }
            return [*left, *self._close(), error]
        if end.state == "cancelled":
            return [*left, *self._close(), self._finished({"type": "cancelled"}, tokens)]
        answer = self._answer(answer_text(end.output))
        return [*left, *answer, self._finished({"type": "success"}, tokens, for_people(end.output))]

    def _answer(self, text: str) -> list[Json]:
        """Return the rest of the answer. If the text sent live is not part of it, the message is replaced: the snapshot
        lacks those before it.
        """
        is_open = bool(self._live.told)
        rest = self._live.rest(text)
        if rest is None:
            whole = {"id": self._message["messageId"], "role": "assistant", "content": text}
            return [*self._close(), {"type": "MESSAGES_SNAPSHOT", "messages": [whole]}]
        return [*self._text(rest or ("" if is_open else " "), is_open=is_open), *self._close(opened=True)]

    def _text(self, more: str, *, is_open: bool) -> list[Json]:
        begin = {"type": "TEXT_MESSAGE_START", **self._message, "role": "assistant"}
        content = {"type": "TEXT_MESSAGE_CONTENT", **self._message, "delta": more}
        return [*([] if is_open else [begin]), content] if more else []

    def _close(self, *, opened: bool = False) -> list[Json]:
        """Return the end of the answer's message, where one is open."""
        return [{"type": "TEXT_MESSAGE_END", **self._message}] if opened or self._live.told else []

    def _finished(self, outcome: Json, tokens: Json, result: Any = None) -> Json:
        found: Json = {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "usage": [tokens]}
        return found if result is None else found | {"result": result}

    def _pause(self, progress: Progress) -> list[Json]:
        asked = {call: held for call, held in progress.held.items() if not held.is_callers}
        rest = [
            {
                "type": "SUBAGENT_FINISHED",
                "subagentRunId": run,
                "outcome": {
                    "type": "suspended",
                    "interruptIds": [call for call, held in asked.items() if is_within(held.run, run)],
                },
            }
            for run in self._members
        ]
        tokens = {"inputTokens": progress.tokens.input, "outputTokens": progress.tokens.output}
        # Clients before 1.0 refuse a success that names its pending calls; all find them by their missing results.
        outcome: Json = {"type": "success"}
        if asked:
            interrupts = [self._interrupt(call, held) for call, held in asked.items()]
            outcome = {"type": "interrupt", "interrupts": interrupts}
        return [*rest, *self._close(), self._finished(outcome, tokens)]

    def _interrupt(self, call: str, held: PendingAnswer) -> Json:
        request = held.request
        found: Json = {
            "id": call,
            "reason": "tool_approval",
            "message": held.asks,
            "toolCallId": call,
            "responseSchema": _ANSWER_SCHEMA,
            "metadata": {
                "tool": request.name,
                "arguments": for_people(request.arguments),
                "reason": request.reason,
            },
        }
        if request.expires_at is not None:
            found["expiresAt"] = datetime.fromtimestamp(request.expires_at, UTC).isoformat().replace("+00:00", "Z")
        return found | self._who(held.run)

    def _who(self, run: str) -> Json:
        return {} if run == self._root else {"subagentRunId": run}

    def _of(self, event: AnyEvent, entry: Entry) -> list[Json]:
        who = self._who(entry.run)
        match event:
            case ev.RunAccepted(task=task) if who:
                begun = {"type": "SUBAGENT_STARTED", **who, "name": entry.agent, "description": task.task}
                if entry.parent in self._members:
                    begun["parentSubagentRunId"] = entry.parent
                self._members[entry.run] = begun | {"parentToolCallId": entry.run}
                return [self._members[entry.run]]
            case ev.ModelAnswered(content=content) if content.strip():
                return _thought(f"{entry.run}-{entry.n}", content, who)
            case ev.ToolCalled(call=call, tool=name, arguments=arguments):
                return self._call(call, name, arguments, who)
            case ev.ApprovalRequested(call=call, name=name, arguments=arguments):
                return self._call(call, name, arguments, who)
            case ev.DelegateStarted(call=call, member=name, task=task):
                return self._call(call, name, {"task": task, **event.inputs}, who)
            case ev.ToolAnswered(call=call):
                failed = event.error is not None and event.output is None
                return _result(call, event.error.message if failed and event.error else event.output, who)
            case ev.DelegateFinished(call=call):
                return _result(call, event.text, who)
            case ev.ToolPaused(call=call):
                self._paused.add(call)
                return []
            case ev.ApprovalDecided(call=call, verdict="rejected") if call in self._paused:
                return []  # its tool is sent, and answers
            case ev.ApprovalDecided(call=call, verdict="rejected" | "expired"):
                return _result(call, f"{event.verdict}: {event.feedback}".rstrip(": "), who)
            case ev.RunFinished() if who:
                self._members.pop(entry.run, None)
                if event.error is not None:
                    return [
                        {
                            "type": "SUBAGENT_ERROR",
                            **who,
                            "message": event.error.message,
                            "code": event.error.code,
                        }
                    ]
                result = {"result": for_people(event.output), "outcome": {"type": "success"}}
                return [{"type": "SUBAGENT_FINISHED", **who, **result}]
            case _:
                return []

    def _call(self, call: str, name: str, arguments: Json, who: Json) -> list[Json]:
        """Return the events of a call once: when it is made, or earlier, when it is held for a person."""
        if call in self._told:
            return []
        self._told.add(call)
        given = json.dumps(for_people(arguments), ensure_ascii=False)
        return [
            {"type": "TOOL_CALL_START", **who, "toolCallId": call, "toolCallName": name},
            {"type": "TOOL_CALL_ARGS", **who, "toolCallId": call, "delta": given},
            {"type": "TOOL_CALL_END", **who, "toolCallId": call},
        ]


def _result(call: str, output: Any, who: Json) -> list[Json]:
    message = {
        "messageId": f"{call}-result",
        "toolCallId": call,
        "role": "tool",
        "content": answer_text(output),
    }
    return [{"type": "TOOL_CALL_RESULT", **who, **message}]


def _thought(message_id: str, text: str, who: Json) -> list[Json]:
    message = {**who, "messageId": message_id}
    return [
        {"type": "REASONING_START", **message},
        {"type": "REASONING_MESSAGE_START", **message, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", **message, "delta": text},
        {"type": "REASONING_MESSAGE_END", **message},
        {"type": "REASONING_END", **message},
    ]
