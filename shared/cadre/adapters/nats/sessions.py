"""Records which run a session's next turn goes on from: one key per agent, session and person, changed by
compare-and-set."""

from hashlib import sha256
from typing import NamedTuple

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.protocol.topology import Topology


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The session's last run, and the one before that for the case that the last was never started."""

    run: str
    previous: str | None = None
    at: float = 0.0


class Recorded(NamedTuple):
    """The record of a session."""

    turn: SessionTurn | None
    fence: int
    """The fence that `record` needs to replace exactly this."""


class NatsSessions:
    """The last turns of all sessions. A session is one person's: the same name is another session for everyone else,
    and for runs that are for no person (`user` None or "")."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._bucket = topology.sessions_bucket

    async def read(self, agent: str, session: str, user: str | None) -> Recorded:
        """Return the last turn and its fence. Raises BusUnavailable."""
        return Recorded(*await self._turn(agent, session, user).read())

    async def record(
        self,
        agent: str,
        session: str,
        user: str | None,
        turn: SessionTurn,
        fence: int,
        *,
        seconds: int | None = None,
    ) -> None:
        """Replace the turn at `fence`, for as many `seconds` where they are given. Raises Fenced when somebody else
        recorded a turn since; RetryableError."""
        await self._turn(agent, session, user, seconds).write(turn, fence)

    async def forget(self, agent: str, session: str, user: str | None, fence: int) -> None:
        """Remove what `read` found, unless somebody recorded a turn since. Raises BusUnavailable."""
        subject = self._subject(agent, session, user)
        await jetstream.purge(self._nc, f"KV_{self._bucket}", subject, fence + 1)

    def _turn(self, agent: str, session: str, user: str | None, seconds: int | None = None) -> FencedValue[SessionTurn]:
        subject = self._subject(agent, session, user)
        headers = {jetstream.TTL: f"{seconds}s"} if seconds else None
        return FencedValue(self._nc, f"KV_{self._bucket}", subject, SessionTurn, headers)

    def _subject(self, agent: str, session: str, user: str | None) -> str:
        subject = f"$KV.{self._bucket}.{agent}.{session}"
        return f"{subject}.{sha256(user.encode()).hexdigest()[:32]}" if user else subject
