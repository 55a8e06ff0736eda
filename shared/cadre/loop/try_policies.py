"""Policies over runs that were kept: the verdicts that they would have given on the calls that were made then.

Nothing is called, and nothing but the verdicts is decided again: each call is judged in the state of its run at that
moment, so a call that would have been held does not change what came behind it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from cadre.engine.fold import apply
from cadre.engine.policies.judge import Verdict, Wanted, judge
from cadre.engine.policies.passing import passed_to_member, passed_to_part, standing_of
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import CallState, Passed, Run
from cadre.protocol.cards import CallMeaning, ToolCard
from cadre.protocol.policy import PLAN_TOOLS, Policy, Standing

AssumedPlan = Literal["observed", "all", "none"]
"""The plan of a run that has journaled none: the tools that it called before it read anything; all that it called;
none."""


class TriedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a kept run under other policies."""

    run: str
    agent: str
    call: str
    name: str
    verdict: Verdict
    rules: list[str] = []
    """Names of the rules that it breaks."""
    reason: str = ""
    was: Literal["made", "approved", "turned down", "waits"] = "made"
    """The call's outcome then."""


def tried(
    journals: Mapping[str, Sequence[Entry]],
    policies: Sequence[Policy],
    agents: frozenset[str],
    cards: Mapping[str, ToolCard],
    plan: AssumedPlan = "observed",
) -> list[TriedCall]:
    """Return all calls of a tree that agents of these names (empty: all) made, with their verdicts.

    `cards` are those of tools today: they say what a tool does where the run's own card does not.
    """
    standings: dict[str, Standing] = {}
    found: list[TriedCall] = []
    for run in sorted(journals, key=lambda one: one.count("_")):
        trial = _Trial(run, journals[run], policies if _is_ruled(journals[run], agents) else [], cards, plan)
        found += trial.play(standings)
    return found


def _is_ruled(journal: Sequence[Entry], agents: frozenset[str]) -> bool:
    return not agents or journal[0].agent in agents


class _Trial:
    """One run on its way through its journal, under other policies."""

    def __init__(
        self,
        run: str,
        journal: Sequence[Entry],
        policies: Sequence[Policy],
        cards: Mapping[str, ToolCard],
        plan: AssumedPlan,
    ) -> None:
        self._run = Run(id=run, tree=journal[0].tree)
        self._journal, self._policies, self._cards, self._plan = journal, list(policies), cards, plan
        everything = [event for entry in journal for event in entry.events]
        self._has_plan = any(type(one) is ev.ToolsPlanned for one in everything)
        self._called = {one.tool for one in everything if type(one) is ev.ToolCalled}
        self._called |= {one.member for one in everything if type(one) is ev.DelegateStarted}
        self._decided = {one.call: one.verdict for one in everything if type(one) is ev.ApprovalDecided}
        self._held = {one.call for one in everything if type(one) is ev.ApprovalRequested}

    def play(self, standings: dict[str, Standing]) -> list[TriedCall]:
        """Return the calls of the run; adds to `standings` what the runs below it know from it."""
        found: dict[str, TriedCall] = {}
        for entry in self._journal:
            for event in entry.events:
                now = self._as_tried(event, standings)
                wanted = self._wanted(now)
                if wanted is not None and wanted.id not in found and wanted.name != PLAN_TOOLS:
                    found[wanted.id] = self._tried(wanted)
                    self._observe(wanted)
                apply(self._run, now, entry.n, entry.at)
                if type(now) is ev.RunAccepted:
                    self._assume_plan()
                if type(now) is ev.DelegateStarted and now.passes is not None:
                    call = CallState(id=now.call, name=now.member, kind="member", passes=now.passes)
                    standing = standing_of(self._run, call)
                    if standing is not None:
                        standings[now.call] = standing
        return [*found.values()]

    def _as_tried(self, event: ev.AnyEvent, standings: Mapping[str, Standing]) -> ev.AnyEvent:
        """Return the event as it would be under the other policies."""
        if type(event) is ev.RunAccepted:
            spec = msgspec.structs.replace(event.spec, policies=self._policies, approvals={}, permission="open")
            own = event.task.standing
            standing = standings.get(self._run.id) or (own if own is not None and own.source else None)
            task = msgspec.structs.replace(event.task, standing=standing)
            return msgspec.structs.replace(event, spec=spec, task=task)
        if type(event) is ev.ToolsetChanged:
            tools = [self._card(card) for card in event.tools]
            # Whether or not members had rules, these may rule them.
            members = [msgspec.structs.replace(card, policies=["tried"]) for card in event.members]
            return msgspec.structs.replace(event, tools=tools, members=members)
        if type(event) is ev.DelegateStarted:
            if event.member == self._run.agent and event.member not in self._run.members:
                passes = passed_to_part(self._run, event.task, event.inputs)
            else:
                passes = passed_to_member(self._run, event.member, event.task, event.inputs)
            return msgspec.structs.replace(event, passes=passes or Passed())
        return event

    def _card(self, card: ToolCard) -> ToolCard:
        now = self._cards.get(card.name)
        action = now.action if now is not None and card.action == CallMeaning() else card.action
        return msgspec.structs.replace(card, action=action, approval="")

    def _assume_plan(self) -> None:
        facts = self._run.facts
        if facts is None or self._has_plan or self._plan == "observed":
            return
        facts.may_plan, facts.has_read = False, True
        facts.plan = sorted(self._called) if self._plan == "all" else []

    def _observe(self, wanted: Wanted) -> None:
        facts = self._run.facts
        if facts is not None and self._plan == "observed" and not self._has_plan and not facts.has_read:
            facts.plan = [*(facts.plan or []), wanted.name]

    def _wanted(self, event: ev.AnyEvent) -> Wanted | None:
        match event:
            case ev.ToolCalled(call=call, tool=name, arguments=arguments):
                proposal = self._run.proposal
                return None if proposal is not None and call in proposal.checks else Wanted(call, name, arguments)
            case ev.ApprovalRequested(call=call, name=name, arguments=arguments, kind=kind) if kind != "question":
                return None if not arguments and self._is_paused(call) else Wanted(call, name, arguments)
            case ev.DelegateStarted(call=call, member=name, task=task, inputs=inputs):
                return Wanted(call, name, {"task": task, "additional_args": inputs})
            case _:
                return None

    def _is_paused(self, call: str) -> bool:
        found = self._run.call(call)
        return found is not None and found.is_open and found.pause is not None

    def _tried(self, wanted: Wanted) -> TriedCall:
        judged = judge(self._run, wanted)
        decided = judged.event
        was: Literal["made", "approved", "turned down", "waits"] = "made"
        if wanted.id in self._held:
            verdict = self._decided.get(wanted.id)
            was = "waits" if verdict is None else "turned down" if verdict in ("rejected", "expired") else "approved"
        return TriedCall(
            run=self._run.id,
            agent=self._run.agent,
            call=wanted.id,
            name=wanted.name,
            verdict=judged.verdict,
            rules=decided.rules if decided is not None else [],
            reason=judged.reason,
            was=was,
        )
