"""Write requests as frames for the jailed interpreter, and read its frames as outcomes.

Outcomes have the promised form even if the code has forged the frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from cadre_sandbox.wire.frames import BrokenFrame, Frame
from cadre_sandbox.wire.signatures import parse
from cadre_sandbox.wire.values import MAX_CALLS, MAX_CLOCK_READINGS, encodable, pack, unpack

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
    """Whether the interpreter has the same variables, and may go on."""


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
    """The variables after a block whose own could not be saved: they are those of `before`."""
    lost = f"The variables could not be saved ({why}): they are as they were before this code."
    return SavedVariables(before, (lost,), False)


def logs_of(frame: Frame, limits: BlockLimits) -> str:
    """Return what the block has printed, as the frame says. Raise BrokenFrame."""
    return _text(frame.header.get("logs"), limits.print_chars + _MAX_NOTE_CHARS)


def outcome_of(
    frame: Frame, saved: SavedVariables | None, tier: Tier, used: Used, limits: BlockLimits
) -> Yielded | Finished | Failed:
    """The outcome that the frame tells of; `saved` for those that end the block. Raises BrokenFrame."""
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
    """Header and blobs of the frame that has an interpreter run the block.

    `restore` sends the snapshot too. Raises ValueError for a signature that is none.
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
        "functions": [
            {"name": one.name, "signature": one.signature, "doc": one.doc} for one in request.functions
        ],
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
    """Header and blobs of the frame that gives a waiting block its results."""
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
