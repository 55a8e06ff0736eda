"""Build what a run passes on to the runs that it begins, so that their policies know what people wrote to it."""

from typing import Any

import msgspec

from cadre.engine.kind import kind_of
from cadre.engine.policies.origins import (
    CLEAR,
    EMAIL,
    IBAN,
    LINK,
    FirstStood,
    Origins,
    as_value,
    flat,
    leaves,
    normalized,
    stands_in,
)
from cadre.engine.policies.rules import is_planned
from cadre.journal.run import CallState, Passed, Run
from cadre.protocol.messages import Task
from cadre.protocol.policy import PassedValue, Standing

_MOST_VALUES = 256
"""Values that are passed on with one task."""


def passed_to_member(run: Run, member: str, task: str, inputs: dict[str, Any]) -> Passed | None:
    """Return what the policies of a team member and of those below it may take from the run; None without policies."""
    card = run.members.get(member)
    facts = run.facts
    if facts is None or not (run.policies or card is None or card.policies or card.team):
        return None
    named = [tool for tool in (card.tools if card is not None else ()) if tool in (facts.plan or ())]
    # What a file has a member do is planned by it.
    is_written = not run.policies and not kind_of(run).guided
    plan = named or (None if is_written or is_planned(run, member) else [])
    return _passed(run, task, inputs, plan)


def passed_to_part(run: Run, task: str, inputs: dict[str, Any]) -> Passed | None:
    """Return the same for a run that does a part of this run's own work: it may use what this one has planned."""
    facts = run.facts
    if facts is None:
        return None
    return _passed(run, task, inputs, [*(facts.plan or [])] if facts.has_read else None)


def _passed(run: Run, task: str, inputs: dict[str, Any], plan: list[str] | None) -> Passed:
    facts = run.facts
    assert facts is not None
    origins = Origins(facts, run.tools, [policy for group in run.policies for policy in group])
    texts = [normalized(one) for _, one in leaves({"task": task, "inputs": inputs}) if isinstance(one, str)]
    found: dict[str, FirstStood] = {}
    known = [(value, FirstStood(one.origin, via=one.place)) for value, one in facts.passed.items()]
    known += [(value, FirstStood("trusted", place)) for value, place in origins.trusted_values()]
    known += [(value, FirstStood("listed")) for value in facts.listed]
    for value, stood in known:
        if any(stands_in(value, text) >= 0 for text in texts):
            found[value] = stood
    for text in texts:
        for pattern in (EMAIL, IBAN, LINK):
            for match in pattern.finditer(text):
                origin = origins.of(match[0])
                address = as_value(match[0])
                if address is not None and origin.origin in CLEAR:
                    found.setdefault(address, origin)
    values = [
        PassedValue(value, one.origin, str(one.place) if one.place is not None else one.via)
        for value, one in list(found.items())[:_MOST_VALUES]
        if one.origin != "task"
    ]
    return Passed(asked=len(facts.asked), values=values, plan=plan, has_read=facts.has_read)


def standing_of_fork(task: Task, text: str | None, inputs: dict[str, Any]) -> Standing | None:
    """Return what a fork of the run of a task knows from the run's starter, with the words of the person who forks it
    in place of the task's, and these inputs in addition."""
    standing = task.standing
    if standing is None:
        return None
    said = [*([text] if text is not None else []), *(one for one in flat(inputs) if isinstance(one, str))]
    return msgspec.structs.replace(standing, asked=[*standing.asked, *said])


def standing_of(run: Run, call: CallState) -> Standing | None:
    """Return what the run of a call knows from this one; None where no policy asks."""
    passes, task = call.passes, run.task
    if passes is None or task is None:
        return None
    asked = run.facts.asked[: passes.asked] if run.facts is not None else []
    return Standing(
        policies=run.policies,
        asked=asked,
        values=passes.values,
        plan=passes.plan,
        has_read=passes.has_read,
    )
