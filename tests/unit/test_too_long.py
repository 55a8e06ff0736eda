"""Refusals of a request that the context has no room for, in the words of many endpoints, and what only looks alike."""

import re

import pytest

from cadre.adapters.models.context_size import OVERFLOWS, excess_of
from cadre.adapters.models.error_body import read_error
from cadre.adapters.models.failure import Refusal, failed_status, refusal_of
from cadre.errors import ModelRefused
from cadre.spec.model import ModelSpec

TPM = "tokens per minute (TPM)"
TOO_LONG: list[tuple[str, int, str, int | None, int | None]] = [
    (
        "OpenAI",
        400,
        "This model's maximum context length is 8,192 tokens. However, your messages resulted in 9000 tokens.",
        8192,
        9000,
    ),
    ("OpenAI", 400, "Your input exceeds the context window of this model.", None, None),
    (
        "SGLang",
        400,
        "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input.",
        8192,
        9000,
    ),
    ("any", 403, "context_length_exceeded: shorten your prompt", None, None),
    ("any", 400, "The conversation is too long, please start a new one", None, None),
    (
        "OpenAI",
        429,
        f"Request too large for gpt-4o in organization org-x on {TPM}: Limit 30000, Requested 41000. The input or"
        " output tokens must be reduced in order to run successfully.",
        30000,
        None,
    ),
    (
        "OpenAI",
        400,
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760.",
        None,
        None,
    ),
    ("Anthropic", 400, "prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000),
    (
        "Anthropic",
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        200_000,
        190_000,
    ),
    ("Anthropic", 413, "Request exceeds the maximum size", None, None),
    (
        "Gemini",
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_048_576,
        1_200_000,
    ),
    (
        "Vertex",
        400,
        "The input token count is 40000 but model only supports up to 32768. Please reduce it.",
        32_768,
        40_000,
    ),
    (
        "Mistral",
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
        40_000,
    ),
    (
        "llama.cpp",
        400,
        "request (4523 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
        4523,
    ),
    ("llama.cpp", 500, "Context size has been exceeded.", None, None),
    ("vLLM", 400, "max_tokens must be at least 1, got -213.", None, None),
    (
        "vLLM",
        400,
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        8192,
        9000,
    ),
    (
        "vLLM",
        400,
        "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has"
        " 1234 input tokens (4096 > 4096 - 1234).",
        4096,
        1234,
    ),
    (
        "SGLang",
        400,
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        8192,
        9000,
    ),
    (
        "TGI",
        422,
        "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
        4095,
        5000,
    ),
    (
        "TGI",
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
        4096,
        None,
    ),
    (
        "xAI",
        400,
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        131_072,
        140_000,
    ),
    ("Groq", 400, "Please reduce the length of the messages or completion.", None, None),
    (
        "Groq",
        413,
        f"Request too large for model `m` in organization `o` on {TPM}: Limit 6000, Requested 8200, please reduce"
        " your message size and try again.",
        6000,
        None,
    ),
    (
        "Cerebras",
        400,
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        8192,
        9000,
    ),
    ("Cerebras", 413, "", None, None),
    (
        "Kimi",
        400,
        "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
        8192,
        9000,
    ),
    ("Kimi", 400, "Input token length too long", None, None),
    ("Z.ai", 400, "Prompt exceeds max length", None, None),
    ("Z.ai", 400, "tokens in request more than max tokens allowed", None, None),
    (
        "DashScope",
        400,
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        129_024,
        None,
    ),
    (
        "GitHub Models",
        413,
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        8000,
        None,
    ),
    (
        "GitHub Copilot",
        400,
        "prompt token count of 130000 exceeds the limit of 128000",
        128_000,
        130_000,
    ),
    ("MiniMax", 400, "invalid params, context window exceeds limit (2013)", None, None),
    ("Bedrock", 400, "Input is too long for requested model.", None, None),
    ("Bedrock", 400, "Input exceeds the max input token limit", None, None),
    (
        "Fireworks",
        400,
        "The prompt is too long: 140000, model maximum context length: 131072",
        131_072,
        140_000,
    ),
    (
        "Together",
        403,
        "Input validation error: input token length is longer than the context length",
        None,
        None,
    ),
    ("Ollama", 400, "prompt too long; exceeded max context length by 300 tokens", None, None),
    (
        "LM Studio",
        400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context"
        " length of only 4096 tokens",
        4096,
        None,
    ),
    (
        "Cloudflare",
        413,
        "The estimated number of input and maximum output tokens (30000) exceeded this model context window limit"
        " (24000).",
        24_000,
        30_000,
    ),
    (
        "SiliconFlow",
        400,
        "length of prompt_tokens (9000) must be less than max_seq_len (8192).",
        8192,
        9000,
    ),
    ("TabbyAPI", 400, "Prompt length 9000 is greater than max_seq_len 8192", 8192, 9000),
    ("TensorRT-LLM", 500, "Prompt length (9000) exceeds maximum input length (8192).", 8192, 9000),
    ("NIM", 400, "Input length 9000 exceeds maximum allowed token size 8192", 8192, 9000),
    ("Databricks", 400, "Input token length 9000 exceeds the maximum of 8192 tokens", 8192, 9000),
    (
        "watsonx",
        400,
        "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
        8192,
        9000,
    ),
    (
        "SambaNova",
        400,
        "Requested generation length 4096 is not possible! The provided prompt is 8000 tokens long, so generating"
        " 4096 tokens requires a sequence length of 12096, but the maximum supported sequence length is just 8192!",
        8192,
        8000,
    ),
    ("Snowflake", 400, "max tokens of 32000 exceeded", 32_000, None),
    ("ExLlama", 500, "AssertionError: Total sequence length exceeds cache size in model.forward", None, None),
    ("Writer", 400, "Prompt exceeds the maximum number of tokens allowed: 32000", None, None),
    ("Baidu", 400, "Prompt tokens too long", None, None),
    ("Baidu", 400, "the length of messages content must be less than 20000", None, None),
    ("Hunyuan", 400, "输入内容长度超过模型限制", None, None),
    ("DashScope", 400, "输入的tokens数量超过限制", None, None),
    ("any", 400, "输入超过最大上下文长度 32768", 32_768, None),
    ("Z.ai", 400, "Prompt 超长", None, None),
    ("any", 500, "Request entity too large: 'messages' is 41,200 tokens", None, 41_200),
    ("Volcengine", 400, "Total tokens of image and text exceed max message tokens", None, None),
    ("any", 400, "Input tokens exceeds the configured limit of 4096 tokens", 4096, None),
    ("any", 400, "Total input tokens 9000 exceed the model limit 8192", 8192, 9000),
    ("any", 400, "The number of input tokens (9000) must be less than 8192", 8192, 9000),
    ("any", 400, "`prompt` tokens (9000) must be less than n_ctx (8192)", 8192, 9000),
    ("any", 400, "prompt length exceeds maximum input length", None, None),
    ("any", 400, "Maximum input length exceeded", None, None),
    ("any", 400, "max_total_tokens (9000) exceeds 8192", None, None),
    ("any", 400, "Prompt has 9000 tokens, but the model supports only 8192", 8192, 9000),
    ("any", 400, "This request needs 9000 tokens but the model's context size is 8192", 8192, 9000),
    ("any", 400, "The messages are too long for the model", None, None),
    ("any", 400, "Die Eingabe überschreitet die maximale Kontextlänge von 8192 Token", None, None),
    ("any", 400, "La longueur du contexte dépasse la limite de 8192 tokens", None, None),
    ("any", 400, "El prompt excede la longitud máxima de contexto", None, None),
    ("any", 400, "A entrada ultrapassa o limite de contexto", None, None),
    ("any", 400, "Длина запроса превышает контекст модели", None, None),
    ("any", 400, "入力トークン数が最大コンテキスト長を超えています", None, None),
    ("any", 400, "입력 토큰 수가 최대 컨텍스트 길이를 초과했습니다", None, None),
]


@pytest.mark.parametrize(("endpoint", "status", "text", "context", "tokens"), TOO_LONG)
def test_a_request_that_is_too_long(
    endpoint: str, status: int, text: str, context: int | None, tokens: int | None
) -> None:
    error = failed_status(ModelSpec(), "http://h/v1", Refusal(status=status, text=text), {"model": "m"})
    assert isinstance(error, ModelRefused)
    assert (error.too_long, error.context, error.tokens) == (True, context, tokens)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("context_length_exceeded", 400),
        ("exceed_context_size_error", 400),
        ("tokens_limit_reached", 413),
        ("model_max_prompt_tokens_exceeded", 400),
        ("1261", 400),
        ("ContextWindowExceededError", 400),
    ],
)
def test_a_code_says_it_without_words(code: str, status: int) -> None:
    assert refusal_of({"error": {"code": code, "message": "no"}}, status).too_long


OTHERWISE: list[tuple[str, int, str]] = [
    (
        "Groq: passes",
        429,
        f"Rate limit reached for model `m` on {TPM}: Limit 7000, Used 6148, Requested 2000. Please try again in 3.5s.",
    ),
    ("Bedrock: passes", 429, "Too many tokens, please wait before trying again."),
    (
        "Anthropic: passes",
        429,
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
    ),
    ("Azure: passes", 429, "Requests have exceeded token rate limit of your current pricing tier."),
    ("OpenRouter: credit", 402, "Prompt tokens limit exceeded: 9000 > 5000. To increase, add credits"),
    (
        "OpenAI: the output's limit",
        400,
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided"
        " 100000.",
    ),
    (
        "OpenAI: an id",
        400,
        "Invalid 'messages[2].tool_call_id': string too long. Expected at most 40, got 52.",
    ),
    ("OpenAI: tools", 400, "Invalid 'tools': array too long. Expected an array with maximum length 128."),
    ("Anthropic: an image", 400, "image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"),
    ("Together: a field", 400, "Unknown field: context_length_exceeded_behavior"),
    ("Kimi: a field", 400, "max_tokens must be less than or equal to 8192"),
    ("any: a wrong key", 401, "the context length of your key is exceeded"),
    ("any: no such model", 404, "no model with a context length of 8192 tokens is available"),
    (
        "Bedrock: the output's limit",
        400,
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value"
        " that is lower than 4096.",
    ),
    ("any: the output's limit", 400, "max_tokens (100000) exceeds the maximum output length of 8192"),
    ("any: tools", 400, "number of tools exceeds the limit of 128"),
    (
        "any: a name",
        400,
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64",
    ),
    ("any: memory", 500, "model requires more system memory (12 GiB) than is available (8 GiB)"),
    ("any: an image in Chinese", 400, "输入图片大小超过限制"),
    ("any: a rate in Chinese", 429, "输入tokens速率超过限制"),
    ("any: too many bytes", 400, "Request entity too large: 'image' is 9000 bytes"),
    ("any: overload", 503, "The server is overloaded, please try again."),
    ("any: a timeout", 500, "The request took too long."),
    ("any: prose", 400, "the context is too long"),
    ("any: a rate with 400", 400, "Rate limit: too many tokens per minute"),
    ("any: a rate of the input", 400, "Input tokens exceed the limit of 30000 per minute"),
    ("any: a sound", 400, "audio input too long: the limit is 30 s"),
    ("any: a sound's length", 400, "audio input length exceeds 30 s"),
    ("any: an image in German", 400, "Das Bild überschreitet 5 MB"),
    ("any: an image in Japanese", 400, "画像サイズが上限を超えています"),
]


@pytest.mark.parametrize(("what", "status", "text"), OTHERWISE)
def test_what_only_looks_alike(what: str, status: int, text: str) -> None:
    assert not Refusal(status=status, text=text).too_long


def test_each_row_of_the_table_is_met_by_a_text() -> None:
    texts = [re.sub(r"(?<=\d),(?=\d{3})", "", text) for _, _, text, *_ in TOO_LONG]
    known = [
        "maximum context length is 1024 tokens (900 in the messages)",
        "prompt contains at least 900 input tokens",
        "Requested token count exceeds the model's maximum context length of 8192",
        "the request is larger than max_model_len",
        "too many tokens",
        "the input length exceeds maximum context length",
        "the context window is exceeded",
        "Input length 9000 exceeds the maximum length 8192",
        "exceeded the context window",
    ]
    for endpoint, pattern in OVERFLOWS:
        met = any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for text in [*texts, *known])
        assert met, (endpoint, pattern)


def test_numbers_of_other_things_are_no_sizes() -> None:
    for text in (
        "context window exceeds limit (2013)",
        "context length of 4",
        "maximum context length is 99999999999999999999",
    ):
        assert excess_of(text) == (None, None), text


def test_the_reason_of_the_endpoint_behind_a_relay() -> None:
    raw = '{"error": {"message": "maximum context length is 8192 tokens, your messages resulted in 9000 tokens"}}'
    sent = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    assert "8192" in read_error(sent).text
    assert refusal_of(sent).too_long
