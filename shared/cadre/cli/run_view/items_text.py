"""What an endpoint gave beside an answer's text and calls, as lines: reasoning, what its own tools did, citations."""

import json
from collections.abc import Iterator
from typing import Any

from cadre.views.words import brief

MAX_CHARS = 300
"""Of one line."""

_UNSAID = ("id", "type", "status", "encrypted_content")


def item_lines(items: list[dict[str, Any]]) -> Iterator[str]:
    """Yields a line for each thing that there is to see."""
    for item in items:
        kind = str(item.get("type"))
        if kind == "reasoning":
            parts = [*(item.get("summary") or []), *(item.get("content") or [])]
            if text := " ".join(str(part.get("text", "")) for part in parts):
                yield f"reasoning: {brief(text, MAX_CHARS)}"
        elif kind == "message":
            parts = [item, *(item.get("content") or [])]
            yield from (_citation(note) for part in parts for note in part.get("annotations") or [])
        elif kind != "function_call":
            said = {key: value for key, value in item.items() if key not in _UNSAID and value is not None}
            status = item.get("status", "completed")
            text = brief(json.dumps(said, ensure_ascii=False), MAX_CHARS)
            yield f"{kind} {text}" + ("" if status == "completed" else f" ({status})")


def _citation(note: dict[str, Any]) -> str:
    about = note.get("url_citation") or note
    names = [str(about[key]) for key in ("title", "filename", "url", "file_id") if about.get(key)]
    return brief(f"cites {' '.join(names) or note.get('type')}", MAX_CHARS)
