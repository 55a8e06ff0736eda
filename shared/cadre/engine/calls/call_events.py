"""A call that is made: of a tool, or of a team member with its share of the budget."""

from typing import Any

import msgspec

from cadre.engine.budget import share
from cadre.engine.kind import kind_of
from cadre.engine.policies.passing import passed_to_member
from cadre.journal import events as ev
from cadre.journal.run import Run
from cadre.spec.member_call import ADDITIONAL, TASK, inputs_of


def made(run: Run, call: str, name: str, arguments: dict[str, Any]) -> ev.ToolCalled | ev.DelegateStarted:
    """The event of a call that was checked; a member's share is still to be set."""
    if name in run.tools:
        return ev.ToolCalled(call=call, tool=name, arguments=arguments)
    # A model may name a variable in place of the whole object.
    further = kind_of(run).arguments(run, {ADDITIONAL: arguments.get(ADDITIONAL)})
    inputs = inputs_of({**arguments, **further})
    told = kind_of(run).arguments(run, {TASK: arguments[TASK]})[TASK]
    passes = passed_to_member(run, name, told, inputs)
    return ev.DelegateStarted(call=call, member=name, task=arguments[TASK], inputs=inputs, passes=passes)


def shared_out(run: Run, opened: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The calls with each member's share of the budget; one that is held back gets what is left later."""
    if run.budget is None:
        return opened
    members = sum(
        isinstance(event, ev.DelegateStarted)
        or (isinstance(event, ev.ApprovalRequested) and event.kind == "member")
        for event in opened
    )
    return [
        msgspec.structs.replace(event, budget=share(run, members))
        if isinstance(event, ev.DelegateStarted)
        else event
        for event in opened
    ]
