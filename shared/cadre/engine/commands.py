"""The commands that a run may owe the world: a model call, a timer, a message, the end of an abandoned call."""

import msgspec

from cadre.protocol.messages import (
    Cancel,
    CodeCall,
    EffectClaim,
    EffectResult,
    Report,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model; the call belongs to the inbox record `cause`."""

    purpose: str
    step: int
    attempt: int
    cause: str


class SetTimer(msgspec.Struct, frozen=True):
    """Have `timer` delivered to this run at `due`; the wait began at `began` (Unix seconds)."""

    timer: TimerFired
    due: float
    began: float
    cause: str | None
    """The inbox record whose worker sees to the wait, which may be short; None for the run's own waits."""


class Revoke(msgspec.Struct, frozen=True):
    """This tool call is no longer awaited: it must not begin, and must stop if it has begun."""

    result: ToolResult
    """The result that its executor finds in place of an empty effect."""

    def effect(self, agent: str) -> EffectResult:
        """Return what settles the call of this agent before it is claimed."""
        result = self.result
        claim = EffectClaim(
            id=f"{result.call}:claim",
            tree=result.tree,
            run=result.run,
            at=result.at,
            call=result.call,
            executor="",
            call_seq=0,
            agent=agent,
            tool=result.tool,
        )
        return EffectResult(
            id=f"{result.call}:effect",
            tree=result.tree,
            run=result.run,
            at=result.at,
            claim=claim,
            claim_seq=0,
            result=result,
        )


class Send(msgspec.Struct, frozen=True):
    """Send a message; `to` is the agent it goes to where the message does not say."""

    message: Task | ToolCall | CodeCall | Report | Cancel
    to: str | None = None
    with_summary: bool = False
    """For a Report: its text also describes how the work was done."""
    prompts: str = ""
    """For a Report: `blob:` reference of the prompts that render its text; "" for the worker's current ones."""


Command = CallModel | SetTimer | Send | Revoke
