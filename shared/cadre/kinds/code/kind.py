"""The kind `code`: the model writes Python, a sandbox runs it, and its calls of tools and members go the way of all
calls; `final_answer` in the code ends the run."""

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from cadre.engine.answers.code_blocks import blocks_in, is_plain, is_python, said
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, read_object
from cadre.engine.budget import MEGABYTE, share
from cadre.engine.calls.call_check import placeholder_error
from cadre.engine.commands import Command, Send
from cadre.engine.draft import Draft
from cadre.engine.kind import Absent, Chat, Signalled, StepAccount
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import ActionStep, CallState, Run
from cadre.kinds.code.fold import fold_code, state_of
from cadre.kinds.code.records import (
    BlockFinished,
    BlockStarted,
    BlockYielded,
    CodeState,
    CodeStep,
    copied,
)
from cadre.kinds.code.section import CodeSpec, code_of
from cadre.kinds.stepwise import Stepwise
from cadre.prompting.python_types import named_in_code
from cadre.prompting.tool_text import docstring_of, signature_of
from cadre.protocol.cards import AgentCard
from cadre.protocol.code import BASE_IMPORTS, CodeFunction
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, ErrorInfo, Message
from cadre.protocol.topology import block_id, code_call_id
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec

THOUGHT_AND_CODE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "thought": {
            "type": "string",
            "description": "What you think about the state of the work, and why this code.",
        },
        "code": {"type": "string", "description": "Python code that does the next step."},
    },
    "required": ["thought", "code"],
    "additionalProperties": False,
}


class CodeKind(Stepwise):
    """`cadre.engine.kind.Kind` for agents that write code."""

    def act(self, draft: Draft, reply: ModelReplied) -> None:
        """Hand the block that the model wrote to a sandbox."""
        try:
            code = read_code(reply.content, code_of(draft.spec))
        except ReadingError as error:
            self.go_on(draft, error.info)
            return
        draft.note(BlockStarted(block=block_id(draft.run.id, draft.step), code=code))

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        match what:
            case CodeYielded() if _is_awaited(draft.run, what) and what.calls:
                self._calls(draft, what)
            case CodeFinished() if _is_awaited(draft.run, what):
                self._ended(draft, what)
            case Absent(message):
                return self._left(draft, message)
            case _:
                return False
        return True

    def _left(self, draft: Draft, block: str) -> bool:
        """End the block without its sandbox; the variables stay as the block before it left them."""
        run = draft.run
        state = state_of(run)
        work = state.work
        if work is None or not work.since or work.block != block:
            return False
        done = "was not begun" if not work.exchanges else "did not come to its end"
        error = ErrorInfo("away", f"The sandbox is away, and the code {done}.")
        finished = CodeFinished(
            id=draft.arrival.cause,
            tree=run.tree,
            run=run.id,
            at=draft.at,
            block=work.block,
            exchange=len(work.exchanges),
            error=error,
            snapshot=state.snapshot,
        )
        self._ended(draft, finished)
        return True

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        """A block goes on after its calls, and ends the step itself; the call that observes its end was behind it."""
        run = draft.run
        if run.current is None or state_of(run).work is not None or run.open_calls():
            return
        own = run.current.own
        self.go_on(draft, own.error if isinstance(own, CodeStep) else None)

    def _unknown(self, run: Run, value: Any, references: list[str]) -> ErrorInfo | None:
        """Return why the code may not pass on the value; None when it may."""
        ref = not_given(state_of(run), value, references)
        if ref is None:
            return None
        return ErrorInfo("code-failed", f"{ref} was not given to this run: pass on what you have got as it is.")

    def _used_up(self, run: Run, calls: int, stored: int) -> ErrorInfo | None:
        """Return why the run ends with so many more calls, and bytes stored; None when it goes on."""
        budget, left = run.budget, share(run, 1)
        if budget is None or left is None:
            return None
        text = ""
        if left.calls is not None and calls > left.calls:
            text = f"The budget of {budget.calls} calls by code is used up."
        elif left.stored_mb is not None and stored > left.stored_mb * MEGABYTE:
            text = f"The budget of {budget.stored_mb:g} MB stored for code is used up."
        return ErrorInfo("budget", text) if text else None

    def _calls(self, draft: Draft, yielded: CodeYielded) -> None:
        """The calls of the block go the way of all calls: policy, budget, journal."""
        run = draft.run
        used_up = self._used_up(run, len(yielded.calls), yielded.stored)
        cards = named_in_code([*run.tools.values(), *run.members.values()])
        calls = []
        for call in yielded.calls:
            name = cards[call.name].name if call.name in cards else call.name
            error = self._unknown(run, call.arguments, yielded.references)
            calls.append(RequestedCall(name, call.arguments, error))
        draft.note(copied(BlockYielded, yielded))
        if used_up is not None:
            draft.stop("error", draft.found(), used_up)
        else:
            draft.call(calls)

    def _ended(self, draft: Draft, ended: CodeFinished) -> None:
        refused = self._unknown(draft.run, ended.output, ended.references)
        if refused is None and ended.is_final_answer:
            refused = placeholder_error(ended.output)
        if refused is not None:
            ended = replace(ended, output=None, is_final_answer=False, error=ended.error or refused)
        used_up = self._used_up(draft.run, 0, ended.stored)
        draft.note(copied(BlockFinished, ended))
        if ended.is_final_answer and ended.error is None:
            draft.answer(ended.output)
        elif used_up is not None:
            draft.end_step(ended.error)
            draft.stop("error", draft.found(), used_up)
        elif observe := code_of(draft.spec).observe:
            draft.call([RequestedCall(observe, {})], approved=True, may_repeat=True)
        else:
            self.go_on(draft, ended.error)

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_code(run, event, n, at)
        if type(event) is BlockYielded or type(event) is BlockFinished:
            run.usage += event.describe().used or Usage()
        note_use(run, state_of(run), event)

    def owed(self, run: Run, since: int) -> list[Command]:
        return owed_code(run, since)

    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        """No functions are offered: code is the one thing that the model may answer with."""
        assert run.spec is not None
        code, messages = code_of(run.spec), chat.messages(run)
        if code.structured:
            return ModelRequest(messages=messages, schema=THOUGHT_AND_CODE)
        return ModelRequest(messages=messages, block=code.tags)

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, CodeStep)
        return StepAccount(
            name="Code",
            text=own.code,
            written=f"Code that was run:\n```python\n{own.code}\n```",
            seen=own.observation,
            nothing="Observation:\n(nothing was printed)",
            # The output of code that was cut off is unknown.
            with_calls=own.observation is None,
        )

    def reads_calls(self, run: Run) -> bool:
        """Return what the block's calls came to is read by the code alone."""
        return state_of(run).work is None

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        """Return what is missing would be put there for a block that only lacks its end."""
        code = code_of(spec)
        try:
            is_cut = not code.structured and is_open(reply.content, code)
            return not is_cut and bool(read_code(reply.content, code))
        except (ReadingError, *UNREADABLE):
            return False


def _is_awaited(run: Run, answer: CodeYielded | CodeFinished) -> bool:
    """Return whether the sandbox owes this; a second sandbox's answer to the same question is not awaited any more."""
    work = state_of(run).work
    return work is not None and work.since > 0 and answer.block == work.block and answer.exchange == len(work.exchanges)


CODE = CodeKind()


def owed_code(run: Run, since: int) -> list[Command]:
    """The call of the block in work, where an entry from `since` on has made it owed."""
    state, task, spec = state_of(run), run.task, run.spec
    work = state.work
    if work is None or not work.since or work.since < since or task is None or spec is None:
        return []
    code = code_of(spec)
    ends = [run.deadline] if run.deadline is not None else []
    if code.limits.wall_seconds is not None and work.started_at is not None:
        ends.append(work.started_at + code.limits.wall_seconds)
    return [
        Send(
            CodeCall(
                id=code_call_id(work.block, len(work.exchanges)),
                tree=run.tree,
                run=run.id,
                at=work.at,
                agent=run.agent,
                pool=code.pool,
                block=work.block,
                code=work.code,
                # A copy: the run may move on before the call is on its way.
                exchanges=list(work.exchanges),
                snapshot=state.snapshot,
                # Later blocks find them in the snapshot, as the code has left them, unless it was lost.
                inputs=task.inputs if state.snapshot in (None, state.inherited_snapshot) else {},
                functions=_functions(run),
                imports=[*BASE_IMPORTS, *code.imports],
                limits=code.limits,
                deadline=min(ends) if ends else None,
                trace=task.trace,
            )
        )
    ]


def _functions(run: Run) -> list[CodeFunction]:
    """Tools and team members as code calls them."""
    return [
        CodeFunction(
            name=name,
            signature=signature_of(card),
            kind="member" if isinstance(card, AgentCard) else "tool",
            doc=docstring_of(card),
        )
        for name, card in named_in_code([*run.tools.values(), *run.members.values()]).items()
    ]


class ThoughtAndCode(msgspec.Struct):
    """A model's answer in structured mode (smolagents' schema of the same name)."""

    thought: str
    code: str


def is_open(text: str, code: CodeSpec) -> bool:
    """Return whether the last block of an answer lacks its end."""
    found = blocks_in(text, code.tags)
    return bool(found) and not found[-1].is_closed


def read_code(content: str, code: CodeSpec) -> str:
    """Return all blocks of the answer, joined by empty lines. Raises ReadingError, for the model, if there is no block.

    An answer without tags and fences may be code as a whole, but data and words that only look like code do not count.
    """
    if code.structured:
        return _structured(content)
    whole = content
    content = said(content, code.tags)
    if is_python(content) and not is_plain(content):
        return content.strip()
    blocks = blocks_in(content, code.tags)
    if blocks and not blocks[-1].is_closed and not whole.endswith(content[blocks[-1].begin :]):
        blocks = blocks[:-1]  # what breaks off in reasoning has lost more than its end
    if blocks:
        return "\n\n".join(block.code for block in blocks)
    raise ReadingError(_help(content, *code.tags))


def _structured(content: str) -> str:
    """The code of smolagents' {thought, code}, whose steps call it `code_action`: in JSON alone, or among words."""
    try:
        return msgspec.json.decode(content, type=ThoughtAndCode).code
    except UNREADABLE as error:
        with contextlib.suppress(ReadingError):
            found = read_object(content, "code", "code_action", whole=True)
            code = found.get("code", found.get("code_action"))
            if isinstance(code, str):
                return code
        raise ReadingError(
            f"Your answer is not the JSON object that was asked for: {error}."
            ' Answer with {"thought": "…", "code": "…"} and nothing else.'
        ) from error


def _help(content: str, opening: str, closing: str) -> str:
    text = (
        f"Your answer holds no block of code. Write your thought, then the code between {opening} and {closing}:"
        f"\nThought: …\n{opening}\n# your code\n{closing}"
    )
    if "final" in content.lower() and "answer" in content.lower():
        text += f'\nIf that was your final answer, give it in code:\n{opening}\nfinal_answer("…")\n{closing}'
    return text


_REF = re.compile(r"blob:[0-9a-f]{64}")

_OWN_FORMS = ("bytes", "image", "table", "array", "json")
"""Forms of `{"$given": [form, ref]}` whose bytes the sandbox itself has stored: what code has written itself so
comes under `$dict`."""


def references_in(value: Any) -> list[str]:
    """All references that stand anywhere in a JSON value or record, in texts too, each once."""
    return list(dict.fromkeys(_REF.findall(msgspec.json.encode(value).decode())))


def not_given(state: CodeState, output: Any, references: list[str]) -> str | None:
    """The first reference in an output, or in arguments, of the code that it cannot have; None if it can have all of
    them. `references` are those that came with the answer."""
    found = references_in(output)
    if not found or state.references is None:
        return None
    known = {*state.references, *references, *_own(output)}
    return next((ref for ref in found if ref not in known), None)


def note_use(run: Run, state: CodeState, event: JournalEvent) -> None:
    """Add to the state what the event gives the run, and what its code has used by it."""
    match event:
        case ev.RunAccepted():
            steps = [one.own for one in run.steps if isinstance(one, ActionStep) and isinstance(one.own, CodeStep)]
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
            if run.current is not None and isinstance(run.current.own, CodeStep) and state.references is not None:
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
