"""What an endpoint says when a request takes more than its model's context: by how much, as far as it tells."""

import re
from typing import NamedTuple

_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|max_model_len|model'?s) context|context (?:length|window|size)"
    r"|(?:prompt|input|request) is too long|too many (?:input )?tokens|(?:input|prompt) (?:token|length).{0,40}exceed",
    re.IGNORECASE,
)
"""How servers say that a request takes more than the context: OpenAI's code; words of vLLM, llama.cpp, Anthropic."""

_CONTEXT = re.compile(
    r"context (?:length|window|size)\D{0,20}?(\d{1,12})"
    r"|(\d{1,12}) (?:tokens? )?(?:maximum )?(?:context|maximum\b)"
    r"|maximum number of tokens allowed \((\d{1,12})\)",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"request \((\d{1,12}) tokens\)|messages resulted in (\d{1,12}) tokens|\((\d{1,12}) in the messages"
    r"|(?:too long:|has|contains) (\d{1,12}) (?:input )?tokens|token count \((\d{1,12})\) exceeds",
    re.IGNORECASE,
)
_DIGITS_APART = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")

_SMALLEST_CONTEXT = 256
"""Tokens: a smaller number in such a text is something else."""


class Excess(NamedTuple):
    """The sizes that a refusal names, in tokens; None for what it does not tell."""

    context: int | None = None
    tokens: int | None = None


def is_too_long(code: str, text: str) -> bool:
    """Whether a refusal with this code and text is for a request that the context has no room for."""
    return _TOO_LONG.search(f"{code} {text}") is not None


def excess_of(text: str) -> Excess:
    """The context and the size of the request, as a refusal's text names them."""
    text = _DIGITS_APART.sub("", text)
    context, tokens = _number(_CONTEXT, text), _number(_REQUEST, text)
    return Excess(context if context is not None and context >= _SMALLEST_CONTEXT else None, tokens or None)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(group for group in found.groups() if group is not None)) if found is not None else None
