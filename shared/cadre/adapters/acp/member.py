"""A program as a member of a team: its tasks, each with its own process."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from cadre.adapters.acp.task_store import TaskRecord, TaskStore
from cadre.adapters.acp.work import PROMPTS, Launch, ProgramTask, Terms
from cadre.adapters.mcp.server_file import read_servers
from cadre.adapters.remote_agent_tools import RemoteMessage, name_of
from cadre.adapters.secret_references import References
from cadre.errors import SetupError
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import ProgramSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted
from cadre.tools.files import File

_MOST_INLINE_BYTES = 32 * 1024
_MOST_AT_THE_END = 400
_GRACE_SECONDS = 60.0
"""The time that a process may outlive its run if nothing ends it."""


class Member:
    """The tasks of one program (`RemoteTasks`). What is known of them outlives this process; the program's processes do
    not."""

    def __init__(self, spec: AgentSpec, program: ProgramSpec, folder: Path) -> None:
        """`folder` is what paths of the file are relative to."""
        self._spec = spec
        self._program = program
        self._folder = folder
        self._workspace = (folder / program.workspace).resolve()
        self._store = TaskStore(folder / (program.state or Path(".cadre", "members", spec.name)))
        self._works: dict[str, ProgramTask] = {}
        seconds = spec.limits.seconds
        self._terms = Terms(
            name=spec.name,
            permissions=program.permissions,
            seconds=seconds + _GRACE_SECONDS if seconds is not None else None,
            launch=self._launch,
            save=self._store.write,
            places=asyncio.Semaphore(program.concurrency),
        )

    def check(self) -> None:
        """Raise SetupError for what is not there."""
        if not self._workspace.is_dir():
            raise SetupError(f"{self._spec.name}: workspace: there is no folder {self._workspace}")
        self._launch()

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Take a message: a task, or a person's word to the task that waits for it. Raises CallInterrupted."""
        work = self._work(message.task_id or message.id)
        if work is None:
            if message.task_id or not self._store.is_mine():
                return self._elsewhere()
            if ctx.deliveries > 1:
                raise CallInterrupted(f"the sender of {self._spec.name} a task has died of it or been stopped")
            work = await self._begin(ctx, message)
        elif message.id not in work.record.messages:
            work.record.messages.append(message.id)
            for one in message.data:
                is_yes, feedback = one.get("verdict") == "approved", str(one.get("feedback") or "")
                work.rule(str(one.get("call")), is_yes=is_yes, feedback=feedback)
        work.go_on()
        return self._told(work)

    async def look(self, _: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Return what has become of a task, and what was done of it `after` a cursor. Raises CallInterrupted."""
        work = self._work(task)
        if work is None:
            return self._elsewhere()
        work.go_on()
        found = self._told(work)
        if work.record.phase != "over":
            activity, cursor = work.activity.since(after)
        else:
            activity, cursor = work.activity.since(after, _MOST_AT_THE_END)
            self._works.pop(task, None)
        return {**found, "activity": activity, "cursor": cursor}

    async def cancel(self, _: ToolContext, task: str) -> dict[str, Any]:
        """End a task."""
        work = self._work(task)
        if work is None:
            return self._elsewhere()
        if work.record.phase not in ("over", "unknown"):
            await work.cancel()
        return {**_about(work), "state": work.record.end.get("state") or "canceled"}

    def _work(self, task: str) -> ProgramTask | None:
        """Return the task, if this process has it or can take it over."""
        if not self._store.is_mine():
            return None
        if task not in self._works and (record := self._store.read(task)) is not None:
            self._works[task] = ProgramTask(record, self._terms)
        return self._works.get(task)

    def _elsewhere(self) -> dict[str, Any]:
        return {"lost": f"another process of {self._spec.name} has its tasks"}

    def _told(self, work: ProgramTask) -> dict[str, Any]:
        """Return the fields of the `RemoteTask`. Raises CallInterrupted when they cannot be known."""
        record, about = work.record, _about(work)
        match record.phase:
            case "unknown":
                raise CallInterrupted(
                    f"outcome unknown: {self._spec.name} was interrupted in its task ({record.end.get('said')}) and"
                    " cannot open its session again; it may or may not have done its work, and was not asked again"
                )
            case "over" if record.end["state"] == "completed":
                return {**about, **record.end, "answer": self._answer(record.answer)}
            case "over":
                return {**about, **record.end}
            case "asking":
                asked = [msgspec.to_builtins(one) for one in record.asked]
                said = f"{self._spec.name} asks for permission:"
                return {**about, "state": "input_required", "said": said, "asked": asked}
            case phase:
                return {**about, "state": "submitted" if phase == "queued" else "working"}

    def _answer(self, text: str) -> Any:
        if len(text.encode()) > _MOST_INLINE_BYTES:
            return File(text.encode(), name="answer.txt", media_type="text/plain")
        if self._spec.output_schema is None:
            return text
        inner = text.removeprefix("```json").removeprefix("```").removesuffix("```")
        try:
            return msgspec.json.decode(inner)
        except msgspec.DecodeError:
            return text  # which the check of the answer refuses

    # --- how it begins

    async def _begin(self, ctx: ToolContext, message: RemoteMessage) -> ProgramTask:
        task, (texts, files) = message.id, message.in_words()
        if self._spec.output_schema is not None:
            schema = msgspec.json.encode(self._spec.output_schema).decode()
            texts.append(PROMPTS["schema"].format(schema=schema))
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "\n\n".join(texts) or " "}]
        for number, file in enumerate(files, 1):
            await ctx.fetch(file)
            place = self._store.files_of(task) / f"{number}-{name_of(file, number)}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.data)
            about = {"name": place.name, "uri": place.as_uri(), "media_type": file.media_type}
            blocks.append({"type": "file", **about})
        folder = self._workspace / ctx.run if self._program.folder_per_run else self._workspace
        folder.mkdir(exist_ok=True)
        record = TaskRecord(task=task, blocks=blocks, folder=str(folder), messages=[task])
        self._store.write(record)
        self._works[task] = ProgramTask(record, self._terms)
        return self._works[task]

    def _launch(self) -> Launch:
        """Raise SetupError."""
        program, references = self._program, References(self._folder, self._spec.name)
        environment = {
            name: references.resolve(f"environment.{name}", text) for name, text in program.environment.items()
        }
        first, *rest = program.command
        near = str(self._folder / first) if os.sep in first else first
        found = shutil.which(near, path=environment.get("PATH"))
        if found is None:
            raise SetupError(f"{self._spec.name}: the command {first!r} is not found")
        servers = read_servers(str(self._folder / program.mcp_servers)) if program.mcp_servers else []
        return Launch(
            command=[os.path.abspath(found), *rest],
            environment=environment,
            servers=[(one.name, one.endpoint()) for one in servers],
            hide=references.hide,
        )


def _about(work: ProgramTask) -> dict[str, Any]:
    return {"task": work.record.task, "usage": msgspec.to_builtins(work.usage())}
