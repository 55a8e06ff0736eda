"""Fold events into the facts of a run whose calls have rules."""

import copy
import re
from typing import Any

import msgspec

from cadre.engine.answers.json_text import UNREADABLE, decode_text
from cadre.engine.kind import kind_of
from cadre.engine.policies.origins import as_value, field_of, leaves, normalized, numbers_in, stands_in
from cadre.engine.policies.rules import counted, kind_of_call, may_rule_below
from cadre.journal import events as ev
from cadre.journal.facts import HeardText, MetValues, ValuePlace, WrittenText
from cadre.journal.run import ActionStep, MessageStep, Run, TaskStep
from cadre.protocol.cards import EFFECTS
from cadre.protocol.policy import PLAN_TOOLS

_SENTENCE_END = re.compile(r"(?<=[\w)])([.!?])(?=[A-Z][a-z])")

_MADE_NOTHING = ("tool-failed", "invalid-call", "cancelled", "not-called", "away")
"""Codes of errors after which a call does not count."""


def begin_facts(run: Run) -> None:
    """Have the run know what people wrote and what it has read, if rules hold in it, or may hold in runs below it."""
    task, spec = run.task, run.spec
    if task is None or spec is None or not (run.policies or may_rule_below(run)):
        return
    facts = MetValues()
    run.facts = facts
    standing = task.standing
    delegated = task.reply_to is not None or (task.forks is not None and task.forks.delegated)
    if standing is not None:
        _ask(facts, standing.asked)
        facts.passed = {one.value: one for one in standing.values}
        facts.may_plan = standing.plan is None
        facts.has_read = standing.has_read or standing.plan is not None
        facts.plan = standing.plan
    source = standing.source if standing is not None else ""
    if delegated or source:
        _hear(run, facts, run.id, source or "task", {"task": task.task, "inputs": task.inputs})
    else:
        _ask(facts, task.task)
        _ask(facts, task.inputs)
    if not kind_of(run).guided:
        written = leaves(msgspec.to_builtins(spec.sections))
        facts.listed = {value for _, one in written if (value := as_value(one)) is not None}
    own = max(place for place, step in enumerate(run.steps) if isinstance(step, TaskStep))
    for place, step in enumerate(run.steps):
        match step:
            case TaskStep() if place == own:
                pass
            case TaskStep(delegated=False, asked=None):
                _ask(facts, step.task)
            case TaskStep(asked=list()):
                _ask(facts, step.asked)
                _hear(run, facts, run.id, "task", step.task, of_field=False)
                facts.has_read = True
            case MessageStep():
                _ask(facts, step.text)
            case ActionStep():
                facts.has_read = True
                for call in step.calls:
                    if call.observation is not None:
                        _hear(run, facts, call.id, call.name, call.observation, of_field=call.error is None)
            case _:
                pass


def fold_facts(run: Run, event: ev.AnyEvent, at: float) -> None:
    """Take an event into the facts, before the common fold has taken it."""
    facts = run.facts
    if facts is None:
        return
    match event:
        case ev.MessageReceived():
            _ask(facts, event.text)
        case ev.EditApplied():
            _ask(facts, event.operations)
        case ev.ApprovalDecided():
            _ask(facts, event.feedback)
            _ask(facts, event.arguments)
            _ask(facts, msgspec.to_builtins(event.edits))
            _know(run, facts, event)
            if event.verdict in ("rejected", "expired"):
                facts.calls.pop(event.call, None)
        case ev.ToolsPlanned():
            facts.plan = list(dict.fromkeys([*(facts.plan or []), *event.tools]))
        case ev.ApprovalRequested(kind="tool" | "member" | "function"):
            _count(run, event.call, event.name, event.arguments, at)
        case ev.ToolCalled():
            _count(run, event.call, event.tool, event.arguments, at)
            if kind_of_call(run, event.tool) in (None, *EFFECTS):
                _write(run, facts, event.arguments)
        case ev.DelegateStarted():
            _count(run, event.call, event.member, {}, at)
            _write(run, facts, {"task": event.task, "inputs": event.inputs})
        case ev.CallRefused() | ev.CallDropped():
            facts.calls.pop(event.call, None)
        case ev.ToolAnswered() if event.tool != PLAN_TOOLS:
            if event.error is not None:
                if event.error.code in _MADE_NOTHING:
                    facts.calls.pop(event.call, None)
                _hear(run, facts, event.call, event.tool, event.error.message, of_field=False)
            if event.output is not None:
                _hear(run, facts, event.call, event.tool, event.output)
            facts.has_read, facts.may_plan = True, False
        case ev.DelegateFinished():
            found = event.output if event.output is not None else event.text
            _hear(run, facts, event.call, event.member, found)
            if event.output is not None and event.text:
                _hear(run, facts, event.call, event.member, event.text, of_field=False)
            facts.has_read, facts.may_plan = True, False
        case ev.MemoryRecalled() if event.memories:
            _hear(run, facts, event.call, "recall", [one.text for one in event.memories], of_field=False)
            facts.has_read = True
        case ev.SignalReceived():
            _hear(run, facts, run.id, f"signal {event.name}", event.payload)
            facts.has_read, facts.may_plan = True, False
        case _:
            pass


def with_words(run: Run, said: Any) -> Run:
    """Return the run as it is once a person has said this; the run itself stays as it is."""
    if run.facts is None or not said:
        return run
    facts = copy.deepcopy(run.facts)
    _ask(facts, said)
    return msgspec.structs.replace(run, facts=facts)


def _ask(facts: MetValues, value: Any) -> None:
    """A person wrote it."""
    for path, one in leaves(value):
        if not isinstance(one, str):
            texts = []
        else:
            # People forget the blank behind a sentence: "Post it on www.our-company.com.They are here."
            texts = [normalized(each) for each in dict.fromkeys([one, _SENTENCE_END.sub(r"\1 ", one)])]
        for text in texts:
            if text and text not in facts.asked:
                facts.asked.append(text)
                facts.numbers |= numbers_in(text)
        if path and (whole := as_value(one)) is not None:
            facts.given.add(whole)


def _hear(run: Run, facts: MetValues, call: str, tool: str, value: Any, *, of_field: bool = True) -> None:
    """The run reads it."""
    number = len(facts.heard)
    value = _structured(value)
    texts, starts, paths, at = [], [], [], 0
    for path, one in leaves(value):
        text = normalized(one) if isinstance(one, str) else as_value(one) or ""
        if not text:
            continue
        texts.append(text)
        starts.append(at)
        paths.append(path)
        at += len(text) + 1
        whole = as_value(one)
        if of_field and path and whole is not None:
            known = facts.fields.setdefault(whole, [])
            if not any((one.tool, field_of(one.path)) == (tool, field_of(path)) for one in known):
                known.append(ValuePlace(call, tool, path, number))
    named = _is_named(run, facts, call)
    facts.heard.append(HeardText(call=call, tool=tool, text="\n".join(texts), starts=starts, paths=paths, named=named))


def _structured(value: Any) -> Any:
    """Return the value of a text that is a JSON object or list, and any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        found = decode_text(value)
    except UNREADABLE:
        return value
    return found if isinstance(found, dict | list) else value


def _know(run: Run, facts: MetValues, event: ev.ApprovalDecided) -> None:
    held = run.call(event.call)
    if held is None or not held.is_open or not event.know:
        return
    given = kind_of(run).arguments(run, held.arguments if event.arguments is None else event.arguments)
    values = (as_value(one) for name in event.know for _, one in leaves(given.get(name)))
    facts.listed |= {one for one in values if one is not None}


def _is_named(run: Run, facts: MetValues, call: str) -> bool:
    """Return whether people named all that the call asked for."""
    made = run.call(call)
    if made is None or not made.is_open:
        return False
    given = [as_value(one) for _, one in leaves(kind_of(run).arguments(run, made.arguments)) if isinstance(one, str)]
    texts = [one for one in given if one is not None]
    return bool(texts) and all(
        one in facts.given or any(stands_in(one, asked) >= 0 for asked in facts.asked) for one in texts
    )


def _write(run: Run, facts: MetValues, arguments: dict[str, Any]) -> None:
    """A call takes these values outside: read back they are no more trustworthy than they were."""
    values = kind_of(run).arguments(run, arguments)
    texts = [normalized(one) if isinstance(one, str) else as_value(one) for _, one in leaves(values)]
    text = "\n".join(one for one in texts if one)
    if text:
        facts.written.append(WrittenText(len(facts.heard), text))


def _count(run: Run, call: str, name: str, arguments: dict[str, Any], at: float) -> None:
    facts = run.facts
    assert facts is not None
    made = counted(run, name, arguments, at)
    before = facts.calls.get(call)
    # One that waited for a person counts on the day on which it was asked for.
    facts.calls[call] = made if before is None else msgspec.structs.replace(made, at=before.at)
