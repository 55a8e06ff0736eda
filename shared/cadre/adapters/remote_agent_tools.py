"""The tools for working with agents of other makes over any protocol: one sends them messages, one asks for a task, one
ends it."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from cadre.protocol.a2a import cancel_tool, get_tool, send_tool
from cadre.protocol.files import decode_data_url
from cadre.protocol.tagged import for_people
from cadre.tools.context import ToolContext
from cadre.tools.decorator import Tool, ToolOptions, tool
from cadre.tools.files import FILE_KEY, File


class RemoteMessage(NamedTuple):
    """A message to an agent of another make."""

    id: str
    """The same however often it is sent."""
    text: str
    data: list[Any]
    """The message's values, files among them."""
    images: list[str]
    """References of images."""
    task: dict[str, str]
    """The ids `taskId` and `contextId` of the task that it is about; empty: it begins one."""

    @property
    def task_id(self) -> str:
        """Empty in a message that begins a task."""
        return self.task.get("taskId", "")

    def in_words(self) -> tuple[list[str], list[File]]:
        """Return the message for an agent that reads text: its paragraphs, and the files that go with it, not fetched
        yet."""
        files: list[File] = []
        texts = [self.text] if self.text else []
        for value in self.data:
            texts.append(msgspec.json.encode(for_people(without_files(value, files))).decode())
        for image in self.images:
            try:
                content = decode_data_url(image)
            except ValueError as error:
                texts.append(f"An image could not be read: {error}")
                continue
            if content is not None:
                files.append(File(content.data, media_type=content.media_type))
            elif image.startswith("blob:"):
                files.append(File.from_json(image))
            else:
                texts.append(f"Image: {image}")
        return texts, files


def name_of(file: File, number: int) -> str:
    """Return a file's own name, else a name made of its number and its type."""
    sort = "image" if file.media_type.startswith("image/") else "file"
    return Path(file.name).name or f"{sort}-{number}{mimetypes.guess_extension(file.media_type) or ''}"


class RemoteTasks(Protocol):
    """The tasks at one agent. Every method returns the fields of a `RemoteTask`, or why the agent is `lost`, and raises
    CallInterrupted when the state of the task cannot be known."""

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Begin a task with the message, or goes on with the one that it names."""
        ...

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Return what has become of a task, and what was done of it behind the cursor."""
        ...

    async def cancel(self, ctx: ToolContext, task: str) -> dict[str, Any]:
        """End a task, as far as the protocol has a word for that."""
        ...


def make_tools(agent: str, protocol: str, tasks: RemoteTasks | None, timeout_seconds: float) -> list[Tool[..., Any]]:
    """Return the tools of the agent; without `tasks` they can be listed, not called."""
    labels = {protocol: agent}

    def served() -> RemoteTasks:
        assert tasks is not None, "the tools were made to be listed"
        return tasks

    sends: ToolOptions = {"name": send_tool(agent), "idempotent": True, "timeout": timeout_seconds}
    sends |= {"labels": labels, "does": "send", "to": [], "text": ["text", "data"]}

    @tool(**sends)
    async def send_message(
        message_id: str,
        ctx: ToolContext,
        text: str = "",
        data: list[Any] = [],  # noqa: B006 - read only
        images: list[str] = [],  # noqa: B006
        task: dict[str, str] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """Sends a message to an agent of another make, which begins a task or goes on with one.

        Args:
            message_id: The same however often the message is sent.
            text: What it says.
            data: What it says as values; files among them are sent as files.
            images: References of images.
            task: The ids `taskId` and `contextId` of the task that it is about; without them it begins one.
        """
        return await served().send(ctx, RemoteMessage(message_id, text, data, images, task))

    @tool(name=get_tool(agent), read_only=True, timeout=timeout_seconds, labels=labels)
    async def get_task(task_id: str, ctx: ToolContext, after: str = "") -> dict[str, Any]:
        """Asks an agent of another make what has become of a task.

        Args:
            task_id: The task, as that agent names it.
            after: What was told up to this cursor is not told again.
        """
        return await served().look(ctx, task_id, after)

    @tool(name=cancel_tool(agent), idempotent=True, timeout=timeout_seconds, labels=labels, does="read")
    async def cancel_task(task_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Ends a task of an agent of another make.

        Args:
            task_id: The task, as that agent names it.
        """
        return await served().cancel(ctx, task_id)

    return [send_message, get_task, cancel_task]


def without_files(value: Any, files: list[File]) -> Any:
    """Return the value with the name of each file in its place; the files themselves are added to `files`."""
    if isinstance(value, list):
        return [without_files(item, files) for item in value]
    if isinstance(value, dict) and value.keys() == {FILE_KEY}:
        files.append(File.from_json(value))
        return files[-1].name or files[-1].info.ref
    return {key: without_files(item, files) for key, item in value.items()} if isinstance(value, dict) else value
