"""A CodeCall as the interpreter takes it, with its blobs fetched and checked as far as it can be before it runs; and
the outcome of the code as the run takes it, errors in the words of a model's observation."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from cadre.delivery.code_history import with_whole_history
from cadre.delivery.codec import UNREADABLE
from cadre.errors import BlobMissing, UnreadableMessage
from cadre.ports import Blobs
from cadre.protocol.code import CodeExchange, CodeLimits, CodeReply, CodeRequest
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, ErrorInfo, FileInfo
from cadre.protocol.topology import Topology
from cadre.spec.names import NAME
from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    CallResult,
    Exchange,
    Failed,
    Finished,
    Function,
    FunctionCall,
    Tier,
    Used,
    Yielded,
)
from cadre_sandbox.wire.signatures import parse
from cadre_sandbox.wire.values import (
    BINARY_FORMS,
    BINARY_MARKER,
    BLOB_REF,
    ESCAPE_MARKER,
    FILE_MARKER,
    FORMS,
    MARKERS,
    MAX_BINARY_BYTES,
    BinaryForm,
    BinaryValue,
    FileValue,
    TaggedValue,
    Value,
    pack,
)

_STOPPED = {
    "TimeLimit",
    "CpuLimit",
    "FileLimit",
    "ThreadLimit",
    "Crashed",
    "ReplayDiverged",
    "SnapshotUnreadable",
}
"""Errors that are no exceptions of the code; their messages are whole sentences."""


class CountedBlobs:
    """A blob store that counts the bytes which are stored in it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.get = blobs.get
        self.stored = 0

    async def put(self, data: bytes) -> str:
        """Store the bytes. Raises RetryableError."""
        self.stored += len(data)
        return await self._blobs.put(data)


class AnswerBuilder:
    """Makes the records by which one sandbox process answers runs."""

    def __init__(self, blobs: Blobs, sandbox: str, tier: Tier) -> None:
        self._blobs = blobs
        self._sandbox = sandbox
        self._tier = tier

    async def yielded(self, call: CodeCall, outcome: Yielded, at: float, references: list[str]) -> CodeYielded:
        """Return the record of a block that waits for calls; `references` as the record has them. Raises
        RetryableError."""
        blobs = CountedBlobs(self._blobs)
        return CodeYielded(
            **call.place("yielded", at),
            calls=[
                CodeRequest(
                    one.name,
                    {name: await to_json(value, blobs) for name, value in one.arguments.items()},
                )
                for one in outcome.calls
            ],
            clock=list(outcome.clock),
            logs=outcome.logs,
            sandbox=self._sandbox,
            tier=outcome.tier,
            references=references,
            # Evaluated behind the calls.
            stored=blobs.stored,
        )

    async def finished(
        self,
        call: CodeCall,
        outcome: Finished | Failed,
        snapshot: str | None,
        at: float,
        references: list[str],
    ) -> CodeFinished:
        """Return the record of a block that has ended; `snapshot` refers to its variables. Raises RetryableError."""
        fields: dict[str, Any] = {
            "logs": outcome.logs,
            "notes": list(outcome.notes),
            "snapshot": snapshot,
            "seconds": outcome.used.seconds,
            "references": references,
            "stored": 0 if snapshot in (None, call.snapshot) else len(outcome.snapshot or b""),
        }
        if isinstance(outcome, Failed):
            fields["error"] = ErrorInfo("code-failed", explain(outcome))
        else:
            blobs = CountedBlobs(self._blobs)
            fields["output"] = await to_json(outcome.output, blobs)
            fields["stored"] += blobs.stored
            fields["text"] = outcome.text
            fields["is_final_answer"] = outcome.is_final_answer
        return self._finished(call, at, **fields)

    def unreadable_snapshot(self, why: str) -> Failed:
        """Return the outcome of a block whose variables could not be restored."""
        return Failed(
            error="SnapshotUnreadable",
            message=f"The variables of earlier code could not be restored: {why}.",
            logs="",
            snapshot=None,
            tier=self._tier,
            used=Used(seconds=0.0, cpu_seconds=0.0),
        )

    def refused(self, call: CodeCall, error: ErrorInfo, at: float) -> CodeFinished:
        """Return the record of a block that was not run to its end; the variables are those of before."""
        return self._finished(call, at, error=error, snapshot=call.snapshot)

    def _finished(self, call: CodeCall, at: float, **fields: Any) -> CodeFinished:
        return CodeFinished(**call.place("finished", at), sandbox=self._sandbox, tier=self._tier, **fields)


def explain(failed: Failed) -> str:
    """Return the error as a model reads it."""
    where = f" at line '{failed.source.strip()}'" if failed.source else ""
    if failed.error in _STOPPED:
        return f"Code execution stopped{f' ({where.strip()})' if where else ''}: {failed.message}"
    if failed.error == "SyntaxError":
        line = f" on line {failed.line}" if failed.line is not None else ""
        return f"Code parsing failed{line} due to: SyntaxError: {failed.message}"
    return f"Code execution failed{where} due to: {failed.error}: {failed.message}"


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
    """Return the request to an interpreter, and notes for the model on values that are missing. `secret` is that of the
    pool.

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
            Function(name=one.name, signature=one.signature, kind=one.kind, doc=one.doc) for one in call.functions
        ],
        authorized_imports=call.imports,
        seed=seed_of(call, secret),
        limits=_limits(call.limits),
    )
    return request, notes


async def call_results(replies: Sequence[CodeReply], blobs: Blobs) -> list[CallResult]:
    """Return the replies as the code gets them: what was cut for the journal is fetched whole. Raises BlobMissing,
    RetryableError."""
    return [await _result(reply, blobs) for reply in replies]


async def references_in(call: CodeCall, blobs: Blobs) -> list[str]:
    """Return the references within the latest results that were cut for the journal: it does not know that the code has
    them. Raises RetryableError."""
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
    """Return the variables, and notes on those whose blobs are missing. A text that looks like a reference is a
    text."""
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


async def to_json(value: Value, blobs: Blobs) -> Any:
    """Return the value as JSON, with the bytes stored as blobs. Raises RetryableError.

    What JSON does not have stands there as `{"$given": [form, "blob:…"]}` or `{"$given": [form, content]}`, a file as
    `{"$file": {"ref": "blob:…", …}}`.
    A dict of the code's own that has such a key comes as `{"$dict": …}`.
    """
    data: list[bytes] = []
    if not isinstance(value, list | dict):
        return _with_references(pack(value, data), [await blobs.put(one) for one in data])
    # There may be a million items: other runs go on meanwhile.
    packed = await asyncio.to_thread(pack, value, data)
    refs = [await blobs.put(one) for one in data]
    return await asyncio.to_thread(_with_references, packed, refs)


async def from_json(value: Any, blobs: Blobs, *, open_files: bool = True) -> Value:
    """Return the value that such JSON stands for. It is untrusted: anything that only resembles a reference is left as
    it is.

    With `open_files` the content of files is fetched too. Raises BlobMissing, RetryableError.
    """
    data = {ref: await blobs.get(ref) for ref in sorted(set(_needed_references(value, open_files)))}
    return _with_data(value, data)


def _with_references(packed: Any, refs: list[str]) -> Any:
    """Return the packed value with references in the place of positions."""
    if isinstance(packed, list):
        return [_with_references(item, refs) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.keys() == {BINARY_MARKER}:
        form, *places = packed[BINARY_MARKER]
        if form in FORMS:
            return {BINARY_MARKER: [form, _with_references(places[0], refs)]}
        return {BINARY_MARKER: [form, *(refs[place] for place in places)]}
    if packed.keys() == {FILE_MARKER}:
        ref, media_type, name, size, _ = packed[FILE_MARKER]
        return {FILE_MARKER: msgspec.to_builtins(FileInfo(ref=ref, media_type=media_type, name=name, size=size))}
    if (inner := _escaped(packed)) is not None:
        return {ESCAPE_MARKER: {key: _with_references(item, refs) for key, item in inner.items()}}
    return {key: _with_references(item, refs) for key, item in packed.items()}


def _with_data(value: Any, data: Mapping[str, bytes]) -> Value:
    if isinstance(value, list):
        return [_with_data(item, data) for item in value]
    if not isinstance(value, dict):
        plain: Value = value
        return plain
    if (reference := _reference(value)) is not None:
        form, *refs = reference
        return BinaryValue(form, *(data[ref] for ref in refs))
    if (tagged := _tagged(value)) is not None:
        form_name, content = tagged
        return TaggedValue(form_name, _with_data(content, data))
    if (info := _file(value)) is not None:
        return FileValue(info.ref, info.media_type, info.name, info.size, data.get(info.ref))
    inner = _escaped(value)
    return {key: _with_data(item, data) for key, item in (value if inner is None else inner).items()}


def _needed_references(value: Any, open_files: bool) -> Iterator[str]:
    """Yield the references that are needed to make the value."""
    if isinstance(value, list):
        for item in value:
            yield from _needed_references(item, open_files)
    elif not isinstance(value, dict):
        return
    elif (reference := _reference(value)) is not None:
        yield from reference[1:]
    elif (info := _file(value)) is not None:
        if open_files and info.size <= MAX_BINARY_BYTES:
            yield info.ref
    else:
        for item in (_escaped(value) or value).values():
            yield from _needed_references(item, open_files)


def _reference(value: dict[str, Any]) -> tuple[BinaryForm, *tuple[str, ...]] | None:
    match value:
        case {"$given": [str(form), str(ref), *more]} if len(value) == 1 and len(more) <= 1:
            refs = (ref, *more)
            if all(isinstance(one, str) and BLOB_REF.fullmatch(one) for one in refs):
                return next(((known, *refs) for known in BINARY_FORMS if known == form), None)
    return None


def _tagged(value: dict[str, Any]) -> tuple[str, Any] | None:
    match value:
        case {"$given": [str(form), content]} if len(value) == 1 and form in FORMS and FORMS[form](content):
            return form, content
    return None


def _file(value: dict[str, Any]) -> FileInfo | None:
    if value.keys() != {FILE_MARKER}:
        return None
    try:
        info = msgspec.convert(value[FILE_MARKER], FileInfo)
    except msgspec.ValidationError:
        return None
    return info if BLOB_REF.fullmatch(info.ref) and info.size >= 0 else None


def _escaped(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the dict that this one stands for; None if it stands for none."""
    inner = value.get(ESCAPE_MARKER) if len(value) == 1 else None
    return inner if isinstance(inner, dict) and not MARKERS.isdisjoint(inner) else None
