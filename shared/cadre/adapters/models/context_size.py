"""The words of endpoints for a request that takes more than the model's context, and the sizes that they name.

Each row is one endpoint's wording. A row may name the size of the context and that of the request, in tokens. What
only looks alike is not matched: limits of tokens per minute that pass, credit that is used up, an output limit that is
out of range, an image of too many bytes. `tests/unit/test_too_long.py` has texts for each row, and such texts.
"""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from cadre.spec.model import ModelSpec

OVERFLOWS: tuple[tuple[str, str], ...] = (
    ("OpenAI, vLLM, DeepSeek, OpenRouter", r"messages resulted in (?P<tokens>\d+) tokens"),
    ("OpenAI, vLLM", r"\((?P<tokens>\d+) in the messages"),
    ("vLLM", r"request has (?P<tokens>\d+) input tokens"),
    ("vLLM", r"prompt contains at least (?P<tokens>\d+) input tokens"),
    ("OpenAI, vLLM, DeepSeek, OpenRouter, Together", r"maximum context length (?:is |of )?(?P<context>\d+)"),
    ("OpenAI Responses", r"exceeds the context window"),
    (
        "Groq, OpenAI",
        r"request too large for .{0,200}?tokens per (?:min|minute|day)\b.{0,40}?limit:? (?P<context>\d+)",
    ),
    ("OpenAI", r"\.content'?: string too long"),
    ("Anthropic", r"prompt is too long: (?P<tokens>\d+) tokens > (?P<context>\d+)"),
    (
        "Anthropic, Bedrock, Fireworks, Ollama",
        r"(?<!audio )(?<!video )(?<!image )(?:prompt|input|request) (?:is )?too long",
    ),
    ("Anthropic", r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<context>\d+)"),
    ("Anthropic", r"request exceeds the maximum (?:allowed )?(?:size|number of bytes)"),
    (
        "Gemini",
        r"input token count \(?(?P<tokens>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<context>\d+)",
    ),
    ("Vertex", r"input token count is (?P<tokens>\d+) but model only supports up to (?P<context>\d+)"),
    ("Mistral", r"contains (?P<tokens>\d+) tokens.{0,80}?model with (?P<context>\d+) maximum context"),
    (
        "llama.cpp",
        r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<context>\d+) tokens\)",
    ),
    ("llama.cpp", r"exceeds the available context size|context size has been exceeded"),
    ("vLLM", r"max_(?:completion_)?tokens must be at least 1, got -\d+"),
    (
        "vLLM",
        r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<context>\d+)",
    ),
    ("vLLM", r"maximum model length|max_model_len"),
    (
        "SGLang",
        r"input \((?P<tokens>\d+) tokens\) is longer than the model's context length \((?P<context>\d+) tokens\)",
    ),
    (
        "SGLang",
        r"input length \((?P<tokens>\d+) tokens\) exceeds the maximum allowed length \((?P<context>\d+) tokens\)",
    ),
    ("any", r"\bcontext_(?:length|window)_exceeded\b|conversation is too long"),
    ("SGLang", r"token count exceeds the model's maximum context length"),
    ("TGI", r"must have less than (?P<context>\d+) tokens\. given: (?P<tokens>\d+)"),
    ("TGI", r"`inputs` tokens \+ `max_new_tokens` must be <= (?P<context>\d+)"),
    ("xAI", r"maximum prompt length is (?P<context>\d+) but the request contains (?P<tokens>\d+)"),
    ("Cerebras", r"current length is (?P<tokens>\d+) while limit is (?P<context>\d+)"),
    (
        "Groq, Cerebras, vLLM",
        r"reduce the length of (?:the|your) (?:\w+ )?(?:messages|prompt|input|completion)",
    ),
    ("Kimi", r"exceeded model token limit(?:: (?P<context>\d+) \(requested: (?P<tokens>\d+)\))?"),
    ("Kimi", r"input token length too long"),
    ("Z.ai", r"prompt exceeds max length|tokens in request more than max tokens allowed"),
    ("DashScope", r"range of input length should be \[\d+, (?P<context>\d+)\]"),
    ("GitHub Models", r"request body too large for .{0,80}?model\. max size: (?P<context>\d+) tokens"),
    (
        "SiliconFlow",
        r"length of prompt_tokens \((?P<tokens>\d+)\) must be less than max_seq_len \((?P<context>\d+)\)",
    ),
    (
        "TabbyAPI, TensorRT-LLM, NIM, LMDeploy, Databricks, watsonx",
        r"(?:prompt|input)(?: tokens?)?(?: length)? \(?(?P<tokens>\d+)\)? (?:tokens )?"
        r"(?:exceeds?|cannot exceed|is greater than) (?:the )?(?:maximum|max_seq_len|session_len|total tokens limit)"
        r"[^\d,;]{0,40}?\(?(?P<context>\d+)",
    ),
    (
        "SambaNova",
        r"prompt is (?P<tokens>\d+) tokens long.{0,120}?maximum supported sequence length is just (?P<context>\d+)",
    ),
    ("Snowflake", r"max tokens of (?P<context>\d+) exceeded"),
    ("ExLlama", r"total sequence length exceeds cache size"),
    ("Writer, Baidu", r"prompt (?:exceeds the maximum number of tokens|tokens too long)"),
    ("Baidu", r"length of messages content must be less than"),
    (
        "DashScope, Hunyuan and others, in Chinese",
        r"(?:上下文|输入|提示词|prompt)[^,，。图音视频]{0,10}?(?:长度|tokens?|字数)[^,，。图音视频]{0,8}?(?:超过|超出|过长|超长)"
        r"|(?:超过|超出)[^,，。图音视频]{0,8}上下文(?:长度)?\s*(?P<context>\d+)?|prompt\s*(?:超长|过长)",
    ),
    ("any", r"request entity too large\b.{0,80}?\bis (?P<tokens>\d+) tokens"),
    ("GitHub Copilot", r"prompt token count of (?P<tokens>\d+) exceeds the limit of (?P<context>\d+)"),
    ("MiniMax", r"context window exceeds limit"),
    ("Bedrock", r"exceeds the max(?:imum)? input token limit"),
    ("Fireworks", r"prompt is too long: (?P<tokens>\d+), model maximum context length: (?P<context>\d+)"),
    ("Cohere", r"too many (?:input )?tokens(?!, please wait| per )"),
    ("Ollama", r"exceeds? (?:the )?max(?:imum)? context length"),
    ("LM Studio", r"greater than the context length|when context the overflows"),
    (
        "Cloudflare",
        r"output tokens \((?P<tokens>\d+)\) exceeded this model context window limit \((?P<context>\d+)\)",
    ),
    (
        "Volcengine",
        r"exceed max message tokens|input length (?P<tokens>\d+) exceeds the maximum length (?P<context>\d+)",
    ),
    (
        "any",
        r"(?:exceed|longer than|larger than|greater than|too (?:long|large|big)|overflow)"
        r".{0,100}?context[ _](?:length|window|size|limit)(?!\w)",
    ),
    (
        "any",
        r"context[ _](?:length|window|size|limit)(?!\w).{0,60}?(?:exceed|reached|too (?:long|small)|overflow)",
    ),
    (
        "any",
        r"(?<!audio )(?<!video )(?<!image )(?:input|prompt)\W?[ _]?(?:tokens?|token count|length|size)"
        r"(?: \(?(?:(?P<tokens>\d{3,})|\d+)\)?)?"
        r" (?:exceed|cannot exceed|is greater than|(?:must|should) be (?:less|smaller) than)(?!.{0,80}?per (?:min|day))"
        r"(?:\D{0,40}?\(?(?P<context>\d+))?",
    ),
    (
        "any",
        r"max(?:imum)? (?:input|prompt) (?:length|tokens?)\b.{0,20}?exceeded|max_total_tokens\b.{0,20}?exceed",
    ),
    (
        "any",
        r"(?:prompt|request|input|conversation) (?:has|needs|contains|takes) (?P<tokens>\d+) tokens\b.{0,60}?"
        r"(?:only|at most|limit|context size|supports?)\D{0,30}?(?P<context>\d+)",
    ),
    (
        "any",
        r"(?:prompt|input|messages?|request|conversation|history) (?:is |are )?too (?:long|large|big)"
        r" for (?:the|this) (?:model|context)",
    ),
    (
        "any, in German, French, Spanish, Portuguese, Italian and Russian",
        r"(?:kontext|eingabe|prompt)\w*[^.]{0,60}?(?:überschr|zu lang)|überschr\w+[^.]{0,60}?kontext"
        r"|(?:contexte|prompt|entrée)\b[^.]{0,60}?(?:dépass|trop long)|dépass\w+[^.]{0,60}?contexte"
        r"|(?:context[oe]|contesto|prompt|entrada)\b[^.]{0,60}?"
        r"(?:excede|supera|ultrapassa|demasiado larg|muito long|troppo lung)"
        r"|(?:excede|supera|ultrapassa)\w*[^.]{0,60}?(?:contexto|contesto)"
        r"|(?:контекст|запрос|промпт)\w*[^.]{0,60}?(?:превы|слишком длинн)|превы\w+[^.]{0,60}?контекст",
    ),
    (
        "any, in Japanese and Korean",
        r"(?:コンテキスト|入力|プロンプト|トークン)[^。画像音声]{0,30}?(?:超え|超過|長すぎ)"
        r"|(?:컨텍스트|입력|프롬프트|토큰)[^.]{0,30}?(?:초과|너무 (?:길|긴))",
    ),
)
"""Endpoints and their wordings: case-insensitive regular expressions with the groups `context` and `tokens`."""

_SIZES = (
    r"context (?:length|window|size|limit)(?: is| of| to|:)?(?: only)? \(?(?P<context>\d+)",
    r"(?P<context>\d+) (?:tokens? )?(?:maximum )?context",
)
"""Sizes in a text that is known to be about the context."""

CODES = frozenset(
    (
        *("context_length_exceeded", "context_window_exceeded", "contextwindowexceedederror"),
        *("exceed_context_size_error", "tokens_limit_reached", "request_too_large"),
        *("model_max_prompt_tokens_exceeded", "model_context_window_exceeded", "1261"),
        *("336103", "336007", "10907"),
    )
)
"""Names for it, in small letters: OpenAI's, LiteLLM's, llama.cpp's, GitHub's, Anthropic's, Copilot's, Z.ai's, Baidu's,
iFlytek's."""

_PATTERNS = [re.compile(pattern, re.IGNORECASE | re.DOTALL) for _, pattern in OVERFLOWS]
_NUMBERS = [*_PATTERNS, *(re.compile(pattern, re.IGNORECASE) for pattern in _SIZES)]
_EVEN_AS_RATE = re.compile(r"request too large for .{0,200}?tokens per (?:min|minute|day)\b", re.I | re.DOTALL)
_DIGITS_APART = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")

_SMALLEST_CONTEXT = 256
"""Tokens: a smaller number in such a text is something else."""

_OTHERWISE = (401, 402, 404, 408, 409, 429)
"""HTTP statuses that mean something else, regardless of the text."""


class Excess(NamedTuple):
    """The sizes that a refusal names, in tokens; None for what it does not tell."""

    context: int | None = None
    tokens: int | None = None


def is_too_long(status: int, codes: Collection[str], text: str) -> bool:
    """Return whether a refusal is for a request that the context has no room for, now or at any time."""
    text = _DIGITS_APART.sub("", text)
    if status in _OTHERWISE:
        return status == 429 and _EVEN_AS_RATE.search(text) is not None
    if any(code.lower() in CODES for code in codes) or status == 413:
        return True
    return any(pattern.search(text) for pattern in _PATTERNS)


def excess_of(text: str) -> Excess:
    """Return the context and the size of the request, as a refusal's text names them."""
    text = _DIGITS_APART.sub("", text)
    sizes: dict[str, int] = {}
    for found in filter(None, (pattern.search(text) for pattern in _NUMBERS)):
        for name, size in found.groupdict().items():
            if size is not None and len(size) <= 12:
                sizes.setdefault(name, int(size))
    context, tokens = sizes.get("context", 0), sizes.get("tokens", 0)
    return Excess(context if context >= _SMALLEST_CONTEXT else None, tokens or None)


_KEYS = (
    "n_ctx",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "loaded_context_length",
)
"""The names of the size at llama.cpp, vLLM, OpenRouter, Groq, Mistral and others, most trusted first."""


def listed_context(model: dict[str, Any]) -> int | None:
    """Return the size in one entry of the list of models; None where it has none."""
    places = [model, *(part for part in model.values() if isinstance(part, dict))]
    found = [place.get(key) for key in _KEYS for place in places]
    return next((size for size in found if isinstance(size, int) and size > 0), None)


def context_of(models: Any, name: str) -> int | None:
    """Return the size of the model with this name in an endpoint's list; if the list has one model, that model's."""
    listed = models.get("data") if isinstance(models, dict) else None
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [one for one in found if one.get("id") == name] or (found if len(found) == 1 else [])
    return listed_context(named[0]) if named else None


def is_unnamed(model: ModelSpec) -> bool:
    """Return whether the spec leaves the size open: it has the default."""
    return model.context == ModelSpec().context
