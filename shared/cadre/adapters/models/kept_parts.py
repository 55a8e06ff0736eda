"""The parts of an answer besides its text and calls that an endpoint wants back: reasoning in its fields, signatures of
calls. They are kept as they came, assembled from the pieces of a stream.

| what came | the item | what is in it |
|---|---|---|
| a field of the message: `reasoning*`, `extra_content`, LiteLLM's `thinking_blocks` | `message` | the same field |
| the content, where its thoughts go back (`reasoning_back: verbatim`) | `message` | `content`, as it came |
| parts of the content with `type: thinking` | `message` | `thinking`, one such part |
| `extra_content` or `provider_specific_fields` of a call | `function_call` each | `id`, the same field |
| `reasoning_details`, which name calls | `function_call` each | `id` |
"""

from typing import Any

from cadre.adapters.models.call_assembly import AssembledCall

_TEXTS = ("reasoning_content", "reasoning", "reasoning_text")
_GROWING = ("text", "summary", "data", "signature", "thinking")
"""Fields of an entry of `reasoning_details` or `thinking_blocks` that come in pieces."""


class KeptParts:
    """Collects them from the pieces of one answer."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._blocks: list[dict[str, Any]] = []
        self._thinking: list[str] = []
        self._thought: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self.characters = 0

    def add(self, message: dict[str, Any]) -> None:
        """Take the message of a whole answer, or the delta of a piece of one."""
        for name in _TEXTS:
            if isinstance(text := message.get(name), str) and text:
                self._texts.setdefault(name, []).append(self._counted(text))
        for entry in _objects(message.get("reasoning_details")):
            self._add_detail(entry)
        for block in _objects(message.get("thinking_blocks")):
            self._add_block(block)
        for part in _objects(message.get("content")):
            if part.get("type") == "thinking":
                self._add_thinking(part)
        if isinstance(extra := message.get("extra_content"), dict):
            self._extra |= extra

    def items(self, calls: list[AssembledCall], annotations: list[Any]) -> list[dict[str, Any]]:
        """Return the items of an answer with these calls; [] where nothing is to be kept."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        # Some endpoints send the same text under several names.
        fields: dict[str, Any] = {}
        for name, text in texts.items():
            if text not in fields.values():
                fields[name] = text
        if self._blocks:
            fields = {"thinking_blocks": self._blocks}
        if self._details:
            fields = {"reasoning_details": self._details}
        if self._thinking or self._thought:
            said = [{"type": "text", "text": "".join(self._thinking)}]
            fields["thinking"] = {**self._thought, "type": "thinking", "thinking": said}
        if self._extra:
            fields["extra_content"] = self._extra
        if annotations:
            fields["annotations"] = annotations
        items = [{"type": "message", **fields}] if fields else []
        if self._details or any(call.extra for call in calls):
            items += map(_item, calls)
        return items

    def _add_detail(self, entry: dict[str, Any]) -> None:
        self.characters += sum(len(value) for key in _GROWING if isinstance(value := entry.get(key), str))
        last = self._details[-1] if self._details else None
        same = last is not None and all(last.get(key) == entry.get(key) for key in ("type", "index"))
        other = last is not None and last.get("id") and entry.get("id") and last["id"] != entry["id"]
        if last is None or not same or other or "index" not in entry:
            self._details.append(dict(entry))
            return
        for key, value in entry.items():
            if key in _GROWING and isinstance(value, str) and isinstance(last.get(key), str):
                last[key] += value
            elif value is not None:
                last[key] = value

    def _add_block(self, block: dict[str, Any]) -> None:
        """Take a block of Claude's thoughts, or a piece of one: its signature ends it."""
        self.characters += sum(len(value) for key in _GROWING if isinstance(value := block.get(key), str))
        last = self._blocks[-1] if self._blocks else {}
        goes_on = last.get("type") == block.get("type") == "thinking" and not last.get("signature")
        if not goes_on:
            self._blocks.append(dict(block))
            return
        for key in ("thinking", "signature"):
            if isinstance(value := block.get(key), str) and value:
                last[key] = (last.get(key) or "") + value

    def _add_thinking(self, part: dict[str, Any]) -> None:
        said = part.get("thinking")
        texts = [said] if isinstance(said, str) else [one.get("text") for one in _objects(said)]
        self._thinking += [self._counted(text) for text in texts if isinstance(text, str)]
        self._thought |= {key: value for key, value in part.items() if key != "thinking"}

    def _counted(self, text: str) -> str:
        self.characters += len(text)
        return text


def _item(call: AssembledCall) -> dict[str, Any]:
    return {"type": "function_call", **({"id": call.id} if call.id else {}), **call.extra}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
