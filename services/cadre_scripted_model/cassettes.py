"""Recorded answers on disk, found again by what was asked, in whatever order it is asked."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from cadre.errors import SettingError

FINGERPRINTED_KEYS = (
    *("model", "messages", "tools", "tool_choice", "response_format", "stream"),
    *("input", "instructions", "text"),
)

VOLATILE = re.compile(
    r"\b(?:call|run)_(?=[A-Za-z]*\d)[A-Za-z0-9]{8,}\b"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b[0-9a-f]{31}[0-9a-z]\b|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
)
"""Ids and times that differ from run to run: made-up call and run ids, UUIDs, ULIDs, timestamps."""

DATA_URL = re.compile(r"data:([\w/+.-]+);base64,([A-Za-z0-9+/=]{64,})")


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer, and the request that it answers."""

    prompt: str
    request: dict[str, Any]
    """The canonical request, of which the fingerprint is taken."""
    status: int
    content_type: str
    body: str
    """The answer, byte for byte: as text, or in base64 where it is no UTF-8."""
    is_base64: bool = False
    headers: dict[str, str] = {}
    """Those that say how long to wait."""
    endpoint: str = ""
    """The endpoint's host, or its name."""
    origin: Literal["recorded", "reported", "written"] = "recorded"
    source: str = ""
    """The public report that the answer stands in: `owner/repository#number`."""

    @property
    def content(self) -> bytes:
        """The bytes of the answer."""
        return base64.b64decode(self.body) if self.is_base64 else self.body.encode()


def canonical(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the request without what differs from run to run: equal for requests that ask the same."""
    kept = {key: body[key] for key in FINGERPRINTED_KEYS if body.get(key) is not None}
    names = {made_id: f"id-{n}" for n, made_id in enumerate(_call_ids(_conversation(body)))}
    text = json.dumps(_renamed(kept, names), sort_keys=True, ensure_ascii=False)
    for made_id, name in names.items():
        # A prompt may speak of a call by its id; one as short as "1" is no id in a text.
        if len(made_id) >= 8:
            text = re.sub(rf"(?<!\w){re.escape(made_id)}(?!\w)", name, text)
    text = DATA_URL.sub(lambda url: f"data:{url[1]};sha256,{_sha(url[2])}", text)
    masked: dict[str, Any] = json.loads(VOLATILE.sub("~", text))
    return masked


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Returns `value` with every id of a tool call replaced, wherever it stands as one."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {
            key: names.get(str(item), item)
            if key in ("id", "tool_call_id", "call_id")
            else _renamed(item, names)
            for key, item in value.items()
        }
    return value


def fingerprint(request: dict[str, Any]) -> str:
    """Returns 20 hex digits of the SHA-256 of a canonical request."""
    return _sha(json.dumps(request, sort_keys=True))


class Cassettes:
    """A directory of `<fingerprint>-<n>.json`, n counting how often the process has seen the request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}

    def reset(self) -> None:
        """Begins with the first answer to each request again."""
        self._seen = {}

    def keep(self, cassette: Cassette) -> str:
        """Writes it as the next answer to its request; returns the name of its file."""
        name = self._next(fingerprint(cassette.request))
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(msgspec.to_builtins(cassette), indent=1, ensure_ascii=False)
        (self._folder / name).write_text(text + "\n")
        return name

    def find(self, request: dict[str, Any]) -> tuple[str, Cassette] | None:
        """Returns the next answer to this request and its file; after the last one, that again."""
        mark = fingerprint(request)
        self._next(mark)
        for n in range(self._seen[mark], 0, -1):
            path = self._folder / f"{mark}-{n}.json"
            if path.exists():
                return path.name, _read(path)
        return None

    def check(self) -> int:
        """Returns how many cassettes there are. Raises SettingError when there is none, or an unreadable one."""
        count = len([_read(path) for path in self._folder.glob("*.json")])
        if not count:
            raise SettingError(f"{self._folder}: no cassettes here; make some with --mode record")
        return count

    def nearest(self, request: dict[str, Any]) -> str:
        """Says where the recording most like this request differs from it first."""
        best, where = -1, ""
        for path in sorted(self._folder.glob("*.json")):
            old, new = _conversation(_read(path).request), _conversation(request)
            same = next(
                (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
            )
            if same > best:
                best, where = same, _difference(path.name, same, old, new)
        return where

    def _next(self, mark: str) -> str:
        self._seen[mark] = self._seen.get(mark, 0) + 1
        return f"{mark}-{self._seen[mark]}.json"


def _difference(name: str, at: int, old: list[Any], new: list[Any]) -> str:
    if old == new:
        return f"{name} has the same messages: the model, the tools or `stream` differ"
    shown = [
        json.dumps(side[at], ensure_ascii=False)[:160] if at < len(side) else "nothing" for side in (old, new)
    ]
    return f"{name} is nearest; message {at} was {shown[0]}, now it is {shown[1]}"


def _read(path: Path) -> Cassette:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Cassette)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingError(f"{path}: not a cassette: {error}; record it again") from error


def _conversation(body: dict[str, Any]) -> list[Any]:
    """The messages of a chat completion request, or the input items of the Responses API."""
    given = body.get("messages") or body.get("input") or []
    return given if isinstance(given, list) else [{"role": "user", "content": given}]


def _call_ids(messages: list[Any]) -> list[str]:
    ids: dict[str, None] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            ids[str(call.get("id"))] = None
        for key in ("tool_call_id", "call_id"):
            if message.get(key):
                ids[str(message[key])] = None
    return list(ids)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
