"""Serve each live agent as a service of the protocol, on a separate NATS connection with its own settings. The
answer to a prompt is what the team does, the calls that wait for the caller's decision, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from synadia_ai.agent_service import AgentService, PromptStream
from synadia_ai.agents import Envelope, ProtocolError, QueryTimeout, StatusChunk

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.errors import CadreError, SettingError, SetupError
from cadre.protocol.cards import AgentCard
from cadre.protocol.nats_users import addresses
from cadre.protocol.tagged import for_people
from cadre.service.platform import Platform
from cadre.settings import read
from cadre_gateway.access.audit import AuditTrail
from cadre_gateway.access.gate import Access
from cadre_gateway.doors.following import Answers, check_success
from cadre_gateway.doors.progress import PendingAnswer, Progress, answer_text
from cadre_gateway.doors.rulings import ASK_USER, OVERTAKEN, ruling_of, said, word_in
from cadre_gateway.doors.sender import DoorSender, RunService
from cadre_gateway.doors.synadia.admission import AdmittedPrompt, PromptAdmission, rejected, turn_of_prompt
from cadre_gateway.reading.directory import card_of, live_agents
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

log = logging.getLogger("cadre.gateway")

HARNESS = "cadre"
"""The name by which agents of Cadre introduce themselves."""
_GONE_SECONDS = 30.0
"""Seconds that an agent may have no replica before its service ends: it may just be restarting."""
_LOOK_SECONDS = 5.0
_RETRY_SECONDS = 5.0

_OWNER = re.compile(r"[a-z0-9_-]{1,63}")


class _Hosted(NamedTuple):
    service: AgentService
    admission: PromptAdmission


class SynadiaDoor:
    """Agents of the deployment as services on NATS, until it is drained."""

    def __init__(self, runs: RunService, access: Access, platform: Platform) -> None:
        """Raise SetupError."""
        self._settings = read_synadia_settings()
        self._runs = runs
        self._access = access
        self._platform = platform
        self._hosted: dict[str, _Hosted] = {}
        self._seen: dict[str, float] = {}
        self._is_lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        own = self._settings.url or self._settings.credentials
        if platform.settings.nats_credentials and not own:
            raise SetupError(
                "CADRE_DOORS names synadia, and the gateway's own NATS user may not host agents: name the key of one"
                " that may in CADRE_SYNADIA_CREDENTIALS (docs/members.md)"
            )
        if access.keys is not None and not self._settings.key:
            raise SetupError(
                "CADRE_DOORS names synadia, and this gateway asks who calls: name the key whose rights callers on NATS"
                " are to have in CADRE_SYNADIA_KEY (`cadre key create NAME --role operator`)"
            )

    def begin(self) -> None:
        """Have agents hosted from now on."""
        self._task = asyncio.create_task(self._keep_open(), name="door synadia")

    async def drain(self, grace: float) -> None:
        """End; notify callers whose answers are not complete."""
        ending = [asyncio.create_task(one.admission.idle.wait()) for one in self._hosted.values()]
        if ending:
            _, late = await asyncio.wait(ending, timeout=grace)
            for task in late:
                task.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_open(self) -> None:
        while True:
            self._is_lost.clear()
            try:
                nc = await self._connect()
                try:
                    await self._host(nc)
                finally:
                    await asyncio.gather(*map(self._end, [*self._hosted]), return_exceptions=True)
                    await nc.close()
            except CadreError as error:
                log.error("the door synadia is closed: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _connect(self) -> NatsClient:
        wanted: SynadiaSettings = self._settings
        settings = self._platform.settings
        if wanted.url or wanted.credentials:
            url = wanted.url or settings.nats_url
            settings = msgspec.structs.replace(settings, nats_url=url, nats_credentials=wanted.credentials)

        def give_up(reason: str) -> None:
            log.error("the door synadia lost its connection for good: %s", reason)
            self._is_lost.set()

        return await connect(settings, "cadre gateway, door synadia", given_up=give_up)

    async def _host(self, nc: NatsClient) -> None:
        """Keep a service for each live agent, until the connection is lost."""
        while not self._is_lost.is_set():
            presences, now = self._platform.registry.reachable(), time.monotonic()
            for name in live_agents(presences):
                card = card_of(presences, name)
                self._seen[name] = now
                if card is not None and name not in self._hosted:
                    self._hosted[name] = await self._begin(nc, card)
            for name, one in [*self._hosted.items()]:
                if now - self._seen[name] > _GONE_SECONDS and not one.admission.at_work:
                    await self._end(name)
            waiting: list[Any] = [self._platform.registry.changed(), self._is_lost.wait()]
            tasks = [asyncio.ensure_future(one) for one in waiting]
            await asyncio.wait(tasks, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async def _begin(self, nc: NatsClient, card: AgentCard) -> _Hosted:
        wanted = self._settings
        admission = PromptAdmission(
            card.name, self._runs, self._access, wanted.key, wanted.prompts, self._platform.meters
        )
        service = AgentService(
            agent=HARNESS,
            owner=wanted.owner or self._platform.settings.prefix.lower(),
            session_name=card.name,
            nc=nc,
            description=card.description,
            extra_metadata={"cadre_agent": card.name},
            min_sender_trust=wanted.trust,
            interceptors=[admission],
            # Requests beyond the limit are rejected, and do not wait for a place.
            max_concurrent_prompts=2 * wanted.prompts,
        )
        service.on_prompt(Answering(self._runs, self._access.trail, max(1_000, nc.max_payload // 16)))
        await service.start()
        log.info("agent %s is on NATS at %s", card.name, service.subject.prompt)
        return _Hosted(service, admission)

    async def _end(self, name: str) -> None:
        await self._hosted.pop(name).service.stop()


class SynadiaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`CADRE_SYNADIA_<FIELD>`."""

    url: str = ""
    """The NATS server; "" for that of the deployment."""
    credentials: str = ""
    """The file of a NATS user's key; "" for none where `url` is set, else the gateway's own."""
    owner: str = ""
    """The word for this deployment in its subjects; "" for its prefix."""
    key: str = ""
    """The API key whose rights callers on NATS have."""
    trust: Literal["any", "signed"] = "any"
    """`signed`: only prompts that are signed with a NATS user's key are taken."""
    prompts: Annotated[int, msgspec.Meta(ge=1)] = 100
    """Prompts to one agent that are answered at once."""

    def __post_init__(self) -> None:
        if self.url:
            addresses(self.url)
        if self.owner and not _OWNER.fullmatch(self.owner):
            raise SettingError(
                f"CADRE_SYNADIA_OWNER={self.owner!r}: use 1 to 63 of a-z, 0-9, '_' and '-' (it is in NATS subjects)"
            )


def read_synadia_settings() -> SynadiaSettings:
    """Return this gateway's settings. Raises SettingError."""
    return read(SynadiaSettings, "CADRE_SYNADIA_")


_WORD_SECONDS = 600.0
"""Seconds to wait for a caller that was asked; after that it is taken to have gone."""
_MOST_QUESTION_CHARS = 4_000


class Answering:
    """Answers the prompts to one agent."""

    def __init__(self, runs: RunService, trail: AuditTrail, most_chars: int) -> None:
        """`most_chars` is what a chunk may hold."""
        self._runs = runs
        self._trail = trail
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
        self._most_chars = most_chars

    async def __call__(self, envelope: Envelope, stream: PromptStream) -> None:
        """Answer the prompt that was taken (`synadia_ai.agent_service.PromptHandler`). Raises RequestRejectedError."""
        try:
            progress = await _AnswerStream(
                self._answers, self._runs, self._trail, turn_of_prompt.get(), stream
            ).follow()
            check_success(progress)
        except FORESEEN as error:
            raise rejected(as_problem(error)) from error
        assert progress.end is not None
        text = answer_text(progress.end.output)
        for begin in range(0, len(text), self._most_chars):
            await stream.send(text[begin : begin + self._most_chars])


class _AnswerStream:
    """One answer while it is given."""

    def __init__(
        self,
        answers: Answers,
        runs: RunService,
        trail: AuditTrail,
        turn: AdmittedPrompt,
        stream: PromptStream,
    ) -> None:
        self._answers = answers
        self._runs = runs
        self._trail = trail
        self._turn = turn
        self._stream = stream
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def follow(self) -> Progress:
        """Send the team's work and the questions that it waits for, until the run has ended. Raises Problem,
        RetryableError."""
        run, after = self._turn.place
        await self._stream.send(StatusChunk(status=f"run {run}"))
        try:
            while True:
                progress = Progress(run, after)
                await self._until_settled(progress)
                if progress.end is not None:
                    return progress
                assert progress.pause is not None
                after = progress.pause.seq
                self._ask(progress)
        finally:
            for task in self._asking.values():
                task.cancel()
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def _until_settled(self, progress: Progress) -> None:
        async with contextlib.aclosing(self._answers.follow(progress)) as follow:
            async for news in follow:
                for line in news.lines:
                    await self._stream.send(StatusChunk(status=line))
                for call, task in self._asking.items():
                    if task.done() and not task.cancelled():
                        task.result()
                    elif progress.seq > progress.after and call not in progress.held:
                        task.cancel()  # somebody else was first
                self._asking = {call: task for call, task in self._asking.items() if not task.done()}

    def _ask(self, progress: Progress) -> None:
        may_decide = self._turn.sender.caller.may("decide")
        for call, held in progress.held.items():
            if not held.is_callers and call not in self._asking and may_decide:
                self._asking[call] = asyncio.create_task(self._decided(call, held), name=f"asking about {call}")

    async def _decided(self, call: str, held: PendingAnswer) -> None:
        """Ask the caller about a call, and passes the word on. Raises Problem, RetryableError."""
        try:
            answer = await self._stream.ask(_question(held), timeout=_WORD_SECONDS)
        except QueryTimeout as error:
            raise Problem(
                409,
                "busy",
                f"no one has answered; run {self._turn.place.run} waits on: `cadre approve {call}`, or the console",
            ) from error
        except ProtocolError as error:
            raise Problem(422, "invalid-request", f"the answer cannot be read: {error}") from error
        sender = self._turn.sender
        ruling = _ruling(held, answer, sender)
        try:
            await self._runs.decisions.decide(call, ruling, sender.traceparent, sender.caller.titles)
        except Problem as problem:
            if problem.code not in OVERTAKEN:
                raise
            log.info("call %s: %s", call, problem.detail)
            return
        await self._trail.note_decision(sender.caller, sender.name, call, source="nats")


def _question(held: PendingAnswer) -> str:
    request = held.request
    if request.name == ASK_USER:
        return str(request.arguments.get("question", ""))
    arguments = json.dumps(for_people(request.arguments), ensure_ascii=False)
    what = request.name if request.kind == "question" else f"{request.name} {arguments}"
    return "\n".join(
        [
            *([request.text] if request.text else []),
            what[:_MOST_QUESTION_CHARS],
            *([request.reason] if request.reason else []),
            "Reply `approve`; anything else rejects it, and is what the agent reads.",
        ]
    )


def _ruling(held: PendingAnswer, answer: Envelope, sender: DoorSender) -> Ruling:
    """Return the word that the caller's reply says, as people write it; with `arguments` next to it the call is
    corrected."""
    text, arguments = answer.prompt, answer.extras.get("arguments")
    if held.request.name == ASK_USER:
        return said("corrected", sender.name, arguments={"answer": text})
    word = word_in(text)
    if word is None:
        return said("rejected", sender.name, text.strip())
    if arguments is not None and word.verdict == "approved":
        told = {"verdict": "corrected", "arguments": arguments, "feedback": word.feedback}
        return ruling_of(told, sender.name)
    return said(word.verdict, sender.name, word.feedback)
