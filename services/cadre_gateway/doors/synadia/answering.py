"""The answer to a prompt: what the team does, the calls that wait for a word of the caller, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

from synadia_ai.agent_service import PromptStream
from synadia_ai.agents import Envelope, ProtocolError, QueryTimeout, StatusChunk

from cadre.protocol.tagged import for_people
from cadre_gateway.access.audit import AuditTrail
from cadre_gateway.doors.following import Answers, check_success
from cadre_gateway.doors.progress import PendingAnswer, Progress, answer_text
from cadre_gateway.doors.rulings import ASK_USER, OVERTAKEN, ruling_of, said, word_in
from cadre_gateway.doors.sender import DoorSender, RunService
from cadre_gateway.doors.synadia.admission import AdmittedPrompt, rejected, turn_of_prompt
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

log = logging.getLogger("cadre.gateway")

_WORD_SECONDS = 600.0
"""How long a caller is waited for that was asked; then it is taken to have gone."""
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
        """Answers the prompt that was taken (`synadia_ai.agent_service.PromptHandler`). Raises RequestRejectedError."""
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
        """Tells what the team does and asks what it waits for, until the run has ended. Raises Problem,
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
                self._asking[call] = asyncio.create_task(
                    self._decided(call, held), name=f"asking about {call}"
                )

    async def _decided(self, call: str, held: PendingAnswer) -> None:
        """Asks the caller about a call, and passes the word on. Raises Problem, RetryableError."""
        try:
            answer = await self._stream.ask(_question(held), timeout=_WORD_SECONDS)
        except QueryTimeout as error:
            raise Problem(
                409,
                "busy",
                f"nobody has answered; run {self._turn.place.run} waits on: `cadre approve {call}`, or the console",
            ) from error
        except ProtocolError as error:
            raise Problem(422, "invalid-request", f"the answer cannot be read: {error}") from error
        sender = self._turn.sender
        ruling = _ruling(held, answer, sender)
        try:
            await self._runs.decisions.decide(call, ruling, sender.traceparent)
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
            what[:_MOST_QUESTION_CHARS],
            *([request.reason] if request.reason else []),
            "Reply `approve`; anything else rejects it, and is what the agent reads.",
        ]
    )


def _ruling(held: PendingAnswer, answer: Envelope, sender: DoorSender) -> Ruling:
    """The word that the caller's reply says, as people write it; with `arguments` beside it the call is corrected."""
    text, arguments = answer.prompt, answer.extras.get("arguments")
    if held.request.name == ASK_USER:
        return said("corrected", sender.name, arguments={"answer": text})
    word = word_in(text)
    if word is None:
        return said("rejected", sender.name, text.strip())
    if arguments is not None and word.verdict == "approved":
        told = {"decision": "correct", "arguments": arguments, "feedback": word.feedback}
        return ruling_of(told, sender.name)
    return said(word.verdict, sender.name, word.feedback)
