"""The kind `code`: the model writes Python, a sandbox runs it, and its calls of tools and members go the way of all
calls; `final_answer` in the code ends the run."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cadre.engine.answers.json_text import UNREADABLE, ReadingError
from cadre.engine.budget import MEGABYTE, share
from cadre.engine.commands import Command
from cadre.engine.context.context_budget import MESSAGE
from cadre.engine.context.images import images_of
from cadre.engine.context.observation import clip
from cadre.engine.context.tokens import tokens_of
from cadre.engine.kind import Chat, Deed, Execution
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import (
    PARTIAL_RESULT,
    Answer,
    Call,
    EndStep,
    Moves,
    Note,
    RefusedCall,
    Signalled,
    Stop,
)
from cadre.engine.steps import step_in_work, still_open
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.code.fold import fold_code, state_of
from cadre.kinds.code.owes import owed_code
from cadre.kinds.code.parse import closed, is_open, read_code
from cadre.kinds.code.records import (
    DECLARATION,
    BlockFinished,
    BlockStarted,
    BlockYielded,
    CodeStep,
)
from cadre.kinds.code.references import not_given, note_use
from cadre.kinds.code.section import code_of
from cadre.kinds.stepwise import StepwiseKind
from cadre.prompting.code_signature import named_in_code
from cadre.protocol.messages import CodeFinished, CodeYielded, ErrorInfo, Message
from cadre.protocol.topology import block_id
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


class CodeKind(StepwiseKind):
    """`cadre.engine.kind.Kind` for agents that write code."""

    name = DECLARATION.name
    reads_whole = True

    def act(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        """Hands the block that the model wrote to a sandbox."""
        assert run.spec is not None
        try:
            code = read_code(reply.content, code_of(run.spec))
        except ReadingError as error:
            return self.went(run, arrival, error.info)
        return [Note(BlockStarted(block=block_id(run.id, step_in_work(run)), code=code))]

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        match what:
            case CodeYielded() if _is_awaited(run, what) and what.calls:
                return self._calls(run, what)
            case CodeFinished() if _is_awaited(run, what):
                return self._ended(run, what, arrival)
            case _:
                return None

    def absent(self, run: Run, message: str, arrival: Arrival) -> Moves | None:
        """End the block without its sandbox; the variables stay as the block before it left them."""
        state = state_of(run)
        work = state.work
        if work is None or not work.since or work.block != message:
            return None
        done = "was not begun" if not work.exchanges else "did not come to its end"
        error = ErrorInfo("away", f"The sandbox is away, and the code {done}.")
        finished = CodeFinished(
            id=arrival.cause,
            tree=run.tree,
            run=run.id,
            at=arrival.at,
            block=work.block,
            exchange=len(work.exchanges),
            error=error,
            snapshot=state.snapshot,
        )
        return self._ended(run, finished, arrival)

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        """A block goes on after its calls; it ends the step itself."""
        if state_of(run).work is not None:
            return []
        own = run.current.own if run.current is not None else None
        if isinstance(own, CodeStep) and own.observer is not None:
            return [] if still_open(run, arrival) else self.went(run, arrival, own.error)
        return super().settled(run, call, arrival)

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        """The call that observes a block's end is refused with that end itself."""
        if isinstance(arrival.what, CodeFinished):
            return self.went(run, arrival, arrival.what.error)
        return super().refused(run, calls, arrival)

    def _unknown(self, run: Run, value: Any, references: list[str]) -> ErrorInfo | None:
        """Why the code may not pass on the value; None when it may."""
        ref = not_given(state_of(run), value, references)
        if ref is None:
            return None
        return ErrorInfo(
            "code-failed", f"{ref} was not given to this run: pass on what you have got as it is."
        )

    def _used_up(self, run: Run, calls: int, stored: int) -> ErrorInfo | None:
        """Why the run ends with so many more calls, and bytes stored; None when it goes on."""
        budget, left = run.budget, share(run, Usage(), 1)
        if budget is None or left is None:
            return None
        text = ""
        if left.calls is not None and calls > left.calls:
            text = f"The budget of {budget.calls} calls by code is used up."
        elif left.stored_mb is not None and stored > left.stored_mb * MEGABYTE:
            text = f"The budget of {budget.stored_mb:g} MB stored for code is used up."
        return ErrorInfo("budget", text) if text else None

    def _calls(self, run: Run, yielded: CodeYielded) -> Moves:
        """The calls of the block go the way of all calls: policy, budget, journal."""
        event = BlockYielded(
            block=yielded.block,
            exchange=yielded.exchange,
            calls=yielded.calls,
            clock=yielded.clock,
            logs=yielded.logs,
            sandbox=yielded.sandbox,
            tier=yielded.tier,
            references=yielded.references,
            stored=yielded.stored,
        )
        if (used_up := self._used_up(run, len(yielded.calls), yielded.stored)) is not None:
            return [Note(event), Stop("error", PARTIAL_RESULT, used_up)]
        cards = named_in_code([*run.tools.values(), *run.members.values()])
        calls = []
        for call in yielded.calls:
            name = cards[call.name].name if call.name in cards else call.name
            error = self._unknown(run, call.arguments, yielded.references)
            calls.append(
                RequestedCall(name, call.arguments)
                if error is None
                else RefusedCall(name, call.arguments, error)
            )
        return [Note(event), Call(calls)]

    def _ended(self, run: Run, ended: CodeFinished, arrival: Arrival) -> Moves:
        if (unknown := self._unknown(run, ended.output, ended.references)) is not None:
            ended = replace(ended, output=None, is_final_answer=False, error=ended.error or unknown)
        event = BlockFinished(
            block=ended.block,
            exchange=ended.exchange,
            output=ended.output,
            text=ended.text,
            is_final_answer=ended.is_final_answer,
            logs=ended.logs,
            error=ended.error,
            notes=ended.notes,
            snapshot=ended.snapshot,
            sandbox=ended.sandbox,
            tier=ended.tier,
            seconds=ended.seconds,
            references=ended.references,
            stored=ended.stored,
        )
        if ended.is_final_answer and ended.error is None:
            return [Note(event), Answer(ended.output)]
        if (used_up := self._used_up(run, 0, ended.stored)) is not None:
            return [Note(event), EndStep(ended.error), Stop("error", PARTIAL_RESULT, used_up)]
        if run.spec is not None and (observe := code_of(run.spec).observe):
            return [Note(event), Call([RequestedCall(observe, {})], approved=True, may_repeat=True)]
        return [Note(event), *self.went(run, arrival, ended.error)]

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_code(run, event, n, at)
        run.usage += event.used() or Usage()
        note_use(run, state_of(run), event)

    def owes(self, run: Run, since: int) -> list[Command]:
        return owed_code(run, since)

    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        """No functions are offered: code is the one thing that the model may answer with."""
        assert run.spec is not None
        code, messages = code_of(run.spec), chat.messages(run)
        if code.structured:
            return ModelRequest(messages=messages, schema=THOUGHT_AND_CODE)
        return ModelRequest(messages=messages, block=code.tags)

    def deed(self, own: KindStep) -> Deed:
        assert isinstance(own, CodeStep)
        return Deed(
            name="Code",
            text=own.code,
            written=f"Code that was run:\n```python\n{own.code}\n```",
            seen=own.observation,
            nothing="Observation:\n(nothing was printed)",
            # Code that was cut off has printed nothing that anybody knows.
            with_calls=own.observation is None,
        )

    def as_read(self, spec: AgentSpec, content: str) -> str:
        """Return the answer with its closing tag."""
        code = code_of(spec)
        return content if code.structured else closed(content, code)

    def reads_calls(self, run: Run) -> bool:
        """What the block's calls came to is read by the code alone."""
        return state_of(run).work is None

    def tokens(self, run: Run, event: JournalEvent) -> int:
        match event:
            case BlockStarted():
                return tokens_of(event.code)
            case BlockFinished():
                longest = run.spec.limits.observation_chars if run.spec is not None else None
                notes = sum(map(tokens_of, event.notes))
                return 2 * MESSAGE + tokens_of(clip(event.logs + event.text, longest)) + notes
            case _:
                return 0

    def images(self, event: JournalEvent) -> list[str]:
        return images_of(event.output) if isinstance(event, BlockFinished) else []

    def executed(self, event: JournalEvent) -> Execution | None:
        if not isinstance(event, BlockFinished):
            return None
        return Execution("python", event.error.type if event.error is not None else "", event.seconds)

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        """What is missing would be put there for a block that only lacks its end."""
        code = code_of(spec)
        try:
            is_cut = not code.structured and is_open(reply.content, code)
            return not is_cut and bool(read_code(reply.content, code))
        except (ReadingError, *UNREADABLE):
            return False


def _is_awaited(run: Run, answer: CodeYielded | CodeFinished) -> bool:
    """Whether the sandbox owes this; a second sandbox's answer to the same question is not awaited any more."""
    work = state_of(run).work
    return (
        work is not None
        and work.since > 0
        and answer.block == work.block
        and answer.exchange == len(work.exchanges)
    )


CODE = CodeKind()
