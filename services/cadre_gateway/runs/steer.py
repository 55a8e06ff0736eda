"""What people send to runs that go on, and what the runs' journals make of it."""

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import Any

from cadre.api.steering import Delivered
from cadre.errors import SpecError
from cadre.journal.entry import Entry
from cadre.journal.events import MessageReceived, RecordIgnored, SignalReceived
from cadre.protocol.messages import MessageMode, Signal, UserMessage
from cadre.spec.names import check_name
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.runs import SENDER
from cadre_gateway.runs.lookup import RunLookup
from cadre_gateway.runs.record_sender import RecordSender


@dataclass(frozen=True)
class Steering:
    """Takes signals and messages to runs."""

    lookup: RunLookup
    sender: RecordSender

    async def signal(self, run: str, name: str, payload: Any, key: str | None, by: str) -> Delivered:
        """Sends a signal to the run; a repeated `key` finds the one that was sent before.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        try:
            check_name("signal", name)
        except SpecError as error:
            raise invalid(str(error)) from error
        agent, tree = await self._open_run(run)
        record = Signal(
            id=_record_id(run, "signal", key),
            tree=tree,
            run=run,
            at=time.time(),
            name=name,
            payload=payload,
            sender=by or SENDER,
        )
        entry = await self._earlier(record) if key is not None else None
        entry = entry or await self.sender.send(record, agent)
        if entry is None:
            return Delivered(record.id, run)
        event = entry.events[0]
        if isinstance(event, SignalReceived) and (event.name, event.payload) != (name, payload):
            raise _other_request(key or "")
        return _delivered(record.id, entry, "signals-full")

    async def tell(self, run: str, text: str, mode: MessageMode, key: str | None, by: str) -> Delivered:
        """Sends a message to the run; a repeated `key` finds the one that was sent before.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        agent, tree = await self._open_run(run)
        record = UserMessage(
            id=_record_id(run, "message", key),
            tree=tree,
            run=run,
            at=time.time(),
            text=text,
            mode=mode,
            sender=by or SENDER,
        )
        entry = await self._earlier(record) if key is not None else None
        entry = entry or await self.sender.send(record, agent)
        if entry is None:
            return Delivered(record.id, run)
        event = entry.events[0]
        if isinstance(event, MessageReceived) and (event.text, event.mode) != (text, mode):
            raise _other_request(key or "")
        return _delivered(record.id, entry, "messages-full")

    async def _open_run(self, run: str) -> tuple[str, str]:
        """The agent and the tree of a run that goes on. Raises a 404 or 409 problem."""
        async with answer_deadline():
            summary = await self.lookup.find(run)
        if summary.finished:
            raise _run_ended(run)
        return summary.agent, summary.tree

    async def _earlier(self, record: Signal | UserMessage) -> Entry | None:
        """The entry that accounts for a record of the same id, if there is one already."""
        async with answer_deadline():
            stored = await self.lookup.history.read_run(record.tree, record.run)
        return next((one.entry for one in stored if one.entry.cause == record.id), None)


def _record_id(run: str, what: str, key: str | None) -> str:
    """The same for every request with this key."""
    own = hashlib.sha256(key.encode()).hexdigest()[:32] if key is not None else secrets.token_hex(16)
    return f"{run}:{what}:{own}"


def _delivered(record: str, entry: Entry, full: str) -> Delivered:
    """The answer for a record that the journal accounts for. Raises a 409 problem when it was refused; `full` is the
    problem's code when the run goes on."""
    event = entry.events[0]
    if isinstance(event, RecordIgnored):
        if event.reason == "the run is over":
            raise _run_ended(entry.run)
        raise Problem(409, full, f"run {entry.run}: {event.reason}")
    return Delivered(record, entry.run, entry.at)


def _run_ended(run: str) -> Problem:
    return Problem(409, "run-ended", f"run {run} is over: nothing can be sent to it any more")


def _other_request(key: str) -> Problem:
    detail = f"something else was sent with the Idempotency-Key {key!r}: use a key of its own for this"
    return Problem(422, "idempotency-key-reused", detail)
