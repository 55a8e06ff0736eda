"""The prompts of one agent as tasks: begun, looked after, answered, given up."""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

import msgspec
from synadia_ai.agents import Attachment, Envelope, encode

from cadre.adapters.remote_agent_tools import RemoteMessage, name_of
from cadre.adapters.synadia.exchanges import Exchanges
from cadre.adapters.synadia.link import AgentAbsent, AgentRefused, Link
from cadre.adapters.synadia.transcript import PromptTranscript
from cadre.errors import SetupError
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.spec.yaml_file import read_yaml
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted

_WORDS: dict[str, str] = read_yaml(files("cadre") / "prompts" / "members" / "acp.yaml", SetupError)
_ACK_SECONDS = 30.0
"""An agent says at once that it has a prompt; one that was silent for so long may never have got it."""
_MOST_ATTEMPTS = 3
_NO = "reject"


class PromptedTasks:
    """The tasks of one agent (`RemoteTasks`). Methods raise AgentRefused too; nothing that they need is in this process
    alone."""

    def __init__(self, spec: AgentSpec, section: RemoteSpec, link: Link, prefix: str) -> None:
        self._name = spec.name
        self._schema = spec.output_schema
        self._section = section
        self._exchanges = Exchanges(spec.name, prefix, link)

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Prompts the agent, or answers what it has asked. Raises CallInterrupted."""
        if message.task_id:
            return await self._answer(message)
        return await self._begin(ctx, message)

    async def _begin(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        task, envelope = message.id, await self._envelope(ctx, message)
        has_files = bool(envelope.attachments)
        try:
            await self._exchanges.prompt(task, encode(envelope), ctx.traceparent, has_files=has_files)
            return self._with_activity(task, await self._exchanges.read(task), 0)
        except AgentAbsent as error:
            return {"lost": str(error)}

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Reads what the agent has said behind the cursor. Raises CallInterrupted when nobody can know more."""
        try:
            known = await self._exchanges.read(task)
            if known.is_begun and not known.is_over and not known.queries:
                await self._bear_silence(task, known, ctx.traceparent)
                known = await self._exchanges.read(task)
        except AgentAbsent as error:
            return {"lost": str(error)}
        return self._with_activity(task, known, int(after) if after.isdecimal() else 0)

    async def _answer(self, message: RemoteMessage) -> dict[str, Any]:
        task = message.task_id
        words = message.text or "\n".join(msgspec.json.encode(value).decode() for value in message.data)
        try:
            await self._exchanges.reply(task, await self._exchanges.read(task), message.id, words)
            return self._told(task, await self._exchanges.read(task))
        except AgentAbsent as error:
            return {"lost": str(error)}

    async def cancel(self, _: ToolContext, task: str) -> dict[str, Any]:
        """Turns down what the agent asks. It hears of no end: the protocol has no word for one."""
        try:
            known = await self._exchanges.read(task)
            for query in [*known.queries]:
                await self._exchanges.reply(task, known, f"cancel-{query}", _NO)
                known.queries.pop(query, None)
        except AgentAbsent as error:
            return {"lost": str(error)}
        return {"task": task, "state": "canceled"}

    def _with_activity(self, task: str, known: PromptTranscript, after: int) -> dict[str, Any]:
        """Also of a task that was over when it was first looked at: an agent may be quicker than who asks it."""
        return {**self._told(task, known), "activity": known.activity(after), "cursor": str(known.seq)}

    def _told(self, task: str, known: PromptTranscript) -> dict[str, Any]:
        if not known.is_begun:
            return {"lost": f"{self._name} was not prompted yet"}
        if known.is_over:
            end = known.end()
            if self._schema is not None and isinstance(end.get("answer"), str):
                end["answer"] = _as_json(end["answer"])
            return {"task": task, **end}
        if known.queries:
            asked = next(iter(known.queries.values()))
            return {"task": task, "state": "input_required", "said": asked.prompt}
        return {"task": task, "state": "working" if known.has_spoken else "submitted"}

    async def _bear_silence(self, task: str, known: PromptTranscript, traceparent: str) -> None:
        """Waits on, or prompts an agent again that may be. Raises CallInterrupted, AgentAbsent."""
        most, quiet = self._section.absence if known.has_spoken else _ACK_SECONDS, self._exchanges.quiet(task)
        if quiet < min(most, self._section.absence):
            return
        if not self._section.idempotent:
            raise CallInterrupted(
                f"outcome unknown: {self._name} has said nothing for {quiet:.0f} s; it may or may not have done its"
                " work, and was not asked again"
            )
        if known.attempts >= _MOST_ATTEMPTS:
            raise AgentRefused(f"{self._name} was prompted {known.attempts} times and fell silent each time")
        envelope = msgspec.json.decode(known.envelope)
        await self._exchanges.attempt(
            task, known, known.envelope, traceparent, has_files="attachments" in envelope
        )

    async def _envelope(self, ctx: ToolContext, message: RemoteMessage) -> Envelope:
        texts, found = message.in_words()
        if self._schema is not None:
            texts.append(_WORDS["schema"].format(schema=msgspec.json.encode(self._schema).decode()))
        attached = []
        for number, file in enumerate(found, 1):
            await ctx.fetch(file)
            content = base64.b64encode(file.data).decode()
            attached.append(Attachment(filename=name_of(file, number), content=content))
        return Envelope(prompt="\n\n".join(texts) or " ", attachments=attached or None)


def _as_json(text: str) -> Any:
    inner = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        return msgspec.json.decode(inner)
    except msgspec.DecodeError:
        return text  # which the check of the answer refuses
