"""Tests of what an endpoint's refusal means, and what its reader is asked to do."""

import errno
import socket
from typing import Any

import pytest

from cadre.adapters.models.failure import Refusal, failed_status, retry_after, root_cause, shown_url
from cadre.adapters.models.openai_model import image_type
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.spec.model import ModelSpec

URL = "http://u:p@host:1/v1?k=x"
SENT = {
    "model": "m",
    "stop": ["x"],
    "tools": [],
    "tool_choice": "required",
    "stream_options": {},
    "max_tokens": 5,
}


def failure(status: int, text: str = "", *, param: str | None = None, sent: dict[str, Any] = SENT) -> Any:
    return failed_status(ModelSpec(), URL, Refusal(status=status, text=text, param=param), sent)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_worth_another_try(status: int) -> None:
    error = failure(status, "busy\nnow")
    assert isinstance(error, ModelUnavailable)
    assert (error.status, error.rate_limited) == (status, status == 429)
    assert str(error) == f"the model endpoint http://host:1/v1 answered {status}: busy now"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 424])
def test_not_worth_another_try(status: int) -> None:
    assert isinstance(failure(status), ModelRefused)


@pytest.mark.parametrize(
    ("text", "param", "hint"),
    [
        ("Unsupported parameter: 'stop' is not supported with this model.", None, "model.stop: false"),
        ("tool_choice=required is not supported", None, "model.tool_choice: auto"),
        ("Extra inputs are not permitted: ('body', 'stream_options')", None, "model.stream: false"),
        ("Unrecognized request argument supplied: stream_options", None, "model.stream: false"),
        ("bad value", "stop", "model.stop: false"),
        ("Use 'max_completion_tokens' instead of 'max_tokens'.", None, "model.token_limit: max_completion"),
        ("please stop sending this", None, ""),
        ("the context is too long", None, ""),
    ],
)
def test_a_refused_parameter_comes_with_what_to_change(text: str, param: str | None, hint: str) -> None:
    line = str(failure(400, text, param=param))
    assert hint in line
    assert ("; " in line) == bool(hint)


def test_no_hint_for_a_parameter_that_was_not_sent() -> None:
    assert "model.stop" not in str(failure(400, "'stop' is not supported", sent={"model": "m"}))


def test_other_hints() -> None:
    assert "CADRE_MODEL_KEY" in str(failure(401))
    assert "the model name 'm'" in str(failure(404))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    sent = {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [picture]}]}
    assert "set model.vision: false" in str(failure(400, "images are not supported", sent=sent))
    assert "vision" not in str(failure(400, "images are not supported"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        (
            {"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT", "date": "Thu, 01 Jan 1970 00:01:30 GMT"},
            10.0,
        ),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=60.0) == seconds


def test_the_root_cause_is_the_systems_own_word() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    outer = RuntimeError("all attempts failed")
    outer.__cause__ = ExceptionGroup("several", [refused])
    assert root_cause(outer) == "connection refused"
    assert root_cause(socket.gaierror(-2, "Name or service not known")) == "name or service not known"
    assert root_cause(RuntimeError("peer\nclosed")) == "peer closed"


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (400, "content_filter", "The response was filtered."),
        (400, None, "The prompt triggered Azure OpenAI's content management policy."),
        (403, "content_policy_violation", "Not allowed."),
    ],
)
def test_a_content_filter_has_its_own_words(status: int, code: str | None, text: str) -> None:
    error = failed_status(ModelSpec(), URL, Refusal(status=status, text=text, code=code), SENT)
    assert isinstance(error, ModelRefused)
    where = "the content filter of the model endpoint http://host:1/v1"
    assert str(error).startswith(f"{where} refused the request ({status}): {text}; ")
    assert "model.fallbacks" in str(error)
    assert "CADRE_MODEL_KEY" not in str(error)


def test_urls_are_shown_without_secrets() -> None:
    assert shown_url(URL) == "http://host:1/v1"


def test_image_types_by_their_first_bytes() -> None:
    samples = [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"GIF89a",
        b"RIFF1234WEBP",
        b"RIFF1234WAVE",
        b"<svg",
        b"",
    ]
    kinds = ["image/png", "image/jpeg", "image/gif", "image/webp", None, None, None]
    assert [image_type(sample) for sample in samples] == kinds


SAID_BY_ENDPOINTS: list[tuple[str, int | None, int | None]] = [
    (
        "This model's maximum context length is 8,192 tokens. However, your messages resulted in 9000 tokens.",
        8192,
        9000,
    ),
    (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the"
        " messages, 1000 in the completion).",
        4096,
        4000,
    ),
    (
        "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request"
        " has 1234 input tokens (4096 > 4096 - 1234).",
        4096,
        1234,
    ),
    ("request (4523 tokens) exceeds the available context size (4096 tokens)", 4096, 4523),
    ("the request exceeds the available context size. try increasing the context size", None, None),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_048_576,
        1_200_000,
    ),
    (
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        32_768,
        40_000,
    ),
    ("Input length 9 exceeds the context window of 4", None, None),
]
"""Answers of several makers' endpoints to a request that is too long, with the numbers in it."""


@pytest.mark.parametrize(("text", "context", "tokens"), SAID_BY_ENDPOINTS)
def test_a_refusal_as_too_long_may_say_by_how_much(text: str, context: int | None, tokens: int | None) -> None:
    error = failure(400, text)
    assert (error.too_long, error.context, error.tokens) == (True, context, tokens)
    wanted = "model.context in the agent's spec to what" if context is None else f"model.context: {context} in"
    assert f"; set {wanted}" in str(error)
