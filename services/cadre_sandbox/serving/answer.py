"""What the code came to as the run is told it, errors in the words of a model's observation."""

from typing import Any

from cadre.ports import Blobs
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, ErrorInfo
from cadre_sandbox.interpreters.contract import Failed, Finished, Tier, Used, Yielded
from cadre_sandbox.serving.blob_values import to_json

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

    async def yielded(
        self, call: CodeCall, outcome: Yielded, at: float, references: list[str]
    ) -> CodeYielded:
        """The record of a block that waits for calls; `references` as the record has them. Raises RetryableError."""
        blobs = CountedBlobs(self._blobs)
        return CodeYielded(
            id=f"{call.block}:{call.done}:yielded",
            tree=call.tree,
            run=call.run,
            at=at,
            block=call.block,
            exchange=call.done,
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
        """The record of a block that has ended; `snapshot` refers to its variables. Raises RetryableError."""
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
        """The outcome of a block whose variables could not be restored."""
        return Failed(
            error="SnapshotUnreadable",
            message=f"The variables of earlier code could not be restored: {why}.",
            logs="",
            snapshot=None,
            tier=self._tier,
            used=Used(seconds=0.0, cpu_seconds=0.0),
        )

    def refused(self, call: CodeCall, error: ErrorInfo, at: float) -> CodeFinished:
        """The record of a block that was not run to its end; the variables are those of before."""
        return self._finished(call, at, error=error, snapshot=call.snapshot)

    def _finished(self, call: CodeCall, at: float, **fields: Any) -> CodeFinished:
        return CodeFinished(
            id=f"{call.block}:{call.done}:finished",
            tree=call.tree,
            run=call.run,
            at=at,
            block=call.block,
            exchange=call.done,
            sandbox=self._sandbox,
            tier=self._tier,
            **fields,
        )


def explain(failed: Failed) -> str:
    """The error as a model reads it."""
    where = f" at line '{failed.source.strip()}'" if failed.source else ""
    if failed.error in _STOPPED:
        return f"Code execution stopped{f' ({where.strip()})' if where else ''}: {failed.message}"
    if failed.error == "SyntaxError":
        line = f" on line {failed.line}" if failed.line is not None else ""
        return f"Code parsing failed{line} due to: SyntaxError: {failed.message}"
    return f"Code execution failed{where} due to: {failed.error}: {failed.message}"
