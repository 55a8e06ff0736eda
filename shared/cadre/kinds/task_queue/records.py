"""Declare the kind `task_queue` and its records."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cadre.journal.parts import Description, JournalEvent, KindState, KindStep
from cadre.kinds.iteration.records import (
    ITERATION_TEMPLATES,
    SYSTEM_TERMS,
    IterationSection,
    JsonFormRefused,
    check_section,
    facts,
)
from cadre.spec.kinds import KindDeclaration, PromptFile
from cadre.spec.names import check_bounds

KIND = "task_queue"

Stage = Literal["initialize", "analyse", "create", "prioritize", "conclude"]
"""The purpose of the next model call."""


class TaskQueueSpec(IterationSection, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The section `task_queue` of an agent's file."""

    initial: int = 3
    """The number of tasks that the queue begins with, at most."""
    most: int = 50
    """The number of tasks of a run, at most."""
    tries: int = 3
    """The number of times that a task, or an answer that cannot be read, is tried before it counts as failed."""
    create: bool = True
    """True if the model may add a task after each that is done."""
    prioritize: bool = True
    """True if the model orders the pending tasks after each that is done."""


def _queue_lines(why: str, pending: Sequence[str], added: Sequence[str]) -> list[str]:
    numbered = [f"  {n}. {task}" + (" (new)" if task in added else "") for n, task in enumerate(pending, 1)]
    return [f"queue, {why}: {len(pending)} pending", *numbered]


class QueueChanged(JournalEvent, frozen=True, tag="queue.changed"):
    """The pending tasks, in their order, as they are from now on."""

    step: int
    reason: Stage
    pending: list[str]
    added: list[str] = []
    """Those among them that are new."""

    def describe(self) -> Description:
        return Description("", _queue_lines(self.reason, self.pending, self.added))


class QueueTaskTried(JournalEvent, frozen=True, tag="queue.task_tried"):
    """The first pending task was tried in vain, and stays the first."""

    step: int
    task: str
    reason: str

    def describe(self) -> Description:
        return Description("", [f"to be tried again: {self.task}: {self.reason}"])


class QueueTaskDone(JournalEvent, frozen=True, tag="queue.task_done"):
    """The first pending task is over."""

    step: int
    task: str
    result: str = ""
    failed: bool = False
    """It was given up; the result says why."""

    def describe(self) -> Description:
        return Description("", [f"{'failed' if self.failed else 'done'}: {self.task}: {self.result}"])


class QueueAnswerRefused(JournalEvent, frozen=True, tag="queue.answer_refused"):
    """An answer about the queue could not be read, and is asked for again, or done without."""

    step: int
    purpose: Stage
    reason: str
    given_up: bool = False

    def describe(self) -> Description:
        what = "is done without" if self.given_up else "is asked for again"
        return Description("", [f"an answer about the queue ({self.purpose}) {what}: {self.reason}"])


class QueueEdited(JournalEvent, frozen=True, tag="queue.edited"):
    """A person has edited the pending tasks: how they are from now on."""

    step: int
    pending: list[str]
    added: list[str] = []
    """Those among them that are new."""

    def describe(self) -> Description:
        return Description("", _queue_lines("edited", self.pending, self.added))


class DoneTask(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task that is over."""

    task: str
    result: str = ""
    failed: bool = False


class QueueState(KindState, kw_only=True, tag=KIND, omit_defaults=True):
    """The queue of a run."""

    stage: Stage = "initialize"
    pending: list[str] = []
    done: list[DoneTask] = []
    tries: int = 0
    """Of the first pending task, or of the answer about the queue that is asked for."""
    made: int = 0
    """Tasks that were ever put into the queue."""
    form: str = ""
    """The form in which JSON is asked for, once the endpoint has refused a form; "": as the spec says."""
    version: int = 0
    """Counts up with every change of the tasks: an edit names the one that it is based on."""


class QueueStep(KindStep, kw_only=True, tag=KIND, omit_defaults=True):
    """The subject of a step, and what it made of the queue: a fork rebuilds the queue from these."""

    stage: Stage
    task: str = ""
    question: str | None = None
    """The question that the model thought through, in a step that it thought in."""
    thought: str | None = None
    events: list[QueueChanged | QueueTaskTried | QueueTaskDone | QueueAnswerRefused | QueueEdited] = []

    def lines(self) -> list[str]:
        return [line for event in self.events for line in event.describe().lines]


def queue_of(spec: Any) -> TaskQueueSpec:
    """The section of an agent's spec."""
    return spec.section(TaskQueueSpec) or TaskQueueSpec()


def _check(spec: Any) -> None:
    section = queue_of(spec)
    check_section(spec, KIND, section)
    bounds = [(f"{KIND}.{key}", getattr(section, key), 1) for key in ("initial", "most", "tries")]
    check_bounds(spec.name, bounds)


DECLARATION = KindDeclaration(
    name=KIND,
    behavior={1: "cadre.kinds.task_queue.kind:TASK_QUEUE"},
    prompts={
        KIND: PromptFile(
            must=SYSTEM_TERMS,
            may="think output_schema",
            lists=("goals", "constraints", "pending", "done"),
            templates={
                **ITERATION_TEMPLATES,
                "queue.initialize": ("goals most", "constraints instructions offered"),
                "queue.analyse": ("task pending done", ""),
                "queue.create": ("goals task result pending done", ""),
                "queue.prioritize": ("goals pending done", ""),
                "queue.conclude": ("goals done", "output_schema"),
            },
            like="tool_calling",
            has_short=False,
        )
    },
    purposes={
        "initialize": "making the first tasks",
        "analyse": "deciding how to do a task",
        "create": "looking for a further task",
        "prioritize": "ordering the tasks",
        "conclude": "writing the answer",
        "think": "thinking a question through",
    },
    records=(
        *(QueueChanged, QueueTaskTried, QueueTaskDone, QueueAnswerRefused, QueueEdited, JsonFormRefused),
        *(QueueState, QueueStep, TaskQueueSpec),
    ),
    check=_check,
    facts=lambda spec: facts(spec, queue_of(spec)),
)
