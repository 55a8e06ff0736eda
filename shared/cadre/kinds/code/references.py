"""Which blobs a run's code may name: those that the run was given, and those that the code has made itself; and
how much its code has used.

Whoever knows a blob's hash could have a tool read it for them otherwise, whosever it is.
"""

import re
from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep
from cadre.kinds.code.records import BlockFinished, BlockYielded, CodeState, CodeStep

_REF = re.compile(r"blob:[0-9a-f]{64}")

_OWN_FORMS = ("bytes", "image", "table", "array", "json")
"""Forms of `{"$given": [form, ref]}` whose bytes the sandbox itself has stored: what code has written itself so
comes under `$dict`."""


def references_in(value: Any) -> list[str]:
    """All references that stand anywhere in a JSON value or record, in texts too, each once."""
    return list(dict.fromkeys(_REF.findall(msgspec.json.encode(value).decode())))


def not_given(state: CodeState, output: Any, references: list[str]) -> str | None:
    """The first reference in an output, or in arguments, of the code that it cannot have; None when there is none.
    `references` are those that came with the answer."""
    found = references_in(output)
    if not found or state.references is None:
        return None
    known = {*state.references, *references, *_own(output)}
    return next((ref for ref in found if ref not in known), None)


def note_use(run: Run, state: CodeState, event: JournalEvent) -> None:
    """Adds to the state what the event gives the run, and what its code has used by it."""
    match event:
        case ev.RunAccepted():
            steps = [
                one.own for one in run.steps if isinstance(one, ActionStep) and isinstance(one.own, CodeStep)
            ]
            state.references = []
            if any(one.references is None and one.snapshot is not None for one in steps):
                state.references = None
            _add(state, [ref for one in steps for ref in one.references or []])
            _add(state, references_in([event.task, event.history, event.prefix]))
        case BlockYielded():
            state.calls += len(event.calls)
            state.stored += event.stored
            _add(state, [*event.references, *_own([call.arguments for call in event.calls])])
        case BlockFinished():
            state.stored += event.stored
            _add(state, [*event.references, *_own(event.output)])
            if (
                run.current is not None
                and isinstance(run.current.own, CodeStep)
                and state.references is not None
            ):
                run.current.own.references = state.references[state.referenced_in_steps :]
                state.referenced_in_steps = len(state.references)
        case (
            ev.ToolAnswered()
            | ev.DelegateFinished()
            | ev.MemoryRecalled()
            | ev.MessageReceived()
            | ev.ApprovalDecided()
            | ev.SignalReceived()
        ):
            _add(state, references_in(event))
        case _:
            pass


def _add(state: CodeState, references: list[str]) -> None:
    if state.references is not None and references:
        state.references = list(dict.fromkeys([*state.references, *references]))


def _own(value: Any) -> list[str]:
    match value:
        case list():
            return [ref for item in value for ref in _own(item)]
        case {"$dict": dict(escaped)} if len(value) == 1:
            return _own(list(escaped.values()))
        case {"$given": [str(form), *refs]} if len(value) == 1 and form in _OWN_FORMS:
            return [ref for ref in refs if isinstance(ref, str)]
        case dict():
            return _own(list(value.values()))
        case _:
            return []
