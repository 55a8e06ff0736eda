"""The kind `solution`: a request loop. Each answer proposes calls and an output; it ends when no call is proposed.

A proposal is journaled before anything of it runs. Its explicit calls go the way of all calls, alone or after a
person's word on the whole of it; implicit ones carry their outcome.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import form_after, form_of, last_answer_form
from cadre.engine.answers.json_text import ReadingError, is_closed
from cadre.engine.calls.approval import edited_calls, edits_as_text, proposed_calls
from cadre.engine.calls.call_schema import Schema
from cadre.engine.chat import as_text
from cadre.engine.context.text_size import observation_of
from cadre.engine.draft import Draft
from cadre.engine.graph import MODEL, agent_graph, label
from cadre.engine.kind import Chat, StepAccount
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelFailed, ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import CallState, Run
from cadre.kinds.solution.records import (
    KIND,
    FormRefused,
    ProposedCall,
    SolutionProposed,
    SolutionState,
    SolutionStep,
    solution_of,
)
from cadre.kinds.solution.schema import Solution, read_solution, solution_schema
from cadre.kinds.stepwise import Stepwise
from cadre.prompting.tool_text import to_json
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import Decision, ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import (
    AgentContract,
    ContractProblem,
    TeamReach,
    answer_type,
    calls_type,
    name_schema,
    read_problems,
)
from cadre.spec.expression_types import shape_of
from cadre.spec.policy import ALWAYS, NEVER, expression_of, reason_to_ask

UNDECIDED: tuple[ErrorCode, ...] = ("rejected", "expired")
"""Errors of steps whose solution was sound, and not wanted."""

FORM = '{"solution": {"calls": [{"name": "some_tool", "arguments": {"some_argument": "value"}}], "output": null}}'


class SolutionKind(Stepwise):
    """`cadre.engine.kind.Kind` for agents that propose solutions."""

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return AgentContract(policy_problems(spec))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    # --- decide

    def act(self, draft: Draft, reply: ModelReplied) -> None:
        run = draft.run
        try:
            proposed = read_solution(run, reply.content, reply.calls)
        except ReadingError as error:
            text = f"{error.sentence} Answer with JSON of this form and nothing else: {FORM}"
            self.go_on(draft, error.info.saying(text))
            return
        if not proposed.calls and proposed.output is None and not _null_fits(run):
            text = "Your solution has neither calls nor an output: propose a call, or give the output"
            self.go_on(draft, ErrorInfo("unreadable-answer", text))
            return
        draft.note(SolutionProposed(step=draft.step, calls=proposed.calls, output=proposed.output))
        if not hold_solution(draft, proposed):
            self._carry_on(draft, proposed)

    def _carry_on(self, draft: Draft, proposed: Solution, *, approved: bool = False) -> None:
        """Act on a solution that may be carried out."""
        calls = [RequestedCall(call.name, call.arguments) for call in proposed.explicit]
        if calls:
            draft.call(calls, approved=approved)
        elif proposed.calls:
            self.go_on(draft)
        else:
            draft.answer(proposed.output)

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        question = next((call for call in calls if call.kind == "question"), None)
        if question is None:
            super().settled(draft, calls)
            return
        own = draft.run.current.own if draft.run.current is not None else None
        assert isinstance(own, SolutionStep)
        proposed, decision = Solution(own.calls, own.output), draft.arrival.what
        if not isinstance(decision, Decision):
            self._expired(draft, proposed)
        elif decision.verdict == "rejected":
            said = f" They said: {decision.feedback}" if decision.feedback else ""
            text = f"A person did not allow this solution, so no call of it was made.{said}"
            self.go_on(draft, ErrorInfo("rejected", text))
        elif not decision.edits:
            self._carry_on(draft, proposed, approved=True)
        elif left := edited_calls(draft.run, proposed_calls(question.arguments), decision.edits):
            draft.call(left, approved=True)
        else:
            self.go_on(draft)

    def _expired(self, draft: Draft, proposed: Solution) -> None:
        then = solution_of(draft.spec).at_expiry
        if then == "approve":
            self._carry_on(draft, proposed)
            return
        error = ErrorInfo("expired", "Nobody decided in time about this solution, so no call of it was made.")
        if then == "end":
            draft.end_step(error)
            draft.stop("error", draft.found(), error)
        else:
            self.go_on(draft, error)

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        is_miss = error is not None and error.code not in UNDECIDED
        if is_miss and state_of(draft.run).misses + 1 >= solution_of(draft.spec).tries:
            draft.end_step(error)
            draft.stop("error", draft.found(), error)
        else:
            super().go_on(draft, error)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """An endpoint that refuses the form of the request is asked in the next one."""
        failure, asked = draft.arrival.what, draft.asked
        form = form_after(draft.run, failure) if isinstance(failure, ModelFailed) else None
        if form is None or asked is None:
            return super().ending(draft, error)
        draft.note(FormRefused(form=form, reason=error.message))
        draft.ask(asked.purpose, asked.step, asked.attempt + 1)
        return True

    # --- state

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        match event:
            case ev.RunAccepted():
                run.own = SolutionState()
            case FormRefused():
                state_of(run).form = event.form
            case SolutionProposed() if run.current is not None:
                run.current.own = SolutionStep(calls=event.calls, output=event.output)
            case ev.ApprovalDecided() if run.current is not None:
                own = run.current.own
                if isinstance(own, SolutionStep) and _is_question(run, event.call):
                    own.review = _review(own, event)
            case ev.StepFinished():
                error = event.error
                if error is None:
                    state_of(run).misses = 0
                elif error.code not in UNDECIDED:
                    state_of(run).misses += 1
            case _:
                pass

    # --- what is read

    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        return ask_for_json(run, chat, as_text(chat.messages(run)), solution_schema(run))

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        form: Schema | None = last_answer_form(run)
        if purpose != "final":
            return super().request(run, purpose, chat)
        messages = chat.last_word(run)
        return ask_for_json(run, chat, messages, form) if form is not None else ModelRequest(messages=messages)

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, SolutionStep)
        seen = [own.review] if own.review else []
        seen += [_outcome(call) for call in own.calls if call.implicit]
        return StepAccount(
            name="Solution",
            text="",
            written=observation_of({"solution": {"calls": own.calls, "output": own.output}}),
            seen="\n\n".join(seen),
            nothing="Observation:\n(no call of it was made)",
            with_calls=True,
        )

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return is_closed(reply.content)


def state_of(run: Run) -> SolutionState:
    """The run's own state."""
    assert isinstance(run.own, SolutionState)
    return run.own


def _null_fits(run: Run) -> bool:
    """Return whether nothing at all is an answer: the schema says so, and `Answer` checks it."""
    return run.spec is not None and run.spec.output_schema is not None


def _outcome(call: ProposedCall) -> str:
    return f"{call.name}: {observation_of(call.outcome)}"


def _is_question(run: Run, call: str) -> bool:
    found = run.call(call)
    return found is not None and found.kind == "question"


def _review(own: SolutionStep, event: ev.ApprovalDecided) -> str:
    """Return what the model reads of a person's word, next to the outcomes of the calls."""
    if event.verdict in ("rejected", "expired"):
        return ""
    said = f" They said: {event.feedback}" if event.feedback else ""
    if event.edits:
        calls = [RequestedCall(call.name, call.arguments) for call in own.calls if not call.implicit]
        return f"A person changed this solution: {edits_as_text(calls, event.edits)}.{said}"
    return f"A person agreed to this solution.{said}" if said else ""


SOLUTION = SolutionKind()


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    section = solution_of(spec)
    calls = "calls"
    yield from agent_graph(spec, "proposes calls and an output", calls=calls)
    if section.approve == NEVER:
        yield f'    {MODEL} --> {calls}["calls, side by side"]'
    else:
        yield f'    {MODEL} --> review{{{{"a person agrees<br/>{label(section.approve)}"}}}}'
        yield f'    review -->|"approve, correct, add, drop"| {calls}["calls, side by side"]'
        yield f'    review -.->|"reject"| {MODEL}'
        yield f'    review -.->|"expired: {section.at_expiry}"| {_EXPIRED[section.at_expiry]}'
    yield f'    {calls} -->|"results"| {MODEL}'
    for index, name in enumerate(section.implicit):
        yield f'    {MODEL} <-.-> implicit_{index}>"{label(name)}"]'


_EXPIRED = {"reject": MODEL, "approve": "calls", "end": "stop([end])"}


def ask_for_json(run: Run, chat: Chat, messages: list[ChatMessage], schema: dict[str, object]) -> ModelRequest:
    """The request for JSON that fits the schema. Stop sequences would cut it within an argument."""
    form = form_of(run)
    if form == "schema":
        return ModelRequest(messages=messages, schema=schema)
    first, *others = messages
    told = f"{first['content']}\n\n{chat.rendered('solution.form', schema=to_json(schema))}"
    return ModelRequest(messages=[{**first, "content": told}, *others], json_object=form == "object")


def hold_solution(draft: Draft, proposed: Solution) -> bool:
    """Put the question about the solution to a person. Return False if no person has to be asked."""
    policy = solution_of(draft.spec).approve
    if policy == NEVER or (policy == ALWAYS and not proposed.explicit):
        return False
    calls = [{"name": call.name, "arguments": call.arguments} for call in proposed.explicit]
    values: dict[str, Any] = {
        "calls": calls,
        "names": [call["name"] for call in calls],
        "output": proposed.output,
        "task": draft.run.task.task if draft.run.task is not None else "",
    }
    reason = "every solution needs approval" if policy == ALWAYS else reason_to_ask(policy, values)
    if reason is None:
        return False
    seconds = draft.spec.approval_seconds
    implicit = [msgspec.to_builtins(call) for call in proposed.calls if call.implicit]
    about = {"calls": calls, **({"implicit": implicit} if implicit else {}), "output": proposed.output}
    draft.hold(KIND, reason, draft.at + seconds if seconds is not None else None, about)
    return True


def policy_problems(spec: AgentSpec) -> Iterator[ContractProblem]:
    """Yield what the policy over solutions reads in vain."""
    expression = expression_of(solution_of(spec).approve)
    if expression is None:
        return
    names = shape_of({"type": "array", "items": name_schema(spec)}, "the list of tools and team members")
    values = {"calls": calls_type(spec, with_errors=False), "names": names, "output": answer_type(spec)}
    yield from read_problems(spec, "spec.solution.approve", expression, values, is_condition=True)
