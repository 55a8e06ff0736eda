"""A CodeCall as the interpreter is asked it: with its blobs fetched, and checked as far as it can be before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cadre.code_exchange import CodeExchange, CodeLimits, CodeReply
from cadre.errors import UnreadableMessage
from cadre.messages import CodeCall
from cadre.ports import Blobs
from cadre.specs import NAME
from cadre.subjects import Topology
from cadre_sandbox.blob_values import from_json
from cadre_sandbox.contract import Call, Exchange, Function, Limits, Request, Result
from cadre_sandbox.given import Value
from cadre_sandbox.signatures import parse


def check(call: CodeCall, subject: str, pool: str) -> None:
    """Raises UnreadableMessage for a call that no sandbox could serve."""
    if call.pool != pool:
        raise UnreadableMessage(f"code for pool {call.pool!r} in the queue of pool {pool!r}")
    if (call.tree, call.run) != Topology.parse(subject):
        raise UnreadableMessage(f"code of run {call.run!r} among that of {subject}")
    if not NAME.fullmatch(call.agent):
        raise UnreadableMessage(f"{call.agent!r} is no name of an agent")
    for number, exchange in enumerate(call.exchanges):
        if not 0 < len(exchange.calls) == len(exchange.replies):
            raise UnreadableMessage(
                f"exchange {number} has {len(exchange.calls)} calls and {len(exchange.replies)} replies"
            )
    for function in call.functions:
        try:
            parse(function.name, function.signature)
        except ValueError as error:
            raise UnreadableMessage(f"function {function.name!r}: {error}") from None


async def request_of(call: CodeCall, snapshot: bytes | None, blobs: Blobs) -> Request:
    """Raises UnreadableMessage, BlobMissing, RetryableError."""
    return Request(
        code=call.code,
        snapshot=snapshot,
        recorded=[await _exchange(exchange, blobs) for exchange in call.exchanges],
        # Plain JSON: a text that looks like a reference to a blob is a text.
        variables=call.variables,
        functions=[
            Function(name=one.name, signature=one.signature, kind=one.kind, doc=one.doc)
            for one in call.functions
        ],
        authorized_imports=call.authorized_imports,
        seed=call.block,
        limits=_limits(call.limits),
    )


async def results_of(replies: Sequence[CodeReply], blobs: Blobs) -> list[Result]:
    """Texts that were cut for the journal are fetched whole. Raises BlobMissing, RetryableError."""
    return [
        Result(
            value=reply.value
            if reply.blob is None
            else (await blobs.get(reply.blob)).decode(errors="replace"),
            error=reply.error,
        )
        for reply in replies
    ]


async def _exchange(exchange: CodeExchange, blobs: Blobs) -> Exchange:
    return Exchange(
        [Call(call.name, await _arguments(call.arguments, blobs)) for call in exchange.calls],
        await results_of(exchange.replies, blobs),
        exchange.clock,
    )


async def _arguments(arguments: dict[str, Any], blobs: Blobs) -> dict[str, Value]:
    return {name: await from_json(value, blobs) for name, value in arguments.items()}


def _limits(limits: CodeLimits) -> Limits:
    return Limits(
        seconds=limits.seconds,
        memory_mb=limits.memory_mb,
        print_chars=limits.print_chars,
        output_chars=limits.output_chars,
    )
