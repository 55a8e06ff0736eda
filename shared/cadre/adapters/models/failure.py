"""What a model endpoint's failure means for the run, in one clear line."""

import os
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from cadre.adapters.models.too_long import excess_of, is_too_long
from cadre.errors import ModelError, ModelRefused, ModelUnavailable
from cadre.spec.model import ModelSpec

MAX_SHOWN_CHARS = 500
"""Of the server's own message, in errors."""

HINTS = {
    "stop": "set model.stop: false in the agent's spec",
    "tool_choice": "set model.tool_choice: auto in the agent's spec",
    "stream_options": "set model.stream: false in the agent's spec",
    "stream": "set model.stream: false in the agent's spec",
    "max_tokens": "set model.token_limit: max_completion_tokens in the agent's spec",
    "max_completion_tokens": "set model.token_limit: max_tokens in the agent's spec",
    "temperature": "leave out model.temperature in the agent's spec",
    "reasoning_effort": "leave out model.reasoning_effort in the agent's spec, or choose another one",
    "seed": "leave out model.seed in the agent's spec",
    "parallel_tool_calls": "leave out model.parallel_tool_calls in the agent's spec",
}
"""Request parameters that some servers refuse, and what to change then."""

_IN_RESPONSES = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}
"""Parameters that the Responses API calls otherwise."""

_UNTOLD_CONTEXT = "model.context in the agent's spec to what the model takes"

FILTER_HINT = "change the task or what the run has read, or set model.fallbacks in the agent's spec"

_FILTER_CODES = (
    *("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"),
    *("bio_policy", "misalignment_policy_violation", "image_content_policy_violation"),
)
_FILTER_WORDS = re.compile(r"content (?:management|filtering|usage) polic|content[_ ]filter", re.IGNORECASE)
"""What endpoints say when their filter refuses a request."""

_FORM_WORDS = re.compile(
    r"response_?format|json_?schema|json_?object|json mode|structured|grammar", re.IGNORECASE
)
"""Words of an endpoint that does not take the form in which JSON is asked for."""

_UNWANTED = r"unsupported|not support|unknown|unrecognized|unexpected|invalid|not permitted|not allowed"


def shown_url(url: str) -> str:
    """The URL without user, password and query, which may hold secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the endpoint that is no completion: what is wrong, and whether it may pass."""

    status: int
    text: str
    """The server's own message."""
    param: str | None = None
    """The request parameter that it complains of."""
    code: str | None = None
    """The server's name for what is wrong."""
    wait: float | None = None
    """Seconds that it asks to wait."""

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in (408, 409, 429) or self.status >= 500

    @property
    def filtered(self) -> bool:
        """Whether the endpoint's content filter refused the request."""
        return self.status in (400, 403, 422) and (
            self.code in _FILTER_CODES or _FILTER_WORDS.search(self.text) is not None
        )

    @property
    def about_form(self) -> bool:
        """Return whether the endpoint refuses the form in which JSON was asked for."""
        return _FORM_WORDS.search(f"{self.param} {self.code} {self.text}") is not None

    @property
    def too_long(self) -> bool:
        """Whether it says that request and answer together take more than the model's context."""
        return self.status in (400, 413, 422) and is_too_long(self.code or "", self.text)


def unavailable(line: str, refusal: Refusal) -> ModelUnavailable:
    """Makes the error for a refusal that may pass."""
    limited = refusal.status == 429
    return ModelUnavailable(line, status=refusal.status, retry_after=refusal.wait, rate_limited=limited)


def failed_status(spec: ModelSpec, url: str, refusal: Refusal, sent: Mapping[str, Any]) -> ModelError:
    """Makes the error for an HTTP status that says failure. `sent` is the request's body."""
    status, wait = refusal.status, refusal.wait
    message = " ".join(refusal.text.split())[:MAX_SHOWN_CHARS]
    line = f"the model endpoint {shown_url(url)} answered {status}" + (f": {message}" if message else "")
    if refusal.passes:
        return unavailable(line if wait is None else f"{line}; it asks to wait {wait:g} s", refusal)
    if refusal.too_long:
        context, tokens = excess_of(refusal.text)
        hint = f"model.context: {context} in the agent's spec" if context is not None else _UNTOLD_CONTEXT
        return ModelRefused(
            f"{line}; set {hint}", status=status, too_long=True, context=context, tokens=tokens
        )
    if refusal.filtered:
        filtered = f"the content filter of the model endpoint {shown_url(url)} refused the request ({status})"
        text = f"{filtered}: {message}" if message else filtered
        return ModelRefused(f"{text}; {FILTER_HINT}", status=status)
    hint = _hint(spec, refusal, sent)
    return ModelRefused(f"{line}; {hint}" if hint else line, status=status, about_form=refusal.about_form)


def _hint(spec: ModelSpec, refusal: Refusal, sent: Mapping[str, Any]) -> str:
    status = refusal.status
    if status in (401, 403):
        return f"check the key in {spec.key_env}"
    if status == 404:
        return f"check the URL (most end in /v1) and the model name {sent.get('model')!r}"
    if status in (400, 422):
        for name, hint in HINTS.items():
            if name in sent and complains_of(name, refusal):
                if spec.api == "responses" and _IN_RESPONSES.get(name) == "max_output_tokens":
                    return "leave out model.max_tokens in the agent's spec, or choose another one"
                return hint
        if re.search(r"\bimage|vision|multimodal", refusal.text, re.IGNORECASE) and _shows_images(sent):
            return "set model.vision: false in the agent's spec when the model reads text only"
    return ""


def _shows_images(sent: Mapping[str, Any]) -> bool:
    contents = [message.get("content") for message in sent.get("messages", ())]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


def complains_of(name: str, refusal: Refusal) -> bool:
    """Whether the endpoint refuses that parameter of the request, by this name or by that of the Responses API."""
    if refusal.status not in (400, 422):
        return False
    return any(_names(one, refusal) for one in (name, _IN_RESPONSES.get(name)) if one)


def _names(name: str, refusal: Refusal) -> bool:
    quoted = rf"[\"'`]{name}[\"'`]"
    unwanted = rf"\b{name}\b.*?(?:{_UNWANTED})|(?:{_UNWANTED})\W+(?:\w+\W+){{0,3}}{name}\b"
    found = re.search(f"{quoted}|{unwanted}", refusal.text, re.IGNORECASE | re.DOTALL)
    return refusal.param == name or found is not None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the endpoint asks to wait, None when it does not say. `now` is in Unix seconds; where the endpoint
    tells its own time, a time that it names is by that."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * unit
    due, dated = _moment(headers.get("retry-after", "")), _moment(headers.get("date", ""))
    return max(0.0, due - (now if dated is None else dated)) if due is not None else None


def _moment(value: str) -> float | None:
    """The Unix seconds of a date in HTTP's form; None for anything else."""
    try:
        found = parsedate_to_datetime(value.strip())
    except ValueError:
        return None
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).timestamp()


def failed_connection(url: str, cause: str) -> ModelUnavailable:
    """Makes the error for an endpoint that cannot be reached; `cause` says why."""
    return ModelUnavailable(
        f"cannot reach the model endpoint {shown_url(url)}: {cause}; start it or set CADRE_MODEL_URL"
    )


def failed_silence(url: str, seconds: float) -> ModelUnavailable:
    """Makes the error for an endpoint that sent nothing for its timeout, in seconds."""
    return ModelUnavailable(
        f"the model endpoint {shown_url(url)} sent nothing for {seconds:g} s; model.timeout sets how long"
    )


def filtered_answer(url: str) -> ModelRefused:
    """Makes the error for an answer that the endpoint's content filter withheld or cut."""
    return ModelRefused(
        f"the content filter of the model endpoint {shown_url(url)} withheld the answer"
        f" (finish_reason content_filter); {FILTER_HINT}"
    )


def failed_answer(url: str, what: str) -> ModelUnavailable:
    """Makes the error for an answer that cannot be used."""
    return ModelUnavailable(f"the answer of the model endpoint {shown_url(url)} {what}")


def root_cause(error: BaseException) -> str:
    """The system's own word for a failure (`connection refused`), else the innermost message."""
    texts: list[str] = []
    inner: BaseException | None = error
    seen: set[int] = set()
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and inner.strerror:
            # asyncio writes a text of its own into strerror; TLS and name lookup have errnos of their own.
            if inner.errno is not None and (isinstance(inner, ConnectionError) or type(inner) is OSError):
                return os.strerror(inner.errno).lower()
            return inner.strerror.lower()
        texts.append(str(inner) or type(inner).__name__)
        first = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else None
        inner = first or inner.__cause__ or inner.__context__
    return " ".join(texts[-1].split())
