"""Find the run that a message of A2A is for: begin a run, decide on its calls, or pass the message on to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from cadre.protocol.messages import CallerTerms, Task
from cadre.spec.names import NAME
from cadre_gateway.access.principal import Principal
from cadre_gateway.doors.a2a.objects import CONTEXT, SentMessage, content_of, context_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.messages import MessageContent
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.doors.rulings import ASK_USER, ruling_of, said, word_in
from cadre_gateway.doors.sender import DoorSender, RunService, begin_run, known_run, short_hash
from cadre_gateway.requests.body import Ruling, Submission
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid

_HOW = (
    "answer it with a data part {call, decision: approve | reject | correct, arguments, feedback} for each call, or"
    " with `approve` or `reject: why` as text"
)


@dataclass(frozen=True)
class Messages:
    """Brings messages to runs. Every method raises Problem, RetryableError."""

    runs: RunService
    answers: Answers

    async def place_of(self, agent: str, sent: SentMessage, sender: DoorSender) -> Place:
        """Return where the answer to the message is told; the same message, sent again, finds the place that it had
        before."""
        content = content_of(sent)
        if sent.task_id:
            return await self._go_on(agent, sent, content, sender)
        return await self._begin(agent, sent, content, sender)

    async def _begin(
        self, agent: str, sent: SentMessage, content: MessageContent, sender: DoorSender
    ) -> Place:
        key = _key_of(sent, sender)
        if (known := await known_run(self.runs, sender.caller, agent, key)) is not None:
            return known
        named = NAME.fullmatch(sent.context_id) is not None
        unnamed = short_hash(sent.context_id) if sent.context_id else key.run_of(agent)
        session = sent.context_id if named else f"a2a-{unnamed}"
        arguments: dict[str, Any] = {}
        for data in content.data:
            arguments |= data if isinstance(data, dict) else {"data": data}
        text = content.text or ("Do what the additional arguments say." if arguments else "")
        wanted = Submission(
            agent=agent,
            task=text,
            inputs=arguments,
            images=content.images,
            files=content.files,
            session=session,
        )
        terms = CallerTerms(
            metadata={CONTEXT: sent.context_id} if sent.context_id not in ("", session) else {}
        )
        return await begin_run(self.runs, sender, wanted, key, terms)

    async def _go_on(
        self, agent: str, sent: SentMessage, content: MessageContent, sender: DoorSender
    ) -> Place:
        """Brings words to a run that waits for them, or a message to one that works."""
        task = await task_of(self.runs, sender.caller, agent, sent.task_id)
        if sent.context_id and sent.context_id != context_of(task):
            raise invalid(
                f"contextId: task {sent.task_id} is not in the context {sent.context_id!r}: leave it out, or"
                f" name {context_of(task)!r}"
            )
        progress = await self.answers.so_far(Place(sent.task_id))
        rulings = _rulings(content, progress, sender)
        if rulings:
            if not sender.caller.may("decide"):
                raise Problem(
                    403,
                    "forbidden",
                    "this key may not decide on calls: somebody with the role `approver` does",
                )
            for call, ruling in rulings.items():
                await self.runs.decisions.decide(call, ruling, sender.traceparent)
            return Place(progress.run, progress.place_behind(set(rulings)))
        if (place := _said_before(content, progress)) is not None:
            return place
        if progress.questions:
            raise invalid(f"task {sent.task_id} waits for a person: {_HOW}")
        text = content.text or msgspec.json.encode(content.data).decode()
        key = _key_of(sent, sender)
        await self.runs.steering.tell(progress.run, text, "interrupt", key, sender.name)
        return Place(progress.run, progress.seq)


async def task_of(runs: RunService, caller: Principal, agent: str, run: str) -> Task:
    """Return the task that began a root run of the agent. Raise a 404 problem for one that is not there, is another
    agent's, or that the caller does not reach; RetryableError."""
    await runs.reach.check(caller, "tree", run)
    async with answer_deadline():
        await runs.lookup.find(run)
        task = await runs.history.task(run, run)
    if task is None or task.agent != agent:
        raise Problem(404, "unknown-run", f"agent {agent!r} has no task {run!r}")
    return task


def _key_of(sent: SentMessage, sender: DoorSender) -> IdempotencyKey:
    """The same for the same message of the same sender; the digest tells what it says."""
    told = msgspec.json.encode([sent.parts, sent.context_id, sent.task_id])
    return sender.key("a2a", sent.message_id, told)


def _rulings(content: MessageContent, progress: Progress, sender: DoorSender) -> dict[str, Ruling]:
    """Return what the message says of calls that wait, or have waited; empty when it says nothing of them."""
    told = {
        call: held for pause in progress.pauses for call, held in pause.held.items() if not held.is_callers
    }
    found = {}
    for data in content.data:
        if isinstance(data, dict) and isinstance(call := data.get("call"), str):
            if call not in told:
                raise invalid(f"task {progress.run} has asked for no call {call!r}")
            found[call] = ruling_of(data, sender.name)
    asked = progress.questions
    if found or not content.text or not asked:
        return found
    word = word_in(content.text)
    for call, held in asked.items():
        if held.request.name == ASK_USER:
            found[call] = said("corrected", sender.name, arguments={"answer": content.text})
        elif word is not None:
            found[call] = said(word.verdict, sender.name, word.feedback)
    return found


def _said_before(content: MessageContent, progress: Progress) -> Place | None:
    """The place of a word in text that came before: no call waits any more, or this very answer was given."""
    if not progress.pauses or progress.questions:
        return None
    answers = [ruled.arguments for ruled in progress.decided.values()]
    if word_in(content.text) is None and {"answer": content.text} not in answers:
        return None
    return Place(progress.run, progress.pauses[-1].seq)
