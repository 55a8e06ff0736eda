"""The profile of an endpoint: known by its address and its model's name, changed by the agent's file, and learned from
what the endpoint refuses."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cadre.adapters.models.failure import Refusal, may_refuse
from cadre.spec.model import PROFILE_KEYS, ModelSpec, Profile, with_keys

_TABLE = Path(__file__).parent / "profiles.yaml"

_NO_REASONING = re.compile(
    r"reasoning(?:_content|_details|_text)?\W.*?"
    r"(?:unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra|invalid|cannot)"
    r"|(?:unsupported|unknown|unrecogni[sz]ed|unexpected|extra|additional)\W+(?:\w+\W+){0,10}reasoning(?:_\w+)?\b",
    re.IGNORECASE | re.DOTALL,
)
_LACKS_REASONING = re.compile(
    r"reasoning_content\W.*?(?:missing|must be|required|passed back|absent)"
    r"|(?:missing|requires?|without)\W+(?:\w+\W+){0,4}reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
_LACKS_SIGNATURE = re.compile(
    r"(?:missing|without|require)\b.*?thought_?signature|thought_?signature.*?(?:missing|require)",
    re.IGNORECASE | re.DOTALL,
)
_USER_AFTER_TOOL = re.compile(
    r"role\W+user\W+(?:\w+\W+){0,4}(?:after|behind|follow\w*)\W+(?:\w+\W+){0,4}tool"
    r"|tool\W+(?:\w+\W+){0,6}(?:before|followed by)\W+(?:\w+\W+){0,3}(?:user|assistant)",
    re.IGNORECASE,
)
_STRICT = re.compile(r"[\"'`.]strict\b|\bstrict\W+(?:\w+\W+){0,3}(?:unsupported|not support|not permitted|unknown)")


def endpoint_id(spec: ModelSpec, url: str, name: str) -> str:
    """Return the name under which journals know an endpoint and its model; it holds no key and no password."""
    return f"{spec.api}:{_host(url)}{urlsplit(url).path.rstrip('/')}/{name}"


def profile_of(spec: ModelSpec, url: str, name: str, learned: Mapping[str, Any] | None = None) -> Profile:
    """Return the profile of the model of that name at that endpoint.

    Args:
        learned: keys that the endpoint's refusals have taught. Those that the spec sets itself count for nothing.
    """
    own = {key: value for key in PROFILE_KEYS if isinstance(value := getattr(spec, key), str | bool)}
    return with_keys(_known(_host(url), name.rpartition("/")[2].lower()), {**(learned or {}), **own})


def taught_by(refusal: Refusal, body: Mapping[str, Any], spec: ModelSpec, profile: Profile) -> dict[str, Any]:
    """Return the keys of the profile that the refusal of this request changes; {} where it teaches nothing.

    A parameter that the spec asks for is left as it is.
    """
    if refusal.status not in (400, 404, 422):
        return {}
    text = f"{refusal.param or ''} {refusal.code or ''} {refusal.text}"
    found: dict[str, Any] = {}
    if "tool_choice" in body and profile.tool_choice == "required" and may_refuse("tool_choice", refusal):
        found["tool_choice"] = "auto"
    elif "stop" in body and may_refuse("stop", refusal):
        found["stop"] = False
    elif "stream_options" in body and may_refuse("stream_options", refusal):
        found["stream_usage"] = False
    elif profile.strict and _is_strict(body) and _STRICT.search(text):
        found["strict"] = False
    elif profile.user_after_tool and _USER_AFTER_TOOL.search(text):
        found["user_after_tool"] = False
    elif profile.reasoning_back != "signed" and _LACKS_SIGNATURE.search(text):
        found["reasoning_back"] = "signed"
    elif profile.reasoning_back != "required" and _LACKS_REASONING.search(text):
        found["reasoning_back"] = "required"
    elif profile.reasoning_back != "never" and _gives_reasoning(body) and _NO_REASONING.search(text):
        found["reasoning_back"] = "never"
    return {key: value for key, value in found.items() if getattr(spec, key) is None}


@cache
def _rows() -> dict[str, list[dict[str, Any]]]:
    import yaml

    with _TABLE.open(encoding="utf-8") as file:
        table: dict[str, list[dict[str, Any]]] = yaml.safe_load(file)
    return table


@cache
def _known(host: str, name: str) -> Profile:
    profile = Profile()
    for kind, subject in (("models", name), ("endpoints", host)):
        row = next((row for row in _rows()[kind] if _matches(subject, row["match"])), {})
        profile = with_keys(profile, {key: value for key, value in row.items() if key != "match"})
    return profile


def _matches(subject: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in patterns)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _is_strict(body: Mapping[str, Any]) -> bool:
    return bool(body.get("response_format", {}).get("json_schema", {}).get("strict"))


def _gives_reasoning(body: Mapping[str, Any]) -> bool:
    return any(any(key.startswith("reasoning") for key in message) for message in body["messages"])
