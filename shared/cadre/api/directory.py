"""The agents, tools and sandboxes of a deployment, their rollouts and their usage, and the state of its index, as
the HTTP API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from cadre.protocol.cards import CallMeaning
from cadre.spec.contract import ContractProblem

SKEW_SHOWN_SECONDS = 1.0
"""From which on a machine's clock is said to be off."""


class Replica(msgspec.Struct, frozen=True):
    """A process that serves an agent, a tool or a sandbox pool."""

    instance: str
    host: str
    pid: int
    health: str
    started_at: float
    revision: str = ""
    """Digest of an agent's spec and prompts; empty for others."""
    skew: float = 0.0
    """Seconds that the clock of its machine is ahead of the NATS server's."""
    spec: str = ""
    """Of an agent: `blob:` reference of its specification."""
    prompts: str = ""
    """Of an agent: `blob:` reference of its prompts."""


def away_text(since: float, now: float) -> str:
    """Say for how long something has been away; both are Unix seconds."""
    seconds = max(0, round(now - since))
    at = datetime.fromtimestamp(since).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    spent = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
    return f"away since {at} ({spent})"


def skew_lines(replicas: Iterable[Replica]) -> list[str]:
    """Return what to say of machines whose clocks are off by a second or more, a line each."""
    off = {one.host: one.skew for one in replicas if abs(one.skew) >= SKEW_SHOWN_SECONDS}
    return [
        f"the clock of {host} is {abs(skew):g} s {'ahead of' if skew > 0 else 'behind'} that of the NATS server, which"
        " its services go by: set it right"
        for host, skew in sorted(off.items())
    ]


class ServiceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of an agent, tool or sandbox pool, with those of an agent's revisions, over all shards."""

    kind: Literal["agent", "tool", "sandbox"]
    name: str
    state: Literal["served", "away", "rollout", "retired", "forgotten"]
    """`served`: by a live process, or the agent is at rest; `rollout`: nothing is live and the agent's rollout is open;
    `forgotten`: away for longer than the deployment remembers, and never retired."""
    waiting: int
    """Messages that wait in it or are in hand."""


class LiveAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with live replicas, and the card of the youngest; or one without any, which is away (`away_since`) or at
    rest, so that a run starts one. Either is given runs, which wait for it."""

    name: str
    description: str
    kind: str
    labels: dict[str, str]
    version: str
    tools: list[str]
    team: list[str]
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the object that a task must bring as `inputs`; null: any."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema that its answers fit; null: any."""
    missing: list[str]
    """Tools and team members that the agent names and that were never there, or were retired."""
    away: list[str] = []
    """Tools and team members that the agent names and that are away: calls wait for them."""
    away_since: float | None = None
    """Time at which its last replica stopped or fell silent, in Unix seconds; null while it has one, or is at rest."""
    pools: list[str] = []
    """Sandbox pools that run code for it."""
    memory: bool = False
    """True if it keeps something beyond its runs."""
    problems: list[ContractProblem] = []
    """The agent's expectations of its tools and members that do not hold at the moment."""
    policies: list[str] = []
    """Names of the policies that rule its calls."""
    prompt_tokens: int = 0
    """Tokens that the first request of each run takes at the very least; 0 when that is not known."""
    schemas: str = ""
    """Digest of what its tools say of themselves at the moment, to hold against that of a run; empty without any."""
    differing: list[str] = []
    """Revisions of its replicas where those of one version differ; [] when they agree."""
    rollout: list[str] = []
    """Problems of the rollout in which its revisions share its runs, with remedies."""
    replicas: list[Replica]

    def differing_line(self) -> str | None:
        """Return what to say when replicas of one version differ in spec or prompts; None when they agree."""
        if not self.differing:
            return None
        return (
            f"replicas of agent {self.name} differ in spec or prompts ({', '.join(self.differing)}): start them all"
            " from the same files, or say which gets how many runs: `cadre rollout`"
        )


class LiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with live executors, or one that is away: calls wait for it. Where the cards of its executors differ, the
    one that agents are offered."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    read_only: bool
    idempotent: bool
    serial: bool
    """True: a run sends its calls of this and other serial tools one after another."""
    timeout: float | None
    approval: str
    """True if a person must agree to a call, as the tool says; empty leaves it to the agents."""
    approval_text: str = ""
    """The sentence by which a person is asked for approval, with parameters in braces."""
    action: CallMeaning = CallMeaning()
    """The meaning of a call for the rules of policies."""
    labels: dict[str, str]
    version: str
    away_since: float | None = None
    """As an agent's."""
    replicas: list[Replica]


class LiveSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with live sandboxes, or one that is away: code waits for it."""

    pool: str
    tier: str
    """The isolation tier of code: that of the replica with the weakest."""
    python: str
    """Version of the code's Python; several when the replicas differ."""
    sessions: int
    """Interpreters at once, over all live replicas."""
    version: str
    away_since: float | None = None
    """As an agent's."""
    replicas: list[Replica]


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting and running work of an agent, and the duration of its runs."""

    name: str
    going: int
    """Runs that have begun and not ended."""
    p50_seconds: float | None
    """The median duration of its last runs that succeeded; null without such runs."""
    p95_seconds: float | None
    counted: int
    """The number of runs counted for that."""


class QueueLoad(msgspec.Struct, frozen=True):
    """The messages that wait in one queue or are being handled."""

    kind: str
    """`agent`, `tool` and others."""
    name: str
    messages: int


class Load(msgspec.Struct):
    """The current load."""

    agents: list[AgentLoad]
    queues: list[QueueLoad]


class IndexRebuild(msgspec.Struct, kw_only=True):
    """The last rebuild of an index from the journals."""

    state: Literal["running", "done", "failed"]
    started_at: float
    ended_at: float | None = None
    read: int = 0
    """Entries of the journals up to which it has come, counted with those that are gone."""
    of: int = 0
    error: str = ""
    """The reason for the failure."""


class IndexBuilding(msgspec.Struct, kw_only=True):
    """The progress of an index that does not have all runs yet."""

    read: int
    """Messages of the streams up to which it has come, counted with those that are gone."""
    of: int


class IndexState(msgspec.Struct, kw_only=True):
    """The content of a gateway's index."""

    runs: int
    """Root runs that are in it."""
    bytes: int
    positions: list[int]
    """Up to which sequences the journals of each shard are in it, then their files."""
    building: IndexBuilding | None = None
    """As long as the gateway reads what is older than itself: lists answer `503` meanwhile."""
    rebuild: IndexRebuild | None = None
    """The last one of this process."""


Dimension = Literal["minute", "hour", "day", "team", "agent", "user", "session", "model", "tool"]
"""Dimensions of the sums. A `team` is named by the agent of its trees' roots."""


class Figures(msgspec.Struct, kw_only=True):
    """Sums over what journals tell."""

    runs: int = 0
    """That have ended, those of members too."""
    failed: int = 0
    """Of these: neither successful nor cancelled."""
    model_calls: int = 0
    unpriced_calls: int = 0
    """The number of these calls whose model has no known price, so that they are in no cost."""
    tool_calls: int = 0
    tool_failures: int = 0
    """Of these: ended with an error or in no time."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the price table."""
    times: dict[int, int] | UnsetType = UNSET
    """Root runs by how long they took: the number of those of at most `TIME_STEP` to the power of the key, in
    seconds. Answers have `p50_seconds` and `p95_seconds` instead."""

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def add(self, more: Figures) -> None:
        """Add other sums to these."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        if more.times:
            known = self.times or {}
            self.times = {key: known.get(key, 0) + more.times.get(key, 0) for key in {*known, *more.times}}

    def seconds_of(self, share: float) -> float | None:
        """Return the time within which this share of the root runs ended, up to a step too long; None without any."""
        times = self.times or {}
        left = share * sum(times.values())
        for key in sorted(times):
            left -= times[key]
            if left <= 0:
                return round(TIME_STEP**key, 3)
        return None


TIME_STEP = 1.1
"""The factor between two durations that statistics distinguish."""

_SUMMED = tuple(name for name in Figures.__struct_fields__ if name != "times")


class FiguresRow(Figures, kw_only=True):
    """The sums of one combination of what they are taken by; the other dimensions are not there."""

    p50_seconds: float | None = None
    """The time within which half of the root runs ended that ended then, at most a tenth too long; null without any."""
    p95_seconds: float | None = None
    minute: str | UnsetType = UNSET
    """Of UTC, such as 2026-11-22T14:05Z; kept for the last two hours."""
    hour: str | UnsetType = UNSET
    """Of UTC, such as 2026-11-22T14:00Z; the begin of the day for data whose hours are not kept apart any more."""
    day: str | UnsetType = UNSET
    """Of UTC, such as 2026-11-22."""
    team: str | UnsetType = UNSET
    """Agent of the tree's root; "" where it is not known any more."""
    agent: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    """The user; "" for runs without one."""
    session: str | UnsetType = UNSET
    """"" without one, and for days whose sessions are not kept apart any more."""
    model: str | UnsetType = UNSET
    """As the endpoint names it; "" for what is no model call."""
    tool: str | UnsetType = UNSET
    """"" for what is no tool call."""


class Statistics(msgspec.Struct, kw_only=True):
    """Sums over a time. Times are Unix seconds."""

    since: float
    until: float
    by: list[Dimension]
    rows: list[FiguresRow]
    total: FiguresRow


class RolloutChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change of a rollout: exactly one of `to`, `rollback`, `adopt` and `end`."""

    to: str | None = None
    """The revision that gets `weight` of a hundred new runs: its digits, or so many of the first that it is the only
    one. The others share the rest as before."""
    weight: int | None = None
    """Goes with `to`: what is left out is neither none of them nor all."""
    rest: str | None = None
    """The revision that gets all of the rest."""
    rollback: bool = False
    """The youngest revision that gets new runs gets none any more."""
    adopt: str | None = None
    """The revision whose runs the revision `by` goes on with; `by` itself gives them back."""
    by: str | None = None
    anyway: bool = False
    """Goes with `to`: gives the revision its share although something cannot work with it that works with others."""
    end: bool = False
    """Ends the rollout once there is one revision left: from then on any replica takes any run."""
    version: int | None = None
    """That of the rollout that was looked at: when there is another one by now nothing is changed."""


class RevisionView(msgspec.Struct, kw_only=True):
    """A revision of an agent."""

    revision: str
    weight: int | None
    """Of a hundred new runs those that it gets; null where it has no part in a rollout."""
    state: Literal["live", "opening", "open", "closing"]
    """`live`: without a part in a rollout. `opening` and `closing` while its queue is made and removed."""
    replicas: int
    open_runs: int | None
    """Its runs that have begun and not ended; null while the gateway has no index of runs to know that by."""
    waiting: int
    """Messages in its own queue."""
    adopted_by: str = ""
    """The revision that goes on with its runs."""
    schemas: str = ""
    """Digest of what its tools say of themselves at the moment, to hold against that of a run; empty where it has no
    live replica, or no tool of it is there."""


class AgentLag(msgspec.Struct, frozen=True):
    """Work that waits for the replicas of an agent."""

    lag: int
    """Messages that wait for them or are in their hands."""


class RolloutView(msgspec.Struct, kw_only=True):
    """The shares of an agent's runs that its revisions take."""

    agent: str
    version: int
    """0 where there never was a rollout."""
    active: bool
    revisions: list[RevisionView]
    """The oldest first; behind those of the rollout others that are live or have open runs."""
    warnings: list[str]
    """Problems, each with its remedy."""
