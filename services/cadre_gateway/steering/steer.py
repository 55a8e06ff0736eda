"""Send records from people to runs that go on, and report what the runs' journals make of them."""

import secrets
import time
from dataclasses import dataclass
from typing import Any

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import Delivered, Edited
from cadre.engine.fold import fold
from cadre.engine.kind import kind_of
from cadre.errors import SpecError
from cadre.journal.entry import Entry
from cadre.journal.events import (
    AnyEvent,
    EditApplied,
    EditRefused,
    MessageReceived,
    RecordIgnored,
    SignalReceived,
)
from cadre.ports import Clock, Journal, Stored
from cadre.protocol.codes import IGNORED
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    MessageMode,
    Signal,
    UserMessage,
)
from cadre.spec.names import check_name
from cadre_gateway import SENDER
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.reading.lookup import RunLookup, checked_tree_of
from cadre_gateway.requests.body import EditBody
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.streaming.follow import Feed, LiveFeeds

TAKEN_UP_SECONDS = 5.0
"""Seconds that an answer waits for the agent to take the record up."""


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
        """Send the record; return the entry that accounts for it, or None after a timeout.

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


@dataclass(frozen=True)
class Steering:
    """Takes signals, messages and edits to runs."""

    lookup: RunLookup
    journal: Journal
    sender: RecordSender
    clock: Clock

    async def signal(self, run: str, name: str, payload: Any, key: IdempotencyKey | None, by: str) -> Delivered:
        """Send a signal to the run; a repeated `key` finds the one that was sent before.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        try:
            check_name("signal", name)
        except SpecError as error:
            raise invalid(str(error)) from error
        return await self._say(Signal, "signal", run, key, by, name=name, payload=payload)

    async def tell(self, run: str, text: str, mode: MessageMode, key: IdempotencyKey | None, by: str) -> Delivered:
        """Send a message to the run; a repeated `key` finds the one that was sent before.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        return await self._say(UserMessage, "message", run, key, by, text=text, mode=mode)

    async def _say(
        self,
        form: type[Signal | UserMessage],
        what: str,
        run: str,
        key: IdempotencyKey | None,
        by: str,
        **said: Any,
    ) -> Delivered:
        agent, tree = await self._open_run(run)
        about: dict[str, Any] = {"id": record_id(run, what, key), "tree": tree, "run": run}
        record = form(**about, at=self.clock.now(), sender=by or SENDER, **said)
        event, delivered = await self._send(record, agent, key)
        if isinstance(event, SignalReceived | MessageReceived) and any(
            getattr(event, field) != value for field, value in said.items()
        ):
            raise other_request(key)
        return delivered

    async def editable(self, run: str, name: str) -> Edited:
        """Return what a person may edit of the run under this name. Raises a 404 problem, RetryableError."""
        async with answer_deadline():
            tree = checked_tree_of(run)
            entries = [stored.entry for stored in await self.journal.read(tree, run)]
            if not entries:
                await self.lookup.find(run)
        state = fold(entries, run, tree)
        found = kind_of(state).editable(state) if state.spec is not None else None
        if found is None or found.name != name:
            raise Problem(404, "not-editable", f"run {run} has no {name} that can be edited")
        return Edited(run=run, name=name, version=found.version, state=found.state)

    async def edit(
        self, run: str, name: str, wanted: EditBody, key: IdempotencyKey | None, by: str
    ) -> Edited | Delivered:
        """Edit what the run has under this name; return its state after that, or a Delivered without `at` when no agent
        has taken the edit up yet.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        agent, tree = await self._open_run(run)
        record = Edit(
            id=record_id(run, "edit", key),
            tree=tree,
            run=run,
            at=self.clock.now(),
            base=wanted.version,
            operations=wanted.operations,
            sender=by or SENDER,
        )
        if key is None or await self.sender.earlier(record) is None:
            present = await self.editable(run, name)
            if present.version != wanted.version:
                raise _stale(run, name, present.version)
        event, delivered = await self._send(record, agent, key)
        if event is None:
            return delivered
        if isinstance(event, EditRefused):
            match event.code:
                case "stale-version" if event.version is not None:
                    raise _stale(run, name, event.version)
                case "edit-too-late":
                    raise Problem(409, event.code, f"the {name} of run {run}: {event.reason}")
                case "not-editable":
                    raise Problem(404, event.code, event.reason)
                case _:
                    raise invalid(event.reason)
        if isinstance(event, EditApplied) and (event.base, event.operations) != (
            record.base,
            record.operations,
        ):
            raise other_request(key)
        return await self.editable(run, name)

    async def _open_run(self, run: str) -> tuple[str, str]:
        """Return the agent and the tree of a run that goes on. Raises a 404 or 409 problem."""
        async with answer_deadline():
            summary = await self.lookup.find(run)
        if summary.finished:
            raise _run_ended(run)
        return summary.agent, summary.tree

    async def _send(
        self, record: Signal | UserMessage | Edit, agent: str, key: IdempotencyKey | None
    ) -> tuple[AnyEvent | None, Delivered]:
        """Send the record unless one with this key was sent before; returns what the journal says of it, None when no
        agent has taken it up yet. Raises a 409 problem with the code of why the run ignored it, RetryableError."""
        entry = await self.sender.earlier(record) if key is not None else None
        entry = entry or await self.sender.send(record, agent)
        if entry is None:
            return None, Delivered(record.id, record.run)
        event = entry.events[0]
        if isinstance(event, RecordIgnored):
            if event.code == "run-ended":
                raise _run_ended(entry.run)
            raise Problem(409, event.code, f"run {entry.run}: {event.detail or IGNORED[event.code]}")
        return event, Delivered(record.id, entry.run, entry.at)


def _stale(run: str, name: str, version: int) -> Problem:
    detail = f"the {name} of run {run} is at version {version} by now: read it again, and edit that"
    return Problem(409, "stale-version", detail, version=version)


def _run_ended(run: str) -> Problem:
    return Problem(409, "run-ended", f"run {run} is over: nothing can be sent to it any more")
