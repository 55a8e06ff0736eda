"""Records from people to runs that go on: sent to the agent's inbox, and what the run's journal says of them."""

import time
from dataclasses import dataclass

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.registry import NatsRegistry
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.protocol.messages import (
    Decision,
    Edit,
    Signal,
    UserMessage,
)
from cadre_gateway import SENDER
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.streaming.live_feeds import LiveFeeds

TAKEN_UP_SECONDS = 5.0
"""An answer waits so long for the agent to take the record up."""


@dataclass(frozen=True)
class RecordSender:
    """Takes records to agents' inboxes."""

    registry: NatsRegistry
    feeds: LiveFeeds
    bus: NatsBus

    async def send(self, record: Decision | Signal | UserMessage | Edit, agent: str) -> Entry | None:
        """Sends the record; returns the entry that accounts for it, None when there is none in time.

        Raises RetryableError, TimeoutError.
        """
        feed: Feed[Stored] = Feed()
        with self.feeds.follow(record.run, feed):
            async with answer_deadline():
                await self.bus.send(record, SENDER, to=agent)
            if agent not in live_agents(self.registry.presences()):
                return None  # it will find the record in its inbox
            until = time.monotonic() + TAKEN_UP_SECONDS
            while (left := until - time.monotonic()) > 0 and not feed.closed and not feed.overflowed:
                for stored in await feed.take(left):
                    if stored.entry.cause == record.id:
                        return stored.entry
        return None
