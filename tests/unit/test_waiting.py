"""Tests of what a run waits for that no one serves."""

import pytest

from cadre.journal.run import ActionStep, ApprovalHold, CallKind, CallState, Phase, Recalling, Run
from cadre.protocol.cards import AgentCard, Presence, SandboxCard, ToolCard
from cadre.protocol.rollout import Rollout, Share
from cadre.spec.agent import AgentSpec
from cadre_gateway.reading.detail import LiveNames, missing_service


def presence(**card: AgentCard | ToolCard | SandboxCard) -> Presence:
    return Presence(instance="i", host="h", pid=1, health="", started_at=0.0, **card)  # type: ignore[arg-type]


def acting(*calls: CallState, kind: str = "tool_calling") -> Run:
    spec = AgentSpec(name="boss", description="Leads.", kind=kind)
    return Run(
        id="r",
        tree="r",
        agent="boss",
        spec=spec,
        decided_by=kind,
        phase=Phase.ACTING,
        current=ActionStep(number=1, calls=list(calls)),
    )


def call(kind: CallKind, name: str, *, sent: bool = True, held: bool = False) -> CallState:
    hold = ApprovalHold(reason="", since=1, at=0.0) if held else None
    return CallState(id="c", name=name, kind=kind, opened=1 if sent else 0, hold=hold)


RECALLING = Run(
    id="r",
    tree="r",
    agent="boss",
    phase=Phase.ACTING,
    recalling=Recalling(call="c", query="q", count=1, since=1, at=0.0, due=9.0),
)
WEIGHTS = [("aa", 90), ("bb", 10), ("cc", 0)]
BOSS = presence(agent=AgentCard(name="boss", description=""))


@pytest.mark.parametrize(
    ("run", "live", "expected"),
    [
        (None, [], "agent boss"),
        (None, [BOSS], None),
        (acting(call("tool", "look")), [], "agent boss"),
        (acting(call("tool", "look")), [BOSS], "tool look"),
        (
            acting(call("tool", "look")),
            [BOSS, presence(tool=ToolCard(name="look", description="", input_schema={}))],
            None,
        ),
        (acting(call("tool", "look", sent=False)), [BOSS], None),
        (acting(call("tool", "look", sent=False, held=True)), [BOSS], None),
        (acting(call("tool", "remember")), [BOSS], "memory"),
        (acting(call("member", "helper")), [BOSS], "agent helper"),
        (RECALLING, [BOSS], "memory"),
        (acting(kind="code"), [BOSS], "sandbox default"),
        (acting(kind="code"), [BOSS, presence(sandbox=SandboxCard(pool="default", tier="ns"))], None),
        (Run(id="r", tree="r", agent="boss", phase=Phase.THINKING), [BOSS], None),
        (Run(id="r", tree="r", agent="boss", phase=Phase.DONE), [], None),
    ],
)
def test_what_is_missed(run: Run | None, live: list[Presence], expected: str | None) -> None:
    assert missing_service("boss", run, LiveNames(live)) == expected


def test_a_queued_run_waits_for_the_revisions_that_get_new_runs_where_none_has_a_replica() -> None:
    shares = [Share(revision=one, slot=slot, weight=weight) for slot, (one, weight) in enumerate(WEIGHTS, 1)]
    rollouts = [Rollout(agent="boss", shares=shares)]

    def awaited(*live: str) -> str | None:
        boss = AgentCard(name="boss", description="")
        presences = [Presence(instance=one, host="h", pid=1, started_at=0.0, agent=boss, revision=one) for one in live]
        return missing_service("boss", None, LiveNames(presences, rollouts))

    assert awaited("cc") == "revision aa or bb of agent boss"
    assert awaited("bb", "cc") is None
    assert awaited() == "agent boss"
