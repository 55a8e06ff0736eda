"""Records from people to runs that go on: sent to the agent's inbox, and what the run's journal says of them."""

import secrets
import time
from dataclasses import dataclass

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.registry import NatsRegistry
from cadre.journal.entry import Entry
from cadre.ports import Journal, Stored
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    Signal,
    UserMessage,
)
from cadre_gateway import SENDER
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, answer_deadline
from cadre_gateway.streaming.live_feeds import LiveFeeds

TAKEN_UP_SECONDS = 5.0
"""An answer waits so long for the agent to take the record up."""


@dataclass(frozen=True)
class RecordSender:
    """Takes records to agents' inboxes."""

    registry: NatsRegistry
    feeds: LiveFeeds
    bus: NatsBus
    journal: Journal

    async def earlier(self, record: Cancel | Signal | UserMessage | Edit) -> Entry | None:
        """Return the entry that accounts for a record of the same id, or None if no entry does so yet. Raise
        RetryableError, TimeoutError."""
        async with answer_deadline():
            stored = await self.journal.read(record.tree, record.run)
            return next((one.entry for one in stored if one.entry.cause == record.id), None)

    async def send(self, record: Decision | Signal | UserMessage | Edit, agent: str) -> Entry | None:
        """Sends the record; returns the entry that accounts for it, None when there is none in time.

        Raises RetryableError, TimeoutError.
        """
        feed: Feed[Stored] = Feed()
        with self.feeds.follow(record.run, feed):
            async with answer_deadline():
                await self.bus.send_in_order(record, SENDER, to=agent)
            if agent not in live_agents(self.registry.presences()):
                return None  # it will find the record in its inbox
            until = time.monotonic() + TAKEN_UP_SECONDS
            while (left := until - time.monotonic()) > 0 and not feed.closed and not feed.overflowed:
                for stored in await feed.take(left):
                    if stored.entry.cause == record.id:
                        return stored.entry
        return None


def record_id(run: str, what: str, key: IdempotencyKey | None) -> str:
    """Return the id of a record to the run: the same for every request with this key, another one without a key."""
    return key.record_of(run, what) if key is not None else f"{run}:{what}:{secrets.token_hex(16)}"


def other_request(key: IdempotencyKey | None) -> Problem:
    """Return the 422 problem of a key that came with something else before."""
    named = repr(key.key) if key is not None else ""
    detail = f"you have sent something else with the Idempotency-Key {named}: use another key for this"
    return Problem(422, "idempotency-key-reused", detail)
