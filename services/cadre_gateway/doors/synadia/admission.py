"""Admission of prompts: the caller, and the run that a prompt begins, stored before the caller hears that its prompt
was taken."""

from __future__ import annotations

import asyncio
import binascii
import json
import mimetypes
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
from synadia_ai.agent_service import CallNext, RequestInterceptorContext, RequestRejectedError
from synadia_ai.agents import Envelope, SenderInfo, VerifiedSender

from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.access.gate import Access
from cadre_gateway.access.principal import ANYBODY, Principal
from cadre_gateway.doors.answers import count, count_from_zero
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.sender import DoorSender, RunService, begin_run, known_run, short_hash
from cadre_gateway.requests.body import Submission, checked_submission
from cadre_gateway.requests.idempotency import checked_key
from cadre_gateway.requests.problems import (
    FORESEEN,
    Problem,
    answer_deadline,
    as_problem,
    invalid,
    unauthorized,
)

DOOR = "synadia"
_ROUTE = "prompt"
_CODES = {404: 404, 410: 404, 401: 401, 403: 403, 409: 409, 429: 429, 500: 500, 503: 500}
"""The protocol's codes by HTTP's; any other is 400."""


@dataclass(frozen=True)
class AdmittedPrompt:
    """A prompt that was taken."""

    place: Place
    sender: DoorSender


turn_of_prompt: ContextVar[AdmittedPrompt] = ContextVar("turn_of_prompt")
"""That of the prompt which is answered."""


class PromptAdmission:
    """Lets prompts to one agent in (`synadia_ai.agent_service.RequestInterceptor`)."""

    def __init__(self, agent: str, runs: RunService, access: Access, key: str, most: int, meters: Meters) -> None:
        self._agent = agent
        self._runs = runs
        self._access = access
        self._key = key
        self._most = most
        self._meters = meters
        count_from_zero(meters, DOOR, _ROUTE)
        self.at_work = 0
        """Prompts that are being answered."""
        self.idle = asyncio.Event()
        """Set while no requests are under way."""
        self.idle.set()

    async def around_request(self, ctx: RequestInterceptorContext, call_next: CallNext) -> None:
        """Begin the run, then inform the caller. Raises RequestRejectedError."""
        self.at_work += 1
        self.idle.clear()
        try:
            turn = await self._take(ctx)
            token = turn_of_prompt.set(turn)
            try:
                await call_next()
            finally:
                turn_of_prompt.reset(token)
        finally:
            self.at_work -= 1
            if not self.at_work:
                self.idle.set()

    async def _take(self, ctx: RequestInterceptorContext) -> AdmittedPrompt:
        problem: Problem | None = None
        try:
            if self.at_work > self._most:
                raise Problem(429, "busy", f"this gateway answers {self._most} prompts to {self._agent} already")
            sender = await self._sender(ctx)
            return AdmittedPrompt(await self._begin(ctx, sender), sender)
        except FORESEEN as error:
            problem = as_problem(error)
            raise rejected(problem) from error
        finally:
            count(self._meters, DOOR, _ROUTE, problem.code if problem is not None else "")

    async def _sender(self, ctx: RequestInterceptorContext) -> DoorSender:
        caller = await self._caller()
        if not caller.may("act"):
            raise Problem(403, "forbidden", "the key that this door acts by may not start runs: `operator` may")
        self._access.limits.check_rate(caller)
        return DoorSender(caller, name_of(caller, ctx.sender), ctx.headers.get("traceparent"))

    async def _caller(self) -> Principal:
        if self._access.keys is None:
            return ANYBODY
        caller = await self._access.keys.caller(self._key)
        if caller is None:
            raise unauthorized("the key that this door acts by (CADRE_SYNADIA_KEY) is not known any more")
        return caller

    async def _begin(self, ctx: RequestInterceptorContext, sender: DoorSender) -> Place:
        wanted = checked_submission(submission_of(self._agent, ctx.envelope))
        if wanted.session is not None and isinstance(ctx.sender, VerifiedSender):
            # A session is its person's: that of a NATS user who has signed is no other user's.
            own = f"nats-{short_hash(f'{ctx.sender.id.user} {wanted.session}')}"
            wanted = msgspec.structs.replace(wanted, session=own)
        message = checked_key(ctx.headers.get("Idempotency-Key")) or _nonce(ctx.sender, ctx.headers) or uuid4().hex
        key = sender.key(DOOR, f"{self._agent}\n{message}", ctx.envelope.model_dump_json().encode())
        async with answer_deadline():
            known = await known_run(self._runs, sender.caller, self._agent, key)
        return known or await begin_run(self._runs, sender, wanted, key)


def name_of(caller: Principal, sender: SenderInfo | None) -> str:
    """As decisions name the caller: with the NATS user that a signature has proved."""
    if not isinstance(sender, VerifiedSender):
        return caller.name
    return f"{caller.name} {sender.id.user}".strip()


def submission_of(agent: str, envelope: Envelope) -> Submission:
    """Return the run that the prompt asks for: images are shown to the agent, other attachments are files of its
    workspace. Raises a 422 problem."""
    images: list[str] = []
    found: dict[str, str] = {}
    for attachment in envelope.attachments or []:
        try:
            attachment.to_bytes()
        except binascii.Error as error:
            raise invalid(f"attachments: {attachment.filename!r} is not base64: {error}") from error
        kind = mimetypes.guess_type(attachment.filename)[0] or "application/octet-stream"
        url = f"data:{kind};base64,{attachment.content}"
        name = Path(attachment.filename).name
        if kind.startswith("image/"):
            images.append(url)
        elif not name or name in found:
            raise invalid(f"attachments: {attachment.filename!r}: give each file its own name")
        else:
            found[name] = url
    session = envelope.extras.get("session")
    if not isinstance(session, str | None):
        raise invalid("session: write a name, or leave it out")
    return Submission(
        agent=agent,
        task=envelope.prompt,
        images=images,
        files=found,
        session=session,
    )


def rejected(problem: Problem) -> RequestRejectedError:
    """Return the problem in the protocol's words."""
    return RequestRejectedError(_CODES.get(problem.status, 400), f"{problem.code}: {problem.detail}")


def _nonce(sender: SenderInfo | None, headers: Mapping[str, str]) -> str:
    """Return the value that the signer of the prompt uses once: a caller that sends it again, perhaps to another
    gateway, finds the same run.
    """
    if not isinstance(sender, VerifiedSender):
        return ""
    return f"nonce {json.loads(headers['Agent-Sender'])['nonce']}"
