"""A response as an object: a part of a run, from where the response begins to the run's next pause or its end."""

from __future__ import annotations

import json
from typing import Any

from cadre.protocol.messages import Task
from cadre_gateway.doors.history import TOLD
from cadre_gateway.doors.openai.response_id import response_id
from cadre_gateway.doors.openai.response_request import BACKGROUND, OWN_NOTE, PREVIOUS
from cadre_gateway.doors.progress import HeldBack, Place, Progress, Tokens, answer_text

Json = dict[str, Any]

_STATUS = {
    "success": "completed",
    "max_steps_error": "incomplete",
    "cancelled": "cancelled",
    "error": "failed",
}


def status_of(progress: Progress) -> str:
    """The status of the response."""
    if progress.pause is not None:
        return "completed"
    if progress.end is not None:
        return _STATUS[progress.end.state]
    return "in_progress" if progress.task is not None else "queued"


def response_object(progress: Progress, task: Task, output: list[Json], status: str) -> Json:
    """The response with these output items."""
    place = Place(progress.run, progress.after)
    terms, end = task.terms, progress.end if progress.pause is None else None
    is_over = status not in ("queued", "in_progress")
    begun = next((pause.at for pause in progress.pauses if pause.seq == progress.after), task.at)
    form: Json = {"type": "text"}
    if terms.output_schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": terms.output_schema, "strict": False}
        form["description"] = None
    error = None
    if status == "failed" and end is not None:
        why = f"{end.error.type}: {end.error.message}" if end.error is not None else "the run failed"
        error = {"code": "server_error", "message": why}
    return {
        "id": response_id(place),
        "object": "response",
        "created_at": int(begun),
        "completed_at": int(progress.at) if status == "completed" else None,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": task.agent,
        "previous_response_id": _previous(progress, task),
        "instructions": task.inputs.get("instructions"),
        "output": output,
        "error": error,
        "tools": [_tool(card) for card in terms.tools],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": form},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "reasoning": {"effort": None, "summary": None},
        "user": task.origin.user if task.origin is not None else None,
        "usage": _usage(progress.tokens) if is_over else None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": True,
        "background": terms.metadata.get(BACKGROUND) == "true",
        "service_tier": "default",
        "metadata": {
            key: value for key, value in terms.metadata.items() if not key.startswith((OWN_NOTE, TOLD))
        },
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def settled_items(progress: Progress) -> list[Json]:
    """The items that a settled response ends with: calls, questions, or the answer."""
    if (pause := progress.pause) is not None:
        return [_held_item(call, held, progress) for call, held in pause.held.items()]
    end = progress.end
    if end is None or end.output is None or end.state not in ("success", "max_steps_error"):
        return []
    place = Place(progress.run, progress.after)
    status = "completed" if end.state == "success" else "incomplete"
    return [message_item(place, answer_text(end.output), status)]


def message_item(place: Place, text: str, status: str) -> Json:
    """The message of the response, with this text."""
    return {
        "type": "message",
        "id": f"msg_{response_id(place)[5:]}",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def input_items(progress: Progress, task: Task) -> list[Json]:
    """What was said with the response, the last item first."""
    if progress.after:
        before = next((pause for pause in progress.pauses if pause.seq == progress.after), None)
        calls = before.held if before is not None else {}
        return [_given(call, held, progress) for call, held in calls.items() if call in progress.decided][
            ::-1
        ]
    content: list[Json] = [{"type": "input_text", "text": task.task}]
    content += [{"type": "input_image", "image_url": ref, "detail": "auto"} for ref in task.images]
    message = {"type": "message", "id": f"msg_{progress.run}_in", "role": "user", "status": "completed"}
    return [{**message, "content": content}]


def _held_item(call: str, held: HeldBack, progress: Progress) -> Json:
    request = held.request
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    if held.is_callers:
        name = {"call_id": call, "name": request.name, "arguments": arguments}
        return {"type": "function_call", "id": f"fc_{call}", "status": "completed", **name}
    label = progress.task.agent if progress.task is not None and held.run == progress.run else held.run
    return {
        "type": "mcp_approval_request",
        "id": call,
        "name": request.name,
        "arguments": arguments,
        "server_label": label,
    }


def _given(call: str, held: HeldBack, progress: Progress) -> Json:
    decided = progress.decided[call]
    if held.is_callers:
        about = {"call_id": call, "output": decided.feedback, "status": "completed"}
        return {"type": "function_call_output", "id": f"fco_{call}", **about}
    word = {"approve": decided.verdict in ("approved", "corrected"), "reason": decided.feedback or None}
    return {"type": "mcp_approval_response", "id": f"mcpr_{call}", "approval_request_id": call, **word}


def _previous(progress: Progress, task: Task) -> str | None:
    if not progress.after:
        return task.terms.metadata.get(PREVIOUS)
    earlier = [pause.seq for pause in progress.pauses if pause.seq < progress.after]
    return response_id(Place(progress.run, earlier[-1] if earlier else 0))


def _tool(card: Any) -> Json:
    return {
        "type": "function",
        "name": card.name,
        "description": card.description,
        "parameters": card.input_schema,
        "strict": False,
    }


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
