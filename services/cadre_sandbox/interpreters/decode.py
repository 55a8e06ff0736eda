"""Write requests as frames for the jailed interpreter, and read its frames as outcomes; each is checked before
anything is made of it, for code in the jail may have written it."""

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cadre.protocol.tagged import MAX_LEVELS, nesting
from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    CallResult,
    Exchange,
    Failed,
    Finished,
    FunctionCall,
    Tier,
    Used,
    Yielded,
)
from cadre_sandbox.wire.frames import BrokenFrame, Frame, decode
from cadre_sandbox.wire.signatures import parse
from cadre_sandbox.wire.values import (
    BINARY_FORMS,
    MAX_BINARY_BYTES,
    MAX_CALLS,
    MAX_CLOCK_READINGS,
    MAX_JSON_SIZE,
    encodable,
    json_size,
    pack,
    unpack,
)

_MAX_TEXT_CHARS = 20_000
_END_OF_TIME = 1e11
"""Unix seconds that no clock shows: some 3,000 years from now."""

_MAX_NOTE_CHARS = 200
"""Characters that a note about what was left out may add."""

_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedVariables:
    """The state of the variables after a block."""

    snapshot: bytes | None
    notes: tuple[str, ...]
    kept: bool
    """True if the interpreter has the same variables, and may go on."""


def saved_variables(frame: Frame, before: bytes | None) -> SavedVariables:
    """Return what the frame after an outcome says of the variables; `before` are those that the block began with.

    Raises BrokenFrame.
    """
    match frame.header.get("kind"):
        case "snapshot" if len(frame.blobs) == 1:
            return _kept(frame, frame.blobs[0])
        case "unchanged" if before is not None:
            return _kept(frame, before)
        case "unsaved":
            return not_saved(_text(frame.header.get("why"), _MAX_NOTE_CHARS), before)
    raise BrokenFrame("no snapshot")


def _kept(frame: Frame, snapshot: bytes) -> SavedVariables:
    if frame.header.get("fit") is False:
        full = "The memory is full: the interpreter is started anew, with the variables that could be saved."
        return SavedVariables(snapshot, (*_notes(frame), full), False)
    return SavedVariables(snapshot, _notes(frame), True)


def not_saved(why: str, before: bytes | None) -> SavedVariables:
    """Return the variables after a block whose own could not be saved: they are those of `before`."""
    lost = f"The variables could not be saved ({why}): they are as they were before this code."
    return SavedVariables(before, (lost,), False)


def logs_of(frame: Frame, limits: BlockLimits) -> str:
    """Return what the block has printed, as the frame says. Raise BrokenFrame."""
    return _text(frame.header.get("logs"), limits.print_chars + _MAX_NOTE_CHARS)


def outcome_of(
    frame: Frame, saved: SavedVariables | None, tier: Tier, used: Used, limits: BlockLimits
) -> Yielded | Finished | Failed:
    """Return the outcome in the frame; `saved` for those that end the block. Raises BrokenFrame."""
    header = frame.header
    end: dict[str, Any] = {"logs": logs_of(frame, limits), "tier": tier, "used": used}
    if saved is not None:
        end |= {"snapshot": saved.snapshot, "notes": saved.notes, "alive": saved.kept}
    match header.get("kind"):
        case "yielded" if saved is None:
            return Yielded(calls=_calls(frame), clock=_clock(header.get("clock")), **end)
        case "finished" if saved:
            return Finished(
                output=_value(header.get("output"), frame.blobs),
                text=_text(header.get("text"), limits.output_chars + _MAX_NOTE_CHARS),
                is_final_answer=header.get("final") is True,
                **end,
            )
        case "failed" if saved:
            line, source = header.get("line"), header.get("source")
            return Failed(
                error=_text(header.get("error"), _MAX_NOTE_CHARS),
                message=_text(header.get("message"), _MAX_TEXT_CHARS),
                line=line if type(line) is int else None,
                source=None if source is None else _text(source, _MAX_TEXT_CHARS),
                **end,
            )
    raise BrokenFrame("an answer of no known kind")


def _calls(frame: Frame) -> tuple[FunctionCall, ...]:
    calls = frame.header.get("calls")
    if not isinstance(calls, list) or not 0 < len(calls) <= MAX_CALLS:
        raise BrokenFrame(f"not 1 to {MAX_CALLS} calls")
    made = []
    for call in calls:
        match call:
            case {"name": str(name), "arguments": dict(arguments)}:
                given = _value(arguments, frame.blobs)
                if isinstance(given, dict):
                    made.append(FunctionCall(encodable(name), given))
                    continue
        raise BrokenFrame("a call without name or arguments")
    return tuple(made)


def _clock(readings: object) -> tuple[float, ...]:
    if not isinstance(readings, list) or len(readings) > MAX_CLOCK_READINGS:
        raise BrokenFrame(f"not up to {MAX_CLOCK_READINGS} clock readings")
    if not all(type(one) in (int, float) and 0 <= one < _END_OF_TIME for one in readings):
        raise BrokenFrame("clock readings are not times")
    return tuple(float(one) for one in readings)


def _value(packed: object, blobs: list[bytes]) -> Any:
    try:
        value = unpack(packed, blobs)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"no value: {error}") from None
    if nesting(packed) > MAX_LEVELS:
        raise BrokenFrame(f"a value of more than {MAX_LEVELS} levels")
    return value


def _text(text: object, most: int) -> str:
    if not isinstance(text, str):
        raise BrokenFrame("a text is missing")
    return encodable(text[:most])


def _notes(frame: Frame) -> tuple[str, ...]:
    notes = frame.header.get("notes")
    if not isinstance(notes, list):
        raise BrokenFrame("notes are missing")
    return tuple(_text(note, _MAX_TEXT_CHARS) for note in notes[:100])


def block_order(
    request: BlockRequest, limits: BlockLimits, number: int, restore: bool
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header and blobs of the frame that makes an interpreter run the block.

    `restore` sends the snapshot too. Raises ValueError for an invalid signature.
    """
    blobs: list[bytes] = []
    if restore and request.snapshot is not None:
        blobs.append(request.snapshot)
    for function in request.functions:
        parse(function.name, function.signature)
    header = {
        "n": number,
        "code": request.code,
        "restore": restore,
        "recorded": [_exchange(exchange, blobs) for exchange in request.recorded],
        "variables": {name: pack(value, blobs) for name, value in request.variables.items()},
        "functions": [{"name": one.name, "signature": one.signature, "doc": one.doc} for one in request.functions],
        "imports": list(request.authorized_imports),
        "builtins": list(request.authorized_builtins),
        "final_answer": request.final_answer,
        "seed": request.seed,
        "limits": {
            "seconds": limits.seconds,
            "cpu_seconds": limits.seconds if limits.cpu_seconds is None else limits.cpu_seconds,
            "output_chars": limits.output_chars,
            "print_chars": limits.print_chars,
            "snapshot_bytes": limits.snapshot_mb * _MEGABYTE,
        },
    }
    return header, blobs


def results_order(results: Sequence[CallResult]) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header and blobs of the frame that gives a waiting block its results."""
    blobs: list[bytes] = []
    return {"results": [_result(result, blobs) for result in results]}, blobs


def _exchange(exchange: Exchange, blobs: list[bytes]) -> dict[str, Any]:
    return {
        "calls": [{"name": call.name, "arguments": pack(call.arguments, blobs)} for call in exchange.calls],
        "results": [_result(result, blobs) for result in exchange.results],
        "clock": list(exchange.clock),
    }


def _result(result: CallResult, blobs: list[bytes]) -> dict[str, Any]:
    return {"value": pack(result.value, blobs), "error": result.error, "raised": result.raised}


T = TypeVar("T")

MAX_ITEMS = 1_200_000
"""Most items of all lists and objects of one header: what MAX_JSON_SIZE lets honest code say stays below it."""

MAX_BLOBS = 10_000
"""Most blobs of one frame."""

_SMALL_BYTES = 1 << 16
"""A header up to here is decoded at once; a larger one off the event loop."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the rest of the text where it has no end: else each quote in it would be tried."""


async def read_frame(text: bytes, body: bytes) -> Frame:
    """Return the frame whose header and blobs these are. Raises BrokenFrame for more items than may be, before they are
    made, and for what does not parse."""
    return await off_loop(len(text), lambda: _read(text, body))


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return what the work returns, done in a thread where the frame that it is about has a header of many bytes."""
    return await asyncio.to_thread(work) if size > _SMALL_BYTES else work()


def check_values(frame: Frame) -> None:
    """Raise BrokenFrame for values that the jail's own checks would not have let out: too large, or with blobs that
    stand in several places, each of which would be stored."""
    if sum(map(len, frame.blobs)) > MAX_BINARY_BYTES:
        raise BrokenFrame(f"values of more than {MAX_BINARY_BYTES} bytes")
    calls = frame.header.get("calls")
    arguments = [one.get("arguments") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    places: set[int] = set()
    for packed in (frame.header.get("output"), *arguments):
        # In its packed form a value is a little larger than as the jail counts it.
        if json_size(packed) > 2 * MAX_JSON_SIZE:
            raise BrokenFrame(f"a value of more than {2 * MAX_JSON_SIZE} characters")
        for place in _places(packed):
            if place in places:
                raise BrokenFrame("bytes that stand in several places")
            places.add(place)


def _read(text: bytes, body: bytes) -> Frame:
    # Those within texts count as well at first: mostly there are few enough even so.
    if _separators(text, 0, len(text)) > MAX_ITEMS and _has_too_many(text):
        raise BrokenFrame(f"a header of more than {MAX_ITEMS} items")
    frame = decode(text, body)
    if len(frame.blobs) > MAX_BLOBS:
        raise BrokenFrame(f"more than {MAX_BLOBS} blobs")
    return frame


def _separators(text: bytes, start: int, end: int) -> int:
    """About the items between two places of a JSON text."""
    return text.count(b",", start, end) + text.count(b"[", start, end) + text.count(b"{", start, end)


def _has_too_many(text: bytes) -> bool:
    count = at = 0
    for string in _STRING.finditer(text):
        count += _separators(text, at, string.start())
        if count > MAX_ITEMS:
            return True
        at = string.end()
    return count + _separators(text, at, len(text)) > MAX_ITEMS


def _places(packed: Any) -> Iterator[int]:
    """Yield the positions of blobs that stand in a packed value. Raises BrokenFrame for a number that is not finite."""
    layer: list[Any] = [[packed]]
    while layer:
        inner: list[Any] = []
        for item in layer:
            if isinstance(item, list):
                inner += item
            elif isinstance(item, dict):
                match item:
                    case {"$given": [str(form), *places]} if len(item) == 1 and form in BINARY_FORMS:
                        yield from (place for place in places if isinstance(place, int))
                    case {"$file": [*_, int(place)]} if len(item) == 1:
                        yield place
                    case {"$dict": dict(escaped)} if len(item) == 1:
                        inner += escaped.values()
                    case _:
                        inner += item.values()
        if any(isinstance(one, float) and not math.isfinite(one) for one in inner):
            raise BrokenFrame("a number that JSON does not have")
        layer = [one for one in inner if isinstance(one, list | dict)]
