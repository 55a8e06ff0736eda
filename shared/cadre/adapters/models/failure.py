"""The meaning of a model endpoint's failure for the run, in one clear line, and of the way an answer ended."""

import os
import re
from collections.abc import Collection, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from cadre.adapters.models.context_size import excess_of, is_too_long
from cadre.adapters.models.error_body import SentError, header_wait, named_wait, read_error
from cadre.errors import ModelError, ModelRefused, ModelUnavailable
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply
from cadre.protocol.messages import ErrorInfo
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

_NOT_TAKEN = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|invalid|not permitted|not allowed|extra|forbidden",
    re.IGNORECASE,
)
"""Words of an error about a parameter that the endpoint does not take."""

_BOUND = re.compile(
    r"too (?:large|high|big|small|low)|exceed|at (?:most|least)|(?:less|greater|more) than|between|must be|range"
    r"|取值范围",
    re.IGNORECASE,
)

_LEAST = 256
"""Tokens of an answer; a smaller bound is a mistake."""

_IN_RESPONSES = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}
"""Parameters that the Responses API calls otherwise."""

_UNTOLD_CONTEXT = "model.context in the agent's spec to what the model takes"

EXHAUSTED_HINT = "top up its account or raise its quota, or set model.fallbacks in the agent's spec"

FILTER_HINT = "change the task or what the run has read, or set model.fallbacks in the agent's spec"

_FILTER_CODES = frozenset(
    (
        *("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "content_policy"),
        *("bio_policy", "misalignment_policy_violation", "image_content_policy_violation"),
        *("data_inspection_failed", "datainspectionfailed", "sensitive", "1301"),
    )
)
"""Codes of filters, in small letters: OpenAI's, Azure's, DashScope's, Z.ai's."""
_FILTER_WORDS = re.compile(
    r"content (?:management|filtering|usage|safety) polic|content[_ ]filter|may contain inappropriate content"
    r"|considered high risk|flagged (?:for|as|by)|violat\w+ (?:our|the|openai's) (?:usage|content) polic"
    r"|PROHIBITED_CONTENT|敏感内容",
    re.IGNORECASE,
)
"""Words of endpoints whose filter refuses a request."""

_EXHAUSTED_CODES = frozenset(
    (
        *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "payment_required"),
        *(
            "exceeded_current_quota_error",
            "insufficient_balance",
            "insufficient_user_quota",
            "insufficient_credits",
        ),
        *("budget_exceeded", "arrearage", "allocationquota.freetieronly", "accountoverdueerror"),
        *("1113", "1308", "1310", "1008"),
    )
)
"""Codes for credit or a quota that is used up, in small letters: OpenAI's, Kimi's, those of relays, LiteLLM's,
DashScope's, Volcengine's, Z.ai's (by number), MiniMax's (1008)."""
_EXHAUSTED_WORDS = re.compile(
    r"insufficient (?:account |user )?(?:balance|credits?|funds|quota)|balance is insufficient"
    r"|credit balance is too low|out of credits"
    r"|requires more credits|used all available credits|spending limit|budget has been exceeded"
    r"|(?:balance|credits?) (?:is |are |has been |have been )?(?:not enough|exhausted|depleted|used up)"
    r"|not enough (?:balance|credits?|funds)|no credits? (?:left|remaining)|key limit exceeded"
    r"|payment required|free-models-per-day|余额不足|欠费",
    re.IGNORECASE,
)
_THROTTLED_CODES = frozenset(("throttlingexception", "throttling", "toomanyrequestsexception"))
"""AWS' names for a rate limit, in small letters; its JSON protocols answer them with 400."""
_QUOTA_WORDS = re.compile(r"exceeded your (?:current|monthly|daily) quota", re.IGNORECASE)
"""For a quota that is used up, and with some endpoints for a rate limit: these then say how long to wait."""

_INVALID_CALL_WORDS = re.compile(
    r"error parsing tool call|failed to (?:parse|call) (?:a |the )?(?:tool|function)|tool call validation failed"
    r"|malformed[_ ]function[_ ]call",
    re.IGNORECASE,
)
_WRONG_REQUEST = re.compile(
    r"(?:unsupported|unknown|unrecognized) (?:request )?(?:parameter|argument|value)|cannot use tools with stream",
    re.IGNORECASE,
)
"""Words for a wrong request, with any status: some endpoints answer it with 500."""

_FORM_WORDS = re.compile(r"response_?format|json_?schema|json_?object|json mode|structured|grammar", re.IGNORECASE)
"""Words of an endpoint that does not take the form in which JSON is asked for."""

_UNWANTED = r"unsupported|not support|unknown|unrecognized|unexpected|invalid|not permitted|not allowed"


def shown_url(url: str) -> str:
    """Return the URL without user, password and query, which may hold secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


_RATE_WORDS = re.compile(r"rate[ _-]?limit|too many requests|throttl|429|\bqps\b", re.IGNORECASE)
_FOR_GOOD = re.compile("invalid|unsupported|policy|context_length|content_filter|image", re.IGNORECASE)
"""In an endpoint's names for what is wrong: another try would not help."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the endpoint that is no completion: what is wrong, and whether it may pass."""

    status: int
    text: str
    """The server's own message."""
    param: str | None = None
    """The request parameter that it complains of."""
    code: str | None = None
    """The server's name for what is wrong."""
    more_codes: tuple[str, ...] = ()
    """Its other names for it: the type of the error, and the codes of errors within it."""
    wait: float | None = None
    """Seconds that it asks to wait."""
    generation: str | None = None
    """The model's text, if the endpoint could not read a call in it."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Return all its names for what is wrong."""
        return (*((self.code,) if self.code else ()), *self.more_codes)

    @property
    def passes(self) -> bool:
        """Return whether the same request may be answered later."""
        if self.exhausted or self.too_long or self.filtered or _WRONG_REQUEST.search(self.text):
            return False
        if self.status == 400 and self._has_code(_THROTTLED_CODES):
            return True
        return self.status in (408, 409, 425, 429, 498, 499) or (self.status >= 500 and self.status != 501)

    @property
    def exhausted(self) -> bool:
        """Return whether credit or a quota is used up, which no waiting within a run brings back."""
        if self.status == 402 or self._has_code(_EXHAUSTED_CODES) or _EXHAUSTED_WORDS.search(self.text):
            return True
        if any("perday" in code.lower() for code in self.codes):
            return True
        return self.wait is None and self.status == 429 and _QUOTA_WORDS.search(self.text) is not None

    @property
    def filtered(self) -> bool:
        """Return whether the endpoint's content filter refused the request."""
        if not 400 <= self.status < 500 or self.status in (401, 402, 404, 408, 429):
            return False
        return self._has_code(_FILTER_CODES) or _FILTER_WORDS.search(self.text) is not None

    @property
    def about_form(self) -> bool:
        """Return whether the endpoint refuses the form in which JSON was asked for."""
        return _FORM_WORDS.search(f"{self.param} {self.code} {self.text}") is not None

    @property
    def too_long(self) -> bool:
        """Return whether it says that request and answer together take more than the model's context."""
        return is_too_long(self.status, self.codes, self.text)

    @property
    def about_call(self) -> bool:
        """Return whether the endpoint could not read a call in what the model wrote."""
        return "tool_use_failed" in self.codes or _INVALID_CALL_WORDS.search(self.text) is not None

    def _has_code(self, codes: frozenset[str]) -> bool:
        return any(code.lower() in codes for code in self.codes)


def refusal_of(sent: Any, status: int | None = None, wait: float | None = None) -> Refusal:
    """Return what an endpoint's error means.

    Args:
        sent: the error as the endpoint sent it, JSON or text.
        status: of HTTP; None for an error within an answer, whose status is what it says.
        wait: seconds that the headers ask to wait.
    """
    error = read_error(sent)
    own = [code for code in error.codes if code != str(error.status)]
    code = next((code for code in own if not code.isdecimal()), next(iter(own), None))
    return Refusal(
        status=status or error.status or _status_in_words(error),
        text=error.text,
        param=error.param,
        code=code,
        more_codes=error.codes,
        wait=error.wait if wait is None else wait,
        generation=error.generation,
    )


def _status_in_words(error: SentError) -> int:
    """Return the HTTP status that says the same as an error that names none; 500 where it says nothing known."""
    said = Refusal(status=400, text=error.text, more_codes=error.codes)
    if said.exhausted:
        return 402
    if _RATE_WORDS.search(" ".join([*error.codes, error.text])):
        return 429
    for_good = said.too_long or said.filtered or said.about_call or _FOR_GOOD.search(" ".join(error.codes))
    return 400 if for_good else 500


def unavailable(line: str, refusal: Refusal) -> ModelUnavailable:
    """Make the error for a refusal that may pass."""
    limited = refusal.status == 429
    return ModelUnavailable(line, status=refusal.status, retry_after=refusal.wait, rate_limited=limited)


def failed_status(spec: ModelSpec, url: str, refusal: Refusal, sent: Mapping[str, Any]) -> ModelError:
    """Make the error for an HTTP status that says failure. `sent` is the request's body."""
    status, wait = refusal.status, refusal.wait
    message = " ".join(refusal.text.split())[:MAX_SHOWN_CHARS]
    line = f"the model endpoint {shown_url(url)} answered {status}" + (f": {message}" if message else "")
    if refusal.exhausted and not refusal.too_long:
        return ModelRefused(f"{line}; {EXHAUSTED_HINT}", status=status)
    if refusal.passes or (refusal.about_call and not sent.get("tools")):
        return unavailable(line if wait is None else f"{line}; it asks to wait {wait:g} s", refusal)
    if refusal.too_long:
        context, tokens = excess_of(refusal.text)
        hint = f"model.context: {context} in the agent's spec" if context is not None else _UNTOLD_CONTEXT
        return ModelRefused(f"{line}; set {hint}", status=status, too_long=True, context=context, tokens=tokens)
    if refusal.filtered:
        filtered = f"the content filter of the model endpoint {shown_url(url)} refused the request ({status})"
        text = f"{filtered}: {message}" if message else filtered
        return ModelRefused(f"{text}; {FILTER_HINT}", status=status)
    hint = _hint(spec, refusal, sent)
    return ModelRefused(f"{line}; {hint}" if hint else line, status=status, about_form=refusal.about_form)


def _hint(spec: ModelSpec, refusal: Refusal, sent: Mapping[str, Any]) -> str:
    status = refusal.status
    for name in ("tool_choice", "stop"):
        if name in sent and may_refuse(name, refusal):
            return HINTS[name]
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


def may_refuse(name: str, refusal: Refusal) -> bool:
    """Return whether the endpoint may refuse that parameter: its error mentions it, in any wording.

    No error mentions `tool_choice` for another reason; `stop` is also an ordinary word.
    """
    if refusal.status not in (400, 404, 422):
        return False
    text = f"{refusal.param or ''} {refusal.code or ''} {refusal.text}"
    if name == "tool_choice":
        return re.search(r"\btool[_ ]choice\b", text, re.IGNORECASE) is not None
    named = re.search(rf"\b{name}\b", refusal.text) is not None
    return complains_of(name, refusal) or (named and _NOT_TAKEN.search(refusal.text) is not None)


def complains_of(name: str, refusal: Refusal) -> bool:
    """Return whether the endpoint refuses that parameter of the request, by this name or by that of the Responses
    API.
    """
    if refusal.status not in (400, 422):
        return False
    return any(_names(one, refusal) for one in (name, _IN_RESPONSES.get(name)) if one)


def names_a_bound(refusal: Refusal) -> bool:
    """Return whether the endpoint refuses the value of a parameter, not the parameter."""
    return _BOUND.search(refusal.text) is not None


def bounds(name: str, refusal: Refusal) -> bool:
    """Return whether the endpoint takes that parameter, but not so large a value."""
    if refusal.status not in (400, 422) or refusal.too_long or not names_a_bound(refusal):
        return False
    is_taken = re.search(_UNWANTED.replace("|invalid", ""), refusal.text, re.IGNORECASE) is None
    return is_taken and re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", refusal.text) is not None


def most_named(refusal: Refusal, asked: int) -> int | None:
    """Return the largest number of tokens below `asked` that a refusal names; None for one that no answer fits in."""
    text = re.sub(r"(?<=\d)[,_](?=\d{3}\b)", "", refusal.text)
    named = [int(number) for number in re.findall(r"(?<![\d.])\d{2,7}(?![\d.]*\d)", text)]
    return max((number for number in named if _LEAST <= number < asked), default=None)


def _names(name: str, refusal: Refusal) -> bool:
    quoted = rf"[\"'`]{name}[\"'`]"
    unwanted = rf"\b{name}\b.*?(?:{_UNWANTED})|(?:{_UNWANTED})\W+(?:\w+\W+){{0,3}}{name}\b"
    found = re.search(f"{quoted}|{unwanted}", refusal.text, re.IGNORECASE | re.DOTALL)
    return refusal.param == name or found is not None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that the endpoint asks to wait, None when it does not say. `now` is in Unix seconds; if the
    endpoint reports its own time, a time that it names is relative to that."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * unit
        if (seconds := named_wait(value)) is not None:
            return seconds
    due, dated = _moment(headers.get("retry-after", "")), _moment(headers.get("date", ""))
    if due is None:
        return header_wait(headers)
    return max(0.0, due - (now if dated is None else dated))


def _moment(value: str) -> float | None:
    """Return the Unix seconds of a date in HTTP's form; None for anything else."""
    try:
        found = parsedate_to_datetime(value.strip())
    except ValueError:
        return None
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).timestamp()


def failed_connection(url: str, cause: str) -> ModelUnavailable:
    """Make the error for an endpoint that cannot be reached; `cause` says why."""
    return ModelUnavailable(
        f"cannot reach the model endpoint {shown_url(url)}: {cause}; start it or set CADRE_MODEL_URL"
    )


def failed_silence(url: str, seconds: float) -> ModelUnavailable:
    """Make the error for an endpoint that sent nothing for its timeout, in seconds."""
    return ModelUnavailable(
        f"the model endpoint {shown_url(url)} sent nothing for {seconds:g} s; model.timeout sets how long"
    )


def ended_answer(url: str, reply: ModelReply, names: Collection[str]) -> ModelReply:
    """Return the reply as what its finish_reason says of it; `names` are the functions that were on offer.

    Raises ModelUnavailable, ModelRefused where nothing of it may be used.
    """
    reason, where = reply.finish_reason, f"the model endpoint {shown_url(url)}"
    match ending_of(reason):
        case "failed":
            raise ModelUnavailable(f"{where} failed in the middle of its answer (finish_reason {reason})")
        case "filtered":
            raise ModelRefused(
                f"the content filter of {where} withheld the answer (finish_reason {reason}); {FILTER_HINT}"
            )
        case "too_long":
            raise ModelRefused(
                f"{where} has no room for the answer (finish_reason {reason}); set {_UNTOLD_CONTEXT}",
                too_long=True,
            )
        case "unread_call":
            if not names:
                raise ModelUnavailable(f"{where} could not read what its model wrote (finish_reason {reason})")
            unread = refused_call(Refusal(status=400, text=f"finish_reason {reason}"), names)
            return msgspec.structs.replace(reply, calls=unread.calls)
        case "cut":
            return msgspec.structs.replace(reply, finish_reason="length")
    return reply


class UnreadCall(Exception):
    """The endpoint refuses the call that its model wrote: the model can write another one."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def refused_call(refusal: Refusal, names: Collection[str]) -> ModelReply:
    """Return the reply of a model whose call its endpoint could not read: a call that is not made, and why."""
    written = refusal.generation or ""
    named = sorted((written.find(name), name) for name in names if re.search(rf"\b{re.escape(name)}\b", written))
    text = f"Your call could not be read, so it was not made: {refusal.text[:MAX_SHOWN_CHARS]}"
    if written:
        text += f"\nYou wrote: {written[:MAX_SHOWN_CHARS]}"
    text += "\nCall the tool again, with its arguments as one JSON object that fits its schema."
    call = RequestedCall(named[0][1] if named else "", "", ErrorInfo("invalid-call", text))
    return ModelReply(calls=[call], finish_reason="tool_calls")


def failed_answer(url: str, what: str) -> ModelUnavailable:
    """Make the error for an answer that cannot be used."""
    return ModelUnavailable(f"the answer of the model endpoint {shown_url(url)} {what}")


def root_cause(error: BaseException) -> str:
    """Return the system's own word for a failure (`connection refused`), else the innermost message."""
    texts: list[str] = []
    inner: BaseException | None = error
    seen: set[int] = set()
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and inner.strerror:
            # asyncio writes its own text into strerror; TLS and name lookup have their own errnos.
            if inner.errno is not None and (isinstance(inner, ConnectionError) or type(inner) is OSError):
                return os.strerror(inner.errno).lower()
            return inner.strerror.lower()
        texts.append(str(inner) or type(inner).__name__)
        first = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else None
        inner = first or inner.__cause__ or inner.__context__
    return " ".join(texts[-1].split())


Ending = Literal["failed", "filtered", "too_long", "unread_call", "cut"]
"""The ways in which an incomplete answer ended: the endpoint failed, a filter withheld the answer, the context has no
room for request and answer, the endpoint could not read the model's call, the answer was cut at the limit of tokens."""

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
"""The names of each way at OpenAI, OpenRouter, Z.ai, DeepSeek, vLLM, SGLang, Cohere, Gemini, Anthropic, Mistral and
relays. All others (`stop`, `tool_calls`, `end`, `eos`, `end_turn`) end a whole answer: what came says what it is."""

_ENDING_OF = {reason: ending for ending, reasons in _ENDINGS.items() for reason in reasons}


def ending_of(reason: str) -> Ending | None:
    """Return how an answer with this finish_reason ended; None for a whole one.

    Some endpoints put a class in front: `function_call_filter: MALFORMED_FUNCTION_CALL`, `FinishReason.SAFETY`.
    """
    parts = [part.strip().casefold() for part in re.split("[:.]", reason)]
    return next((_ENDING_OF[part] for part in reversed(parts) if part in _ENDING_OF), None)
