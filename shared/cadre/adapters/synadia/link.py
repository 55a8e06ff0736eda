"""The connection to where an agent is: it is found there by what it says of itself, and prompted under a key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import nats.errors
from nats.aio.client import Client
from synadia_ai.agents import Agents, Identity, IdentityError, PayloadTooLargeError, signer_from_seed
from synadia_ai.agents.discovery import AgentInfo, discover_agent_infos
from synadia_ai.agents.validation import assert_within_max_payload

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.connection.keys import read_key
from cadre.errors import BusUnavailable, CadreError, SetupError
from cadre.settings import read_settings
from cadre.spec.remote_agent import NatsAgentSpec
from cadre.versions import same_minor

VERSION = "0.3"
SENDER = "Agent-Sender"
_MOST_NAMED = 8
_SENDER_BYTES = 1024
"""The most that a signed header adds to a message."""


class AgentRefused(CadreError):
    """The agent would not take what it is sent, however often."""


class AgentAbsent(CadreError):
    """The agent is not there now."""


class Link:
    """A connection that opens when it is first needed, and reconnects automatically."""

    def __init__(self, name: str, where: NatsAgentSpec, folder: Path) -> None:
        """`folder` is what the file of the key is relative to."""
        self._name = name
        self._where = where
        self._credentials = str((folder / where.credentials).resolve()) if where.credentials else ""
        self._nc: Client | None = None
        self._opening = asyncio.Lock()

    def check(self) -> None:
        """Raise SetupError for a key that is not there."""
        if self._credentials:
            read_key(Path(self._credentials))

    async def connection(self) -> Client:
        """Return the connection. Raises AgentAbsent, AgentRefused."""
        async with self._opening:
            if self._nc is None or self._nc.is_closed:
                settings = read_settings()
                if self._where.url or self._credentials:
                    url = self._where.url or settings.nats_url
                    settings = msgspec.structs.replace(settings, nats_url=url, nats_credentials=self._credentials)
                try:
                    self._nc = await connect(settings, f"cadre {self._name}", wait=False)
                except BusUnavailable as error:
                    raise AgentAbsent(str(error)) from error
                except SetupError as error:
                    raise AgentRefused(f"{self._name}: {error}") from error
            return self._nc

    async def find(self) -> AgentInfo:
        """Return what the agent says of itself. Raises AgentAbsent, AgentRefused."""
        where, nc = self._where, await self.connection()
        try:
            found = await discover_agent_infos(nc)
        except nats.errors.Error as error:
            raise AgentAbsent(f"{self._name}: asking who is there: {error}") from error
        wanted = (where.agent, where.owner, where.session)
        mine = [one for one in found if (one.agent, one.owner, one.session_name) == wanted]
        if not mine:
            there = sorted({f"{one.agent}/{one.owner}/{one.session_name}" for one in found})
            named = ", ".join(there[:_MOST_NAMED]) or "nobody"
            raise AgentAbsent(f"no agent {'/'.join(wanted)} answers at NATS; there: {named}")
        info = mine[0]
        if not same_minor(info.protocol_version, VERSION):
            raise AgentRefused(
                f"{self._name} speaks version {info.protocol_version} of the agent protocol, and Cadre {VERSION}"
            )
        return info

    async def check_size(self, info: AgentInfo, payload: bytes, *, has_files: bool) -> None:
        """Raise AgentRefused for a prompt that the agent does not take."""
        endpoint, nc = info.prompt_endpoint, await self.connection()
        if has_files and endpoint.attachments_ok is False:
            raise AgentRefused(f"{self._name} takes no files: give it texts")
        try:
            assert_within_max_payload(len(payload), endpoint.max_payload_bytes, nc.max_payload or None, _SENDER_BYTES)
        except PayloadTooLargeError as error:
            raise AgentRefused(f"{self._name}: {error}") from error

    async def signed(self, info: AgentInfo, payload: bytes) -> dict[str, str]:
        """Return the header that says who prompts, where there is a key and the agent reads it. Raises AgentRefused."""
        if not info.supports_sender_identity:
            return {}
        must = info.prompt_endpoint.min_sender_trust == "signed"
        if not self._credentials:
            if must:
                raise AgentRefused(f"{self._name} takes signed prompts only: name a key of yours in `nats.credentials`")
            return {}
        signer = signer_from_seed(read_key(Path(self._credentials)).seed)
        agents = Agents(nc=await self.connection(), identity=Identity(signer=signer, name=self._name))
        try:
            return {SENDER: await agents.sign_sender(info.prompt_endpoint.subject, payload)}
        except IdentityError as error:
            if must:
                raise AgentRefused(f"{self._name}: the prompt cannot be signed: {error}") from error
            return {}
        finally:
            await agents.close()
