"""The answer to a turn as a chat completion: whole, or as chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cadre.engine.tool_names import FINAL_ANSWER
from cadre.protocol.deltas import Delta
from cadre_gateway.doors.following import check_success
from cadre_gateway.doors.live_text import LiveText
from cadre_gateway.doors.openai.errors import answer_changed, error_of
from cadre_gateway.doors.progress import HeldBack, Pause, Place, Progress, Tokens, answer_text
from cadre_gateway.requests.problems import Problem

MAX_DELTA_CHARS = 4_000
_MAX_ARGUMENTS_CHARS = 2_000

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


class ChatAnswer:
    """What has become of a run, in the words of a chat."""

    def __init__(
        self, progress: Progress, agent: str, created: int, base_url: str, *, as_call: bool = False
    ) -> None:
        """`base_url` is where people reach the gateway; the answer is told as text, or `as_call` of `final_answer`."""
        self._progress = progress
        mark = f"-{progress.after}" if progress.after else ""
        self._id = f"chatcmpl-{progress.run}{mark}"
        self._agent, self._created, self._base_url, self._as_call = agent, created, base_url, as_call
        self._place = Place(progress.run, progress.after)
        self._live = LiveText(self._place)

    def whole(self, doings: list[str]) -> dict[str, Any]:
        """The completion of a settled run. Raises Problem when the run failed."""
        content, calls, reason = self._settled()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if calls else ""),
            "refusal": None,
        }
        if doings:
            message["reasoning_content"] = "".join(doings)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(self._progress.tokens)}

    def first_chunk(self) -> bytes:
        """The chunk that begins the answer."""
        return self._chunk({"role": "assistant", "content": ""})

    def doing_chunk(self, line: str) -> bytes:
        """What the team does, which chat programs fold away as thoughts."""
        return self._chunk({"reasoning_content": line})

    def live_chunks(self, delta: Delta) -> Iterator[bytes]:
        """What the model has written more of the answer."""
        self._live.take(delta)
        if not self._as_call and (more := self._live.more()):
            yield self._chunk({"content": more})

    def last_chunks(self, *, with_usage: bool) -> Iterator[bytes]:
        """What was not told yet of the answer of a settled run, and the end of the stream."""
        try:
            content, calls, reason = self._settled()
            content = self._behind_the_told(content)
        except Problem as problem:
            yield error_chunk(problem)
            return
        for begin in range(0, len(content), MAX_DELTA_CHARS):
            yield self._chunk({"content": content[begin : begin + MAX_DELTA_CHARS]})
        for index, call in enumerate(calls):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, reason)
        if with_usage:
            yield _frame(
                {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(self._progress.tokens)}
            )
        yield DONE

    def _behind_the_told(self, content: str) -> str:
        if self._progress.pause is None:
            rest = self._live.rest(content)
            if rest is None:
                raise answer_changed(self._place)
            return rest
        # What was told was no answer: the model has gone on to make calls.
        return f"\n\n{content}" if content and self._live.told else content

    def _settled(self) -> tuple[str, list[dict[str, Any]], str]:
        """The content, the calls of the caller's functions, and the finish reason."""
        progress = self._progress
        if (pause := progress.pause) is not None:
            calls = [_call(call, held) for call, held in pause.held.items() if held.is_callers]
            asked = {call: held for call, held in pause.held.items() if not held.is_callers}
            return self._question(pause, asked), calls if not asked else [], "stop" if asked else "tool_calls"
        check_success(progress)
        assert progress.end is not None
        if self._as_call:
            return (
                "",
                [_function(f"{progress.run}_final", FINAL_ANSWER, {"answer": progress.end.output})],
                "tool_calls",
            )
        reason = "length" if progress.end.state == "max_steps_error" else "stop"
        return answer_text(progress.end.output), [], reason

    def _question(self, pause: Pause, asked: dict[str, HeldBack]) -> str:
        """What a person is asked, and how they may answer."""
        if not asked:
            return ""
        lines = [
            f"**{_what(held)}**\n{held.request.reason} (call `{call}`)".replace("\n ", " ")
            for call, held in asked.items()
        ]
        how = "Answer `approve`, or `reject` and why; anything else is told to the team instead."
        if all(held.request.name == "ask_user" for held in asked.values()):
            how = "Your next message is the answer."
        where = f"Or decide at {self._base_url}/#/approvals (run {self._progress.run})."
        return "\n\n".join(["Waiting for your word:", *lines, f"{how} {where}"])

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._agent}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _frame({**self._head("chat.completion.chunk"), "choices": [choice]})


def plain_answer(agent: str, text: str, created: int, *, stream: bool) -> dict[str, Any] | list[bytes]:
    """An answer that no run has given: the completion, or its chunks."""
    head = {"id": f"chatcmpl-task-{created}", "created": created, "model": agent}
    if not stream:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage(Tokens())}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": text}, None),
        ({}, "stop"),
    ]
    chunks = [
        _frame(
            {
                **head,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}],
            }
        )
        for delta, reason in deltas
    ]
    return [*chunks, DONE]


def error_chunk(problem: Problem) -> bytes:
    """The chunk by which a stream that has begun tells of a problem; clients raise it."""
    return _frame({"error": error_of(problem)})


def usage(tokens: Tokens) -> dict[str, Any]:
    """What the models of the whole tree were sent and have written."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def _call(call: str, held: HeldBack) -> dict[str, Any]:
    return _function(call, held.request.name, held.request.arguments)


def _function(call: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    written = json.dumps(arguments, ensure_ascii=False)
    return {"id": call, "type": "function", "function": {"name": name, "arguments": written}}


def _what(held: HeldBack) -> str:
    request = held.request
    if request.name == "ask_user":
        return str(request.arguments.get("question", ""))
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    short = arguments if len(arguments) <= _MAX_ARGUMENTS_CHARS else arguments[:_MAX_ARGUMENTS_CHARS] + "…"
    return f"{request.name} {short}" if request.kind != "question" else request.name


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
