"""What every door starts, follows and decides runs with: the parts that the native API uses."""

from __future__ import annotations

from dataclasses import dataclass

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.sessions import NatsSessions
from cadre.ports import Clock
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.automation.pushes import PushNotifications
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.reading.contracts import LiveContracts
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.decide import ApprovalDecisions
from cadre_gateway.steering.erase import Eraser
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.steering.steer import Steering
from cadre_gateway.streaming.event_stream import WatchDeltas
from cadre_gateway.streaming.live_feeds import LiveFeeds


@dataclass(frozen=True)
class RunService:
    """What the native API starts, follows and decides runs with."""

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
