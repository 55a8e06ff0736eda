"""Begin runs for the sender of a request, with the parts that every door shares."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fastapi import Request

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.sessions import NatsSessions
from cadre.ports import Clock
from cadre.protocol.kept import KeptConversation, KeptFile
from cadre.protocol.messages import CallerTerms
from cadre.protocol.policy import Standing
from cadre_gateway.access.principal import Principal, caller_of
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.automation.notices import PushNotifications
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.doors.progress import Place
from cadre_gateway.reading.directory import LiveContracts
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.body import Submission, checked_submission
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.parameters import utf8
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.approvals import ApprovalDecisions
from cadre_gateway.steering.run_end import Eraser, RunEnd
from cadre_gateway.steering.steer import Steering
from cadre_gateway.streaming.event_stream import WatchDeltas
from cadre_gateway.streaming.follow import LiveFeeds


@dataclass(frozen=True)
class DoorSender:
    """The sender of a message."""

    caller: Principal
    name: str
    """As decisions name them."""
    traceparent: str | None

    def key(self, door: str, message: str, content: bytes) -> IdempotencyKey:
        """Return a key that is the same for the same message of the same sender; `content` must be the same, too."""
        told = short_hash(f"{self.name}\n{message}")
        digest = hashlib.sha256(content).hexdigest()
        return IdempotencyKey(self.caller.owner, f"{door}-{told}", digest)


def sender_of(request: Request) -> DoorSender:
    """Return who sends the request."""
    caller = caller_of(request)
    named = utf8(request.headers.get("cadre-user"))  # the gate's own word where it asks who calls
    return DoorSender(caller, named or caller.name, request.headers.get("traceparent"))


def short_hash(text: str) -> str:
    """Stands for a text where a name must be short."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


async def known_run(runs: RunService, caller: Principal, agent: str, key: IdempotencyKey) -> Place | None:
    """Return the place of the run that the same message began before. Raise a 403 problem unless the caller may start
    runs of the agent: a person's keys may differ in that. Raise a 422 problem if that message said something else,
    RetryableError."""
    caller.starts_for(agent, None)
    run = await runs.submitter.admission.keyed.run_of(key, agent)
    known = await runs.history.task(run, run)
    if known is None:
        return None
    key.check(known.request)
    return Place(run)


async def begin_run(  # noqa: PLR0913 - what a start is made of
    runs: RunService,
    sender: DoorSender,
    wanted: Submission,
    key: IdempotencyKey,
    terms: CallerTerms | None = None,
    beside: frozenset[str] = frozenset(),
    standing: Standing | None = None,
) -> Place:
    """Begin a run in the sender's own name, within what they may begin; `beside` and `standing` are passed to
    Submitter.submit. Raise Problem, RetryableError."""
    request = checked_submission(wanted)
    async with answer_deadline():
        begun = await runs.submitter.submit(
            sender.caller, request, key, sender.traceparent, terms=terms, beside=beside, standing=standing
        )
    return Place(begun.id)


@dataclass(frozen=True)
class RunService:
    """The parts with which the native API starts, follows and decides runs."""

    reach: CallerReach
    lookup: RunLookup
    history: History
    feeds: LiveFeeds
    watch_deltas: WatchDeltas
    turns: NatsSessions
    submitter: Submitter
    decisions: ApprovalDecisions
    steering: Steering
    run_end: RunEnd
    eraser: Eraser
    registry: NatsRegistry
    contracts: LiveContracts
    clock: Clock
    pushes: PushNotifications
    cards: CardSettings
    kept_files: NatsDefinitions[KeptFile]
    kept_conversations: NatsDefinitions[KeptConversation]
