"""Read an endpoint's account of a failure in any of its forms: the body of an HTTP status, an object in the middle of a
stream, a field of a whole answer. Pure.

| shape | endpoints |
|---|---|
| `{error: {message, type, param, code}}` | OpenAI, Azure, Groq, Kimi, DeepSeek, Ollama |
| `{object: "error", message, type, param, code}` | Mistral, older vLLM, SGLang |
| `{message, type, param, code}` | Cerebras |
| `{code, error: "text"}`, `{error: "text"}` | xAI, LM Studio, Ollama |
| `[{error: {code, message, status, details}}]` | Gemini |
| `{type: "error", error: {type, message, http_code}}` | MiniMax, Anthropic |
| `{base_resp: {status_code, status_msg}}` | MiniMax |
| `{error: {code, message, metadata: {raw, provider_name}}}` | OpenRouter: the true error is the text in `raw` |
| `{choices: [{finish_reason: "error", error: {…}}]}` | OpenRouter, in a stream |
| `{detail: "text"}`, `{detail: [{loc, msg, type}]}` | FastAPI: vLLM, SGLang, Mistral |
| `{success: false, errors: [{code, message}]}` | Cloudflare |
| `{__type, Message}` | AWS |
| `{error_code, error_msg}` | Baidu |
| `{Response: {Error: {Code, Message}}}`, `{ResponseMetadata: {Error: {Code, Message}}}` | Tencent, Volcengine |
| `{fault: {faultstring, detail: {errorcode}}}` | gateways of Apigee |

Keys are case-insensitive.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MOST_LAYERS = 8
"""Errors in errors; a proxy adds one."""

_INNER = (
    *(
        "error",
        "errors",
        "detail",
        "details",
        "metadata",
        "base_resp",
        "response",
        "responsemetadata",
        "body",
    ),
    *("violations", "fault"),
)
"""The fields in which an error holds what it is about, or the error of the endpoint behind it."""
_MESSAGES = (*("message", "msg", "status_msg", "error_msg", "detail", "error", "title", "faultstring", "description"),)
_STATUSES = ("code", "status_code", "http_code", "status", "statuscode", "http_status", "error_code")
_CODES = (
    *("code", "type", "__type", "status", "error_type", "error_code", "status_code", "http_code", "quotaid"),
    "errorcode",
)

_BARE_CODE = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")
"""A message that is a code, such as `insufficient_quota`."""

_IN_TEXT = re.compile(r"\{.*\}", re.DOTALL)
_TAGS = re.compile(r"<(?:head|style|script)\b.*?</(?:head|style|script)>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_MOST_CHARS = 20_000
"""Of one message: it is searched, and quoted in part."""

_DELAY = re.compile(
    r"(?:try again|retry|retrying|wait|available again|reset)[^.\d]{0,30}?(?:in|after|for|:)?\s*"
    r"((?:\d{1,5}(?:\.\d{1,12})?\s*(?:ms|milliseconds?|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])[\s,]*)+)",
    re.IGNORECASE,
)
_PART_OF_DELAY = re.compile(r"(\d{1,5}(?:\.\d{1,12})?)\s*(ms|mil|h|m|s)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "mil": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


class SentError(NamedTuple):
    """An error as its endpoint has put it."""

    text: str
    """Its messages, from the outermost to the innermost."""
    status: int | None = None
    """The HTTP status that the body itself names."""
    codes: tuple[str, ...] = ()
    """Its names for what is wrong, the innermost first: codes, types, and numbers as text."""
    param: str | None = None
    wait: float | None = None
    """Seconds that it asks to wait."""
    generation: str | None = None
    """The model's text, if the endpoint could not read a call in it."""


def error_in(sent: Any) -> Any:
    """Return the error that an answer, or a chunk of one, holds; None where it holds none."""
    if isinstance(sent, list):
        return next((found for one in sent[:1] if (found := error_in(one)) is not None), None)
    if not isinstance(sent, dict):
        return None
    base = sent.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (None, 0, "0", ""):
        return sent
    if sent.get("error") or "error" in (sent.get("object"), sent.get("type")):
        return sent
    if sent.get("error_code") not in (None, 0, "0", "") or _is_wrapped_error(sent):
        return sent
    choices = sent.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("error"):
            return {"error": choice["error"]}
    says = any(sent.get(name) for name in ("errors", "detail", "message", "msg"))
    return sent if says and not choices and not sent.get("usage") else None


def _is_wrapped_error(sent: dict[str, Any]) -> bool:
    """Return whether the answer is an object that holds an error of Tencent or Volcengine."""
    inner = (sent.get(name) for name in ("Response", "ResponseMetadata"))
    return any(isinstance(one, dict) and isinstance(one.get("Error"), dict) for one in inner)


def read_error(sent: Any) -> SentError:
    """Return what an error says, as far as it can be read: from its text, or from its JSON."""
    layers = list(_layers(sent, _MOST_LAYERS))
    texts: list[str] = []
    for text in (text for layer in layers for text in _texts(layer)):
        if text and not any(text in other for other in texts):
            texts = [*(other for other in texts if other not in text), text]
    whole = ": ".join(texts)[:_MOST_CHARS]
    found = [layer for layer in layers if isinstance(layer, dict)]
    codes = [str(value) for layer in reversed(found) for name in _CODES if _is_code(value := layer.get(name))]
    codes += [text for text in texts if _BARE_CODE.fullmatch(text)]
    return SentError(
        text=whole or ("" if sent in (None, "", {}, []) else json.dumps(sent, ensure_ascii=False)[:_MOST_CHARS]),
        status=next((code for layer in found for name in _STATUSES if (code := _status(layer.get(name)))), None),
        codes=tuple(dict.fromkeys(codes)),
        param=_innermost(found, "param") or _place(found),
        wait=_wait(found, whole),
        generation=_innermost(found, "failed_generation"),
    )


def _layers(sent: Any, depth: int) -> Iterator[Any]:
    """Yield an error and the errors within it, from the outermost to the innermost."""
    if depth == 0:
        return
    if isinstance(sent, list):
        for one in sent[:_MOST_LAYERS]:
            yield from _layers(one, depth - 1)
    elif isinstance(sent, str):
        inner = _json_in(sent)
        yield sent if inner is None else sent.partition("{")[0].strip(" -:'\"\n")
        if inner is not None:
            yield from _layers(inner, depth - 1)
    elif isinstance(sent, dict):
        sent = {**{str(name).lower(): value for name, value in sent.items()}, **sent}
        yield sent
        for name in _INNER:
            if sent.get(name) and isinstance(sent[name], dict | list):
                yield from _layers(sent[name], depth - 1)
        for name in ("raw", "message", "error", "detail", "body"):
            if isinstance(sent.get(name), str) and (inner := _json_in(sent[name])) is not None:
                yield from _layers(inner, depth - 1)


def _json_in(text: str) -> Any:
    """Return the JSON object in a text, as proxies pass on the error of the endpoint behind them; None without one."""
    found = _IN_TEXT.search(text[:_MOST_CHARS])
    if found is None:
        return None
    try:
        value = json.loads(found[0])
    except (ValueError, RecursionError):
        return None
    return (
        value
        if isinstance(value, dict) and {name.lower() for name in value if value[name]} & {*_INNER, *_MESSAGES}
        else None
    )


def _texts(layer: Any) -> Iterator[str]:
    if isinstance(layer, str):
        yield _plain(layer)
    elif isinstance(layer, dict):
        said = next((layer[name] for name in _MESSAGES if isinstance(layer.get(name), str) and layer[name]), "")
        inner = _json_in(said)
        text = _plain(said if inner is None else said.partition("{")[0].strip(" -:'\"\n"))
        place = layer.get("loc")
        if text and isinstance(place, list):
            text = f"{text}: {'.'.join(map(str, place))}"
        yield text
        raw = layer.get("raw")
        if isinstance(raw, str) and _json_in(raw) is None:
            yield _plain(raw)


def _plain(text: str) -> str:
    """Return a message in one line; of a page of HTML its text."""
    text = text[:_MOST_CHARS]
    if text.lstrip().startswith("<") and "</" in text:
        text = _TAGS.sub(" ", text)
    return " ".join(text.split())


def _is_code(value: Any) -> bool:
    return bool(value) and isinstance(value, str | int) and not isinstance(value, bool) and value != "error"


def _status(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    is_status = isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600
    return value if is_status else None


def _innermost(layers: list[dict[str, Any]], name: str) -> str | None:
    found = [value for layer in layers if isinstance(value := layer.get(name), str) and value]
    return found[-1] if found else None


def _place(layers: list[dict[str, Any]]) -> str | None:
    """Return the field of the request that a check by FastAPI complains of."""
    places = [place for layer in layers if isinstance(place := layer.get("loc"), list) and len(place) > 1]
    return str(places[0][1]) if places else None


def _wait(layers: list[dict[str, Any]], text: str) -> float | None:
    for layer in layers:
        for name in ("retryDelay", "retry_after", "retry_after_seconds"):
            value = layer.get(name)
            if isinstance(value, str):
                value = _seconds(value if re.search("[a-z]", value) else f"{value}s")
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
                return float(value)
    found = _DELAY.search(text)
    return _seconds(found[1]) if found is not None else None


def _seconds(text: str) -> float | None:
    parts = _PART_OF_DELAY.findall(text)
    return round(sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts), 3) if parts else None


def named_wait(value: str) -> float | None:
    """Return the seconds of a delay with its units, such as `20s` or `1m2.5s`; None for anything else."""
    text = value.strip()
    is_delay = re.fullmatch(r"(?:\d{1,9}(?:\.\d{1,12})?(?:ms|h|m|s))+", text)
    return _seconds(text) if is_delay else None


def header_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until an exhausted limit is reset, by the headers of OpenAI and Groq; None without them."""
    waits = [
        wait
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}", "").strip() == "0"
        and (wait := named_wait(headers.get(f"x-ratelimit-reset-{what}", ""))) is not None
    ]
    return max(waits, default=None)
