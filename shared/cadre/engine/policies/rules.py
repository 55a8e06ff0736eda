"""The rules that hold in a run: its agent's own, and those of the agents above it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from cadre.engine.kind import kind_of
from cadre.journal.facts import CountedCall
from cadre.journal.run import Run
from cadre.protocol.cards import CallMeaning, Does
from cadre.protocol.policy import Policy, PolicyRule
from cadre.spec.policy_file import words_in

DELEGATE = "delegate"
"""The kind of a call of a team member: what the member does is ruled in its own run."""


def may_rule_below(run: Run) -> bool:
    """Return whether runs below this one may have rules: a member has policies or its own team, or the run above
    expects some."""
    above = run.task.standing if run.task is not None else None
    if above is not None and not above.source and run.spec is not None and run.spec.team:
        return True
    return any(card.policies or card.team for card in run.members.values())


def rules_in(policies: Sequence[Policy]) -> list[tuple[Policy, PolicyRule]]:
    """Return the rules of one agent, each with its policy; those that others replace are the others."""
    instead = {name: rule for policy in policies for name, rule in policy.instead.items()}
    found: list[tuple[Policy, PolicyRule]] = []
    for policy in policies:
        for rule in policy.rules:
            chosen = instead.get(rule.name, rule)
            if chosen is not None:
                found.append((policy, chosen))
    return found


def action_of(run: Run, name: str, policies: Sequence[Policy] | None = None) -> CallMeaning:
    """Return what a tool does, as these policies say, or else the tool itself; None: all policies of the run."""
    said = [policy for group in run.policies for policy in group] if policies is None else policies
    for policy in said:
        for tool, action in policy.tools.items():
            if fnmatchcase(name, tool):
                return action
    return run.tools[name].action if name in run.tools else CallMeaning()


def kind_of_call(run: Run, name: str, policies: Sequence[Policy] | None = None) -> Does | str | None:
    """Return the kind of the calls of a tool or team member; None where nothing says it."""
    if name not in run.tools:
        return DELEGATE
    return action_of(run, name, policies).does or ("read" if run.tools[name].read_only else None)


def asks_for_plan(policies: Sequence[Sequence[Policy]]) -> bool:
    """Return whether a rule asks which tools were planned."""
    return any("planned" in words for group in policies for words in words_in(group))


def rule_for(action: CallMeaning, parameters: Sequence[str]) -> CallMeaning:
    """Return what a tool does, with all its parameters but for content as what a call is about where it names neither
    a destination nor that."""
    if action.to or action.what:
        return action
    rest = [name for name in parameters if name not in (*action.text, action.amount)]
    return msgspec.structs.replace(action, what=rest)


def counted(run: Run, name: str, arguments: dict[str, Any], at: float) -> CountedCall:
    """Return what a call that is decided on at this time adds to counts and sums."""
    action = action_of(run, name)
    amount = kind_of(run).arguments(run, arguments).get(action.amount) if action.amount else None
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    return CountedCall(name, kind_of_call(run, name) or "", float(amount) if is_number and amount else 0.0, at)


def is_planned(run: Run, name: str) -> bool:
    """Return whether a tool or member was planned before anything was read, or nothing has been read yet."""
    facts = run.facts
    if facts is None or name in (facts.plan or ()):
        return True
    return not facts.has_read
