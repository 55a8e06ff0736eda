"""The agents, tools and sandboxes of a deployment, and the state of its index, as the HTTP API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

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
    spent = (
        f"{seconds} s"
        if seconds < 120
        else f"{seconds // 60} min"
        if seconds < 7200
        else f"{seconds // 3600} h"
    )
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
    """Whether it keeps something beyond its runs."""
    problems: list[ContractProblem] = []
    """What it expects of its tools and members, as they are now, and what does not hold."""
    policies: list[str] = []
    """Names of the policies that rule its calls."""
    prompt_tokens: int = 0
    """Tokens that the first request of each run takes at the very least; 0 when that is not known."""
    schemas: str = ""
    """Digest of what its tools say of themselves at the moment, to hold against that of a run; empty without any."""
    differing: list[str] = []
    """Revisions of its replicas where those of one version differ; [] when they agree."""
    rollout: list[str] = []
    """What is not as it should be where its revisions share its runs, with the way out."""
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
    """Whether a person must agree to a call, as the tool says; empty leaves it to the agents."""
    action: CallMeaning = CallMeaning()
    """What a call does, for the rules of policies."""
    labels: dict[str, str]
    version: str
    away_since: float | None = None
    """As an agent's."""
    replicas: list[Replica]


class LiveSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with live sandboxes, or one that is away: code waits for it."""

    pool: str
    tier: str
    """How well code is locked in: that of the replica where it is least."""
    python: str
    """Version of the code's Python; several when the replicas differ."""
    sessions: int
    """Interpreters at once, over all live replicas."""
    version: str
    away_since: float | None = None
    """As an agent's."""
    replicas: list[Replica]


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent has to do, and how long its runs took."""

    name: str
    going: int
    """Runs that have begun and not ended."""
    p50_seconds: float | None
    """Half of its last runs that succeeded took no longer; null where there are none."""
    p95_seconds: float | None
    counted: int
    """How many runs that is of."""


class QueueLoad(msgspec.Struct, frozen=True):
    """What waits for, or is in the hands of, those who serve one queue."""

    kind: str
    """`agent`, `tool` and others."""
    name: str
    messages: int


class Load(msgspec.Struct):
    """How much there is to do."""

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
    """Why it failed."""


class IndexBuilding(msgspec.Struct, kw_only=True):
    """How far an index is that does not have all runs yet."""

    read: int
    """Messages of the streams up to which it has come, counted with those that are gone."""
    of: int


class IndexState(msgspec.Struct, kw_only=True):
    """What is in the index of a gateway."""

    runs: int
    """Root runs that are in it."""
    bytes: int
    positions: list[int]
    """Up to which sequences the journals of each shard are in it, then their files."""
    building: IndexBuilding | None = None
    """As long as the gateway reads what is older than itself: lists answer `503` meanwhile."""
    rebuild: IndexRebuild | None = None
    """The last one of this process."""
