"""A CodeCall as the interpreter is asked it: with its blobs fetched, and checked as far as it can be before it runs."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from cadre.delivery.code_history import with_whole_history
from cadre.delivery.codec import UNREADABLE
from cadre.errors import BlobMissing, UnreadableMessage
from cadre.ports import Blobs
from cadre.protocol.code import CodeExchange, CodeLimits, CodeReply
from cadre.protocol.messages import CodeCall
from cadre.protocol.topology import Topology
from cadre.spec.names import NAME
from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    CallResult,
    Exchange,
    Function,
    FunctionCall,
)
from cadre_sandbox.serving.blob_values import from_json
from cadre_sandbox.wire.signatures import parse
from cadre_sandbox.wire.values import BLOB_REF, Value


def check_call(call: CodeCall, subject: str, pool: str) -> None:
    """Raise UnreadableMessage for a call that no sandbox could serve."""
    if call.pool != pool:
        raise UnreadableMessage(f"code for pool {call.pool!r} in the queue of pool {pool!r}")
    if (call.tree, call.run) != Topology.parse(subject):
        raise UnreadableMessage(f"code of run {call.run!r} among that of {subject}")
    if not NAME.fullmatch(call.agent):
        raise UnreadableMessage(f"{call.agent!r} is no name of an agent")
    _check_exchanges(call)
    for function in call.functions:
        try:
            parse(function.name, function.signature)
        except ValueError as error:
            raise UnreadableMessage(f"function {function.name!r}: {error}") from None


def seed_of(call: CodeCall, secret: bytes) -> str:
    """Return the seed of the block's chance: the same in each replay of the block, in every process of its pool."""
    return blake2b(call.block.encode(), key=secret).hexdigest()


async def block_request(
    call: CodeCall, snapshot: bytes | None, blobs: Blobs, secret: bytes
) -> tuple[BlockRequest, list[str]]:
    """The request to an interpreter, and notes for the model on values that are missing. `secret` is that of the pool.

    Raises UnreadableMessage, BlobMissing, RetryableError.
    """
    call = await with_whole_history(call, blobs)
    _check_exchanges(call)
    variables, notes = await _variables(call.inputs, blobs)
    request = BlockRequest(
        code=call.code,
        snapshot=snapshot,
        recorded=[await _exchange(exchange, blobs) for exchange in call.exchanges],
        variables=variables,
        functions=[
            Function(name=one.name, signature=one.signature, kind=one.kind, doc=one.doc)
            for one in call.functions
        ],
        authorized_imports=call.imports,
        seed=seed_of(call, secret),
        limits=_limits(call.limits),
    )
    return request, notes


async def call_results(replies: Sequence[CodeReply], blobs: Blobs) -> list[CallResult]:
    """The replies as the code gets them: what was cut for the journal is fetched whole. Raises BlobMissing,
    RetryableError."""
    return [await _result(reply, blobs) for reply in replies]


async def references_in(call: CodeCall, blobs: Blobs) -> list[str]:
    """The references within the latest results that were cut for the journal: it does not know that the code has them.
    Raises RetryableError."""
    found: dict[str, None] = {}
    for reply in call.exchanges[-1].replies if call.exchanges else ():
        if reply.blob is not None and reply.error is None:
            try:
                data = await blobs.get(reply.blob)
            except BlobMissing:
                continue
            found |= dict.fromkeys(BLOB_REF.findall(data.decode(errors="replace")))
    return list(found)


async def _result(reply: CodeReply, blobs: Blobs) -> CallResult:
    if reply.error is not None:
        return CallResult(error=reply.error, raised=reply.raised)
    value = reply.value
    if reply.blob is not None:
        data = await blobs.get(reply.blob)
        value = data.decode(errors="replace") if reply.blob_form == "text" else _read(data, reply.blob)
    try:
        return CallResult(value=await from_json(value, blobs))
    except BlobMissing as missing:
        # The tool said so, or the member: it is their result that is of no use.
        return CallResult(error=f"the result cannot be read: {missing}")


def _read(data: bytes, ref: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except UNREADABLE as error:
        raise UnreadableMessage(f"the result in {ref} is no JSON: {error}") from error


async def _variables(given: dict[str, Any], blobs: Blobs) -> tuple[dict[str, Value], list[str]]:
    """The variables, and notes on those whose blobs are missing. A text that looks like a reference is a text."""
    variables: dict[str, Value] = {}
    notes = []
    for name, value in given.items():
        try:
            variables[name] = await from_json(value, blobs)
        except BlobMissing as missing:
            variables[name] = value
            notes.append(f"The variable {name} has not the value that was meant: {missing}.")
    return variables, notes


async def _exchange(exchange: CodeExchange, blobs: Blobs) -> Exchange:
    return Exchange(
        [FunctionCall(call.name, await _arguments(call.arguments, blobs)) for call in exchange.calls],
        await call_results(exchange.replies, blobs),
        exchange.clock,
    )


async def _arguments(arguments: dict[str, Any], blobs: Blobs) -> dict[str, Value]:
    # To be compared with those of a second time: of a file, the reference is.
    return {name: await from_json(value, blobs, open_files=False) for name, value in arguments.items()}


def _check_exchanges(call: CodeCall) -> None:
    for number, exchange in enumerate(call.exchanges, call.before):
        if not 0 < len(exchange.calls) == len(exchange.replies):
            raise UnreadableMessage(
                f"exchange {number} has {len(exchange.calls)} calls and {len(exchange.replies)} replies"
            )


def _limits(limits: CodeLimits) -> BlockLimits:
    return BlockLimits(
        seconds=limits.seconds,
        memory_mb=limits.memory_mb,
        print_chars=limits.print_chars,
        output_chars=limits.output_chars,
    )
