"""The kind `goals`: iterations of thoughts and one tool, until the model calls `finish`, after SuperAGI's direct
execution. Every iteration is one model call, `think` included."""

from collections.abc import Iterator, Sequence

from cadre.engine.answers.answer_form import answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.chat import as_text, task_text
from cadre.engine.draft import Draft
from cadre.engine.graph import MODEL, agent_graph, goal_nodes
from cadre.engine.kind import Chat, StepAccount
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.parts import with_inputs
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import ActionStep, Run, Step
from cadre.kinds.goals.records import GoalsState, GoalThought, ThoughtStep, goals_of
from cadre.kinds.iteration import view
from cadre.kinds.iteration.records import JsonFormRefused
from cadre.kinds.iteration.view import (
    THINK,
    Iteration,
    ask_in_next_form,
    contract_of,
    in_form,
    is_whole,
    iteration_schema,
    last_action,
    name_in_toolset,
    offered_schemas,
    read_iteration,
    thinking_question,
)
from cadre.kinds.stepwise import Stepwise
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, TeamReach


class GoalsKind(Stepwise):
    """`cadre.engine.kind.Kind` for agents that work on goals."""

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return contract_of(spec, goals_of(spec))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    def begin(self, draft: Draft) -> None:
        """The first step, or the one that a fork begins with, which may owe a thought."""
        if _question(draft.arrival.prefix) is None:
            self._next(draft, draft.first_step)
        else:
            self._think(draft, draft.first_step)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        if draft.asked is not None and draft.asked.purpose == THINK:
            self.go_on(draft)
        else:
            super().answered(draft, reply)

    def act(self, draft: Draft, reply: ModelReplied) -> None:
        run, step = draft.run, draft.step
        try:
            answer = read_iteration(reply.content, offered_schemas(run))
        except ReadingError as error:
            self.go_on(draft, error.info)
            return
        draft.note(_thought(step, answer))
        if answer.is_end:
            draft.answer(answer_of(run, answer.response))
        elif answer.is_thinking and goals_of(draft.spec).think:
            draft.end_step()
            self._think(draft, step + 1)
        else:
            draft.call([ev.RequestedCall(name_in_toolset(run, answer.tool), answer.arguments)])

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """The run ends with what it has found when its steps are used up; it may be continued."""
        if error.code == "max-steps":
            draft.stop("max_steps_error", draft.found(), self._out_of_steps(draft.run))
            return True
        return ask_in_next_form(draft) or super().ending(draft, error)

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        if isinstance(event, JsonFormRefused):
            run.own = GoalsState(form=event.form)
        elif run.current is None:
            pass
        elif isinstance(event, ev.StepStarted):
            run.current.own = ThoughtStep(question=_question(run.steps) or "")
        elif isinstance(event, ev.ModelAnswered) and isinstance(run.current.own, ThoughtStep):
            run.current.own.thought = event.content

    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        """System prompt, current time, what was done so far, and the question for the next tool."""
        assert run.spec is not None
        system, *history = chat.messages(run)
        asked = view.user(chat.rendered("iteration.next"))
        messages = [system, view.now_message(run, chat), *as_text([*history, asked])]
        return in_form(run, messages, iteration_schema(run, think=goals_of(run.spec).think))

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        if purpose != THINK:
            return super().request(run, purpose, chat)
        assert run.spec is not None
        goals = [*with_inputs(run, goals_of(run.spec).goals), task_text(run)]
        question = _question(run.steps) or ""
        return ModelRequest(messages=view.thinking_messages(run, question, goals, chat))

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        if isinstance(step.own, ThoughtStep):
            return view.thought_messages(step.own.thought or "", prompts)
        return view.step_messages(step, prompts)

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, ThoughtStep)
        return StepAccount("Thought", own.question, f"Thought about: {own.question}", own.thought, "(no thought)")

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return is_whole(reply.content)

    def _think(self, draft: Draft, step: int) -> None:
        if step > draft.run.max_steps:
            draft.stop("max_steps_error", draft.found(), self._out_of_steps(draft.run))
            return
        draft.begin_step(step, THINK)
        draft.ask(THINK, step)

    def _out_of_steps(self, run: Run) -> ErrorInfo:
        error = super()._out_of_steps(run)
        return error.saying(f"{error.message} `cadre resume {run.id}` goes on with it.")


def _thought(step: int, answer: Iteration) -> GoalThought:
    thoughts = answer.thoughts
    return GoalThought(step=step, tool=answer.tool, text=thoughts.get("text", ""), speak=thoughts.get("speak", ""))


def _question(steps: Sequence[Step]) -> str | None:
    """Return the question to think through after the steps, or None."""
    last = last_action(steps)
    return thinking_question(last) if last is not None and last.own is None else None


GOALS = GoalsKind()


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: goals, and the iterations towards them."""
    section = goals_of(spec)
    yield from agent_graph(spec, "thinks, and calls one tool", goal_nodes(section.goals, MODEL))
    if section.think:
        yield f'    {MODEL} <--> think(["think"])'
