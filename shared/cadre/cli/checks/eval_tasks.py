"""Tasks for `cadre eval` that somebody has written down: what is asked, what tools answer, what a good answer is."""

from pathlib import Path
from typing import Any

import msgspec

from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.protocol.messages import ErrorInfo, Task
from cadre.spec.yaml_file import misfit_of, read_yaml
from cadre.testing.kept_run import KeptRun, RunOutcome


class WrittenCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a call of a tool is answered with."""

    tool: str
    arguments: dict[str, Any] = {}
    output: Any = None
    error: str | None = None


class WrittenTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of the file."""

    agent: str
    task: str
    name: str = ""
    inputs: dict[str, Any] = {}
    answer: Any = None
    """A good answer; None: any that the agent's own checks and schema take."""
    calls: list[WrittenCall] = []


def is_tasks_file(path: Path) -> bool:
    """Whether the file is one of tasks, by its name."""
    return path.suffix in (".yaml", ".yml")


def read_tasks(file: Path) -> list[tuple[str, KeptRun]]:
    """The tasks as runs to be tried, each with its name. Raises SpecError with the key and what is expected there."""
    try:
        found = read_yaml(file, SpecError)
        if not isinstance(found, list) or not found:
            raise SpecError(f"{file}: is no list of tasks: each begins with `- agent: NAME` and has a `task`")
        written = msgspec.convert(found, list[WrittenTask])
    except msgspec.ValidationError as error:
        raise SpecError(f"{file}: {misfit_of(error)}") from error
    return [
        (one.name or f"{file.stem}-{number}", _case(f"task{number}", one))
        for number, one in enumerate(written, start=1)
    ]


def _case(run: str, one: WrittenTask) -> KeptRun:
    task = Task(
        id=f"{run}:task",
        tree=run,
        run=run,
        at=0.0,
        agent=one.agent,
        task=one.task,
        inputs=one.inputs,
    )
    calls = [
        (
            ev.ToolCalled(call=f"{run}_{number}", tool=call.tool, arguments=call.arguments),
            ev.ToolAnswered(
                call=f"{run}_{number}",
                tool=call.tool,
                output=call.output,
                error=ErrorInfo("tool-failed", call.error) if call.error is not None else None,
            ),
        )
        for number, call in enumerate(one.calls)
    ]
    known = RunOutcome(state="success", output=one.answer) if one.answer is not None else None
    return KeptRun(task=task, outcome=known, calls=calls)
