"""The meaning of an answer's `finish_reason`, beyond those of OpenAI that end a whole answer. Pure.

| it says | meaning | endpoints |
|---|---|---|
| `error`, `network_error`, `insufficient_system_resource`, `server_error`, `abort`, `timeout`, `cancelled` | the endpoint failed | OpenRouter, Z.ai, DeepSeek, vLLM, SGLang, Cohere |
| `content_filter`, `sensitive`, `safety`, `recitation`, `prohibited_content`, `error_toxic`, `refusal` and others | the filter withheld the answer | OpenAI, Z.ai, Gemini, Cohere, Anthropic |
| `model_context_window_exceeded`, `error_limit` | the context has no room for request and answer | Z.ai, Anthropic, Cohere |
| `malformed_function_call`, `unexpected_tool_call`, `malformed_response` | the endpoint could not read the model's call | Gemini |
| `length`, `model_length`, `max_tokens` | cut at the limit of tokens | Mistral, relays |

All others (`stop`, `tool_calls`, `end`, `eos`, `end_turn`) end a whole answer: what came says what it is.
"""  # noqa: E501

import re
from typing import Literal

Ending = Literal["failed", "filtered", "too_long", "unread_call", "cut"]
"""The ways in which an incomplete answer ended."""

_ENDINGS: dict[Ending, tuple[str, ...]] = {
    "failed": (
        *("error", "network_error", "insufficient_system_resource", "server_error", "abort", "aborted"),
        *("timeout", "cancelled", "canceled", "user_cancel"),
    ),
    "filtered": (
        *("content_filter", "sensitive", "safety", "recitation", "blocklist", "prohibited_content", "spii"),
        *("image_safety", "language", "guardrail_intervened", "moderation", "content_filtered"),
        *("error_toxic", "refusal"),
    ),
    "too_long": (
        *("model_context_window_exceeded", "context_window_exceeded", "context_length_exceeded"),
        "error_limit",
    ),
    "unread_call": (
        "malformed_function_call",
        "malformed_tool_call",
        "unexpected_tool_call",
        "malformed_response",
    ),
    "cut": ("length", "model_length", "max_tokens", "max_output_tokens", "max_new_tokens"),
}
_ENDING_OF = {reason: ending for ending, reasons in _ENDINGS.items() for reason in reasons}


def ending_of(reason: str) -> Ending | None:
    """Return how an answer with this finish_reason ended; None for a whole one.

    Some endpoints put a class in front: `function_call_filter: MALFORMED_FUNCTION_CALL`, `FinishReason.SAFETY`.
    """
    parts = [part.strip().casefold() for part in re.split("[:.]", reason)]
    return next((_ENDING_OF[part] for part in reversed(parts) if part in _ENDING_OF), None)
