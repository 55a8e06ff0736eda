"""Assemble the tool calls of one answer from the pieces in which an endpoint sends them. Pure.

A piece may bring an index, an id, a part of a name and a part of the arguments. Endpoints leave out, repeat and change
each of them, so a piece is put to a call by these rules, the first that holds:

| the piece | goes to |
|---|---|
| brings nothing, or an index alone | no call: a placeholder |
| has an index that a call has | the call there that has its id, else the last call there |
| has an id that a call has, and no new index with a name | that call |
| has a new index | a new call |
| has neither | the last call, or a new one if there is no call |

A call that was found this way is *whole* once its arguments are a JSON value with all its brackets. A piece that
brings a name begins another call instead of continuing the one found, if

| the call found | and the piece |
|---|---|
| is whole and has a name | brings any |
| is whole and has none | has another id, or begins a JSON object |
| has another name, and arguments that are begun | brings any |
| has another name | has another id; or both names are on offer |

In all other cases it continues the call, and its name is read as

| the call's name is | the name becomes |
|---|---|
| missing, or the beginning of the piece's name | the piece's name |
| the piece's name | as it is |
| another one, with no arguments yet | both, one behind the other |

At the end each call is read:

| what was collected | is |
|---|---|
| no name and no arguments | dropped |
| one text of arguments | the call |
| pieces that are no single object, but one for each id that came with a name | a call for each id |
| pieces of which each repeats the one before and adds to it | a call with the last piece |
| no name, right behind a call whose arguments it completes | a part of that call |
| several objects, with empty ones among them | read without the empty ones, which are placeholders |
| objects one behind the other that are equal | one call |
| objects one behind the other that differ | the first is the call; each further one is a call without a name |
| a call that repeats the one before it at its place, or brings nothing but its name | dropped |
| a call that repeats one of the same id | dropped |
| a call of the same id and name that differs from the one before it at its place | in the place of that one |

A call repeats the one before it when names and arguments are equal and the ids are too, or one has none. Another id
makes another call, unless the first came in pieces and the second in one: that is the whole call, repeated at the end.

A call without a name is given with an empty one, and is never made. A name is stripped of blanks and of what follows
`<|` in it; a prefix such as `functions.`, a number behind a colon, quotes and brackets are taken off where only the
rest names a function that is on offer. A name that goes on with its arguments, `f{"a": 1}`, is cut in two if the call
has no other arguments.
"""

import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

_PREFIX = re.compile(r".*[.:/]", re.DOTALL)
_AROUND = re.compile(r"\A[\s\"'`<]+|[\s\"'`>]*(?:\(\s*\))?[\s\"'`>]*\Z")
_WITH_ARGUMENTS = re.compile(r"\s*([^{(,>=\s]+)[\s,>=(:]{0,4}(\{.*)", re.DOTALL)
_TOKEN = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)
_SPACES = re.compile(r"[ \t\r\n]*")
_BLANK = " \t\r\n"

_ARGUMENTS = ("arguments", "parameters", "input", "args")
"""Keys of the arguments, OpenAI's first."""

_KEPT = ("extra_content", "provider_specific_fields")
"""Fields of a call that hold the signature of a thought: Gemini's, and LiteLLM's for Gemini."""

_MOST_VALUES = 64
"""In the place of one: more are no repetition, and cost time."""


class CallPiece(NamedTuple):
    """One piece of a call, as its endpoint sends it; None and "" stand for what it does not bring."""

    place: int | None
    """Its index."""
    id: str
    name: str
    arguments: str
    extra: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple, never changed
    """Its fields that go back with it, such as `extra_content` with the signature of a thought."""


class AssembledCall(NamedTuple):
    """A call as the model meant it."""

    name: str
    """Empty where the answer gives no name: such a call cannot be made."""
    arguments: str
    """JSON text, as far as the model wrote it."""
    id: str = ""
    """The first that came with it."""
    extra: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple, never changed
    """The fields that came with it and go back with it."""


def read_piece(value: Any) -> CallPiece | None:
    """Return what can be used of one entry of `tool_calls`, field by field; None where it is no object."""
    if not isinstance(value, dict):
        return None
    said = next((value[kind] for kind in ("function", "custom") if isinstance(value.get(kind), dict)), value)
    arguments = next((said[key] for key in _ARGUMENTS if said.get(key) is not None), None)
    name = said.get("name", said.get("function"))
    return CallPiece(
        place=_index(value.get("index")),
        id=_id(value.get("id")),
        name=name if isinstance(name, str) else "",
        arguments=arguments if isinstance(arguments, str) else as_json(arguments),
        extra={name: kept for name in _KEPT if isinstance(kept := value.get(name), dict)},
    )


def as_json(value: Any) -> str:
    """Return a value as JSON text; "" for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class CallAssembly:
    """Collects the pieces of an answer's calls.

    Args:
        names: the functions on offer; they decide where a name may be read in two ways.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._calls: list[_Open] = []

    def add(self, piece: CallPiece) -> None:
        """Take a piece of a stream."""
        if not (piece.id or piece.name or piece.arguments or piece.extra):
            return
        found = self._found(piece)
        if found is None or self._begins_another(piece, found):
            found = self._open(piece.place, found)
        found.add(piece, self._names)

    def add_whole(self, pieces: list[CallPiece]) -> None:
        """Take the calls of a whole message, each of which is one. Behind a stream they repeat what came in pieces,
        and take its place."""
        if self._calls and not all(piece.name for piece in pieces):
            for piece in pieces:
                self.add(piece)
        elif pieces:
            self._calls = []
            for piece in pieces:
                self._open(None, None).add(piece, self._names)

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def only(self) -> tuple[str, str] | None:
        """Return the name and the arguments, so far, of the answer's only call; None for no call or several."""
        return (self._calls[0].name, self._calls[0].arguments) if len(self._calls) == 1 else None

    def done(self) -> list[AssembledCall]:
        """Return the calls, in their order, once everything was added."""
        read: list[_ReadCall] = []
        for call in self._calls:
            for one in _read(call):
                _settle(one, read)
        return [AssembledCall(*_apart(one.name, one.arguments, self._names), one.first_id, one.extra) for one in read]

    def _open(self, index: int | None, before: "_Open | None") -> "_Open":
        call = _Open(index, before)
        self._calls.append(call)
        return call

    def _found(self, piece: CallPiece) -> "_Open | None":
        there = [call for call in self._calls if piece.place is not None and call.index == piece.place]
        if there:
            return next((call for call in reversed(there) if piece.id in call.ids), there[-1])
        if piece.id and (piece.place is None or not piece.name):
            for call in reversed(self._calls):
                if piece.id in call.ids:
                    return call
        return self._calls[-1] if self._calls and piece.place is None else None

    def _begins_another(self, piece: CallPiece, call: "_Open") -> bool:
        if not piece.name:
            return False
        other_id = bool(piece.id and call.ids and piece.id not in call.ids)
        if call.whole:
            return bool(call.name) or other_id or piece.arguments.lstrip(_BLANK).startswith("{")
        if not call.name or call.name == piece.name:
            return False
        if call.begun:
            return True
        joined = _joined_name(call.name, piece.name, self._names)
        return joined is None or (other_id and joined not in self._names)


class _Open:
    """A call in work."""

    def __init__(self, index: int | None, before: "_Open | None") -> None:
        self.index = index
        self.before = before
        """The call at the same place that this one came behind."""
        self.name = ""
        self.ids: list[str] = []
        self.named: set[str] = set()
        """The ids that came with a name."""
        self.extra: dict[str, Any] = {}
        self.parts: list[tuple[str, str]] = []
        """The arguments as they came, each with its id."""
        self.begun = False
        """Some of the arguments have come."""
        self.whole = False
        """The arguments have all their brackets."""
        self._text, self._joined = "", 0
        self._level, self._quoted, self._escaped = 0, False, False

    def add(self, piece: CallPiece, names: Collection[str]) -> None:
        if piece.id and piece.id not in self.ids:
            self.ids.append(piece.id)
        for name, kept in piece.extra.items():
            self.extra[name] = {**self.extra.get(name, {}), **kept}
        if piece.name:
            self.named.add(piece.id)
            if not self.name or not self.begun:
                self.name = _joined_name(self.name, piece.name, names) or self.name
        if piece.arguments:
            self.parts.append((piece.id, piece.arguments))
            self.begun = self.begun or not piece.arguments.isspace()
            self._count_brackets(piece.arguments)

    @property
    def arguments(self) -> str:
        """Return all arguments received so far: joined once, because they may come in a million pieces."""
        if self._joined < len(self.parts):
            new = (text for _, text in self.parts[self._joined :])
            self._text, self._joined = "".join([self._text, *new]), len(self.parts)
        return self._text

    def _count_brackets(self, piece: str) -> None:
        if self.whole:
            return
        start, self._escaped = int(self._escaped), False
        for token in _TOKEN.finditer(piece, start):
            if token[0][0] == "\\":
                self._escaped = len(token[0]) == 1
                continue
            if token[0] == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._level += 1 if token[0] in "{[" else -1
            if not self._quoted and self._level <= 0:
                self.whole = True
                return


class _ReadCall:
    """A call that was read, and where it came from."""

    def __init__(self, call: _Open, name: str, arguments: str, ids: Collection[str]) -> None:
        self.call, self.name, self.ids = call, name, set(ids)
        self.first_id, self.extra = next(iter(ids), ""), call.extra if name else {}
        self.take(arguments)

    def take(self, arguments: str) -> None:
        self.arguments = arguments
        values = _values(arguments)
        self.is_sound = values is not None
        self.value = values[0].value if values else arguments.strip()
        """Equal for arguments that say the same; "" for none."""

    @property
    def parts(self) -> int:
        return sum(not text.isspace() for _, text in self.call.parts)


class _Value(NamedTuple):
    text: str
    value: str
    """In a form that is equal for equal values; "" for an empty one."""


def _read(call: _Open) -> list[_ReadCall]:
    """Return the calls that were collected as one: mostly that one."""
    if not call.name and not call.begun:
        return []
    text = call.arguments
    values = _values(text)
    if values is not None and len(values) <= 1:
        return [_ReadCall(call, call.name, text, call.ids)]
    by_id = _texts_by_id(call)
    if len(by_id) > 1 and by_id.keys() <= call.named and all(map(_values, by_id.values())):
        return [_ReadCall(call, call.name, own, [one]) for one, own in by_id.items()]
    if values is None:
        repeated = _last_of_growing(call)
        return [_ReadCall(call, call.name, text if repeated is None else repeated, call.ids)]
    apart = list({one.value: one.text for one in values if one.value}.values()) or [values[0].text]
    return [_ReadCall(call, "" if n else call.name, one, () if n else call.ids) for n, one in enumerate(apart)]


def _values(text: str) -> list[_Value] | None:
    """Return the objects of which the text consists, and the texts that may hold one; None where there is anything
    else."""
    found: list[_Value] = []
    at = _SPACES.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
            if isinstance(value, str) and value.lstrip(_BLANK).startswith("{"):
                value = _DECODER.decode(value)
            is_empty = value in (None, "", [], {})
            if not (is_empty or isinstance(value, dict | str)) or len(found) == _MOST_VALUES:
                return None
            canonical = "" if is_empty else json.dumps(value, sort_keys=True)
        except (ValueError, RecursionError):
            return None
        found.append(_Value(text[at:end], canonical))
        at = _SPACES.match(text, end).end()  # type: ignore[union-attr]
    return found


def _texts_by_id(call: _Open) -> dict[str, str]:
    pieces: dict[str, list[str]] = {}
    for one, text in call.parts:
        pieces.setdefault(one, []).append(text)
    return {one: "".join(texts) for one, texts in pieces.items()}


def _last_of_growing(call: _Open) -> str | None:
    """Return the last piece, where each repeats the one before and adds to it; None where they do not."""
    texts = [text for _, text in call.parts if not text.isspace()]
    grows = len(texts) > 1 and all(map(str.startswith, texts[1:], texts))
    return texts[-1] if grows and _values(texts[-1]) else None


def _settle(new: _ReadCall, read: list[_ReadCall]) -> None:
    """Add a call to those that were read before it, or to the one that it belongs to."""
    if not new.name and read and not read[-1].is_sound and _values(read[-1].arguments + new.arguments):
        read[-1].take(read[-1].arguments + new.arguments)
        return
    for old in read:
        here = old.call in _before(new.call)
        same_id = bool(old.ids & new.ids)
        if old.name != new.name or not (here or same_id):
            continue
        other_id = bool(old.ids and new.ids and not same_id)
        at_the_end = old.parts > 1 and new.parts == 1
        empty = not new.arguments.strip() or (not new.value and bool(old.ids or new.ids))
        if here and empty and not other_id:
            return
        if new.value == old.value and (same_id or not other_id or at_the_end):
            return
        if same_id and here:
            old.take(new.arguments)
            return
    read.append(new)


def _before(call: _Open) -> list[_Open]:
    found: list[_Open] = []
    while (before := call.before) is not None:
        found.append(before)
        call = before
    return found


def _joined_name(name: str, piece: str, names: Collection[str]) -> str | None:
    """Return the name of a call whose name was `name` before the piece came; None where that names another one."""
    if not name or name == piece:
        return piece
    if name + piece in names:
        return name + piece
    if name in names and piece in names:
        return None
    return piece if piece.startswith(name) else name + piece


def _apart(name: str, arguments: str, names: Collection[str]) -> tuple[str, str]:
    """Return the name and the arguments of a call, also where the model wrote both into the name."""
    plain = _plain_name(name, names)
    found = _WITH_ARGUMENTS.match(name) if plain not in names and arguments.strip() in ("", "{}") else None
    if found is None or (behind := _plain_name(found[1], names)) not in names:
        return plain, arguments
    try:
        _, end = _DECODER.raw_decode(found[2])
    except (ValueError, RecursionError):
        return plain, arguments
    return behind, found[2][:end]


def _plain_name(name: str, names: Collection[str]) -> str:
    plain = name.partition("<|")[0].strip()
    # Kimi counts its calls: `functions.NAME:0`.
    uncounted = re.sub(r":\d+\Z", "", plain)
    bare = _AROUND.sub("", plain)
    found = (
        plain,
        _PREFIX.sub("", plain),
        uncounted,
        _PREFIX.sub("", uncounted),
        bare,
        _PREFIX.sub("", bare),
    )
    return next((one for one in found if one in names), plain)


def _index(value: Any) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 10 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value // 1 else None


def _id(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value}"
    return value if isinstance(value, str) else ""
