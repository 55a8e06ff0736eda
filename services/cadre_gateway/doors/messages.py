"""Hold what a client's message says, and the conversation before the present message."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from cadre.protocol.messages import Task
from cadre.protocol.policy import Standing
from cadre_gateway.doors.progress import Progress, answer_text


class MessageContent(msgspec.Struct):
    """The content of a message."""

    text: str = ""
    images: list[str] = []
    files: dict[str, str] = {}
    """`data:` URLs by name."""
    data: list[Any] = []
    """Values in addition to the text."""


_CONTENT = ("role", "text", "images", "files", "data")
"""Keys of a message that its content fills."""

ARGUMENT = "conversation"
"""The argument by which a run is given the history."""
TOLD = "cadre.told"
"""The key in the metadata of a run's terms under which they keep the mark of all that its client had said when the run
began. A client's history that begins with the same words is about this run."""


def add_file(files: dict[str, str], name: str, data: str) -> str:
    """Add a file, under another name if another one has this; return its name."""
    kept, number = name, 1
    while files.get(kept, data) != data:
        number += 1
        kept = f"{number}-{name}"
    files[kept] = data
    return kept


class ToldHistory:
    """Messages in their order, with the images and files in them. Nothing of what the client sends is left out."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        """Each with its `role` and `text`; `images` are numbers, from 1, into those of the task."""
        self.images: list[str] = []
        self.files: dict[str, str] = {}
        """`data:` URLs by name."""
        self._marks: list[str] = []
        """Of each message, one that stands for it and all before it."""

    def __bool__(self) -> bool:
        return bool(self.said)

    def add(self, role: str, content: MessageContent, *, after_task: bool = False, **more: Any) -> None:
        """Add the next message; `more` holds its other fields besides the content, and empty ones are left out.
        `after_task` is true if the message comes after the one that the run receives as its task."""
        entry: dict[str, Any] = {"role": role, "text": content.text}
        if content.images:
            first = len(self.images) + 1
            entry["images"] = list(range(first, first + len(content.images)))
            self.images += content.images
        if content.files:
            entry["files"] = [self._keep(name, data) for name, data in content.files.items()]
        if content.data:
            entry["data"] = content.data
        entry |= {name: value for name, value in more.items() if value}
        if not content.text and len(entry) == len(("role", "text")):
            return
        self._marks.append(self.mark(role, content, **more))
        self.said.append(entry | ({"after_task": True} if after_task else {}))

    def extend(self, later: ToldHistory) -> None:
        """Add the messages of another history behind these."""
        for one in later.said:
            more = {name: value for name, value in one.items() if name not in _CONTENT}
            images = [later.images[number - 1] for number in one.get("images", ())]
            files = {name: later.files[name] for name in one.get("files", ())}
            self.add(one["role"], MessageContent(one["text"], images, files, one.get("data", [])), **more)

    def bring(self, found: Mapping[str, tuple[str, str]]) -> None:
        """Put names and contents in the place of what stands for files: by that, the name and the reference."""
        self.images = [found[one][1] if one in found else one for one in self.images]
        files, names = self.files, dict[str, str]()
        self.files = {}
        for name, ref in files.items():
            of_file, content = found.get(ref, (name, ref))
            names[name] = self._keep(of_file if name == ref else name, content)
        for one in self.said:
            if "files" in one:
                one["files"] = [names[name] for name in one["files"]]

    def mark(self, role: str, content: MessageContent, **more: Any) -> str:
        """Return what stands for all messages with this one behind them."""
        before = self._marks[-1] if self._marks else ""
        more = {name: value for name, value in more.items() if value}
        said = msgspec.json.encode([before, role, content, more], order="sorted")
        return hashlib.sha256(said).hexdigest()[:32]

    def standing(self, *own: str) -> Standing | None:
        """Return what policies take from a task of these words of the client, and of the conversation before it: what
        agents and tools said in that is no word of the user's. None if there is no such message."""
        others = [one for one in self.said if one["role"] in ("assistant", "tool", "function")]
        if not others:
            return None
        said = [one["text"] for one in self.said if one not in others]
        return Standing(source=ARGUMENT, asked=[*said, *(text for text in own if text)], has_read=True)

    @property
    def last_answer(self) -> str:
        """Return the last answer that the client received; "" at the beginning."""
        told = (one["text"] for one in reversed(self.said) if one["role"] == "assistant" and one["text"])
        return next(told, "")

    @property
    def calls(self) -> set[str]:
        """Return the ids of all calls in the conversation."""
        return {call["id"] for one in self.said for call in one.get("calls", ()) if call.get("id")}

    @property
    def results(self) -> dict[str, str]:
        """Return the results of functions in the conversation, by call; of two of one call the last one counts."""
        return {one["call"]: one["text"] for one in self.said if one["role"] == "tool" and one.get("call")}

    def ends_with(self, task: Task, progress: Progress) -> bool:
        """Return whether the history ends with what the run of this task has said: it begins with the very words with
        which the run began, and its last answer is the run's, or names a call that the run has asked about. If
        messages were edited, left out or answered again, it is another conversation."""
        told = self.last_answer
        if any(call in told for pause in progress.pauses for call in pause.held):
            return True
        if task.terms.metadata.get(TOLD) not in self._marks:
            return False
        if progress.end is None:
            return True
        output = progress.end.output
        return told.split() == (answer_text(output).split() if output is not None else [])

    def _keep(self, name: str, data: str) -> str:
        return add_file(self.files, name, data)
