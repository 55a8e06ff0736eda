"""Requests and results as frames for the jailed interpreter."""

from collections.abc import Sequence
from typing import Any

from cadre_sandbox.interpreters.contract import BlockLimits, BlockRequest, CallResult, Exchange
from cadre_sandbox.wire.signatures import parse
from cadre_sandbox.wire.values import pack

_MEGABYTE = 1 << 20


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
