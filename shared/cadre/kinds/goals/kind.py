"""The kind `goals`: iterations of thoughts and one tool, until the model calls `finish`, after SuperAGI's direct
execution. Every iteration is one model call, `think` included."""

from collections.abc import Sequence

from cadre.engine.answers.answer_form import answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.chat import as_text, task_text
from cadre.engine.context.tokens import tokens_of
from cadre.engine.kind import Chat, Deed
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.moves import PARTIAL_RESULT, Answer, Ask, BeginStep, Call, EndStep, Moves, Note, Stop
from cadre.engine.steps import step_in_work
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, Step
from cadre.kinds.goals.records import DECLARATION, GoalsState, GoalThought, ThoughtStep, goals_of
from cadre.kinds.iteration import view
from cadre.kinds.iteration.offer import (
    ask_in_next_form,
    in_form,
    iteration_schema,
    named_in_offer,
    offered_schemas,
)
from cadre.kinds.iteration.parse import FINISH, THINK, Iteration, is_whole, read_iteration
from cadre.kinds.iteration.records import JsonFormRefused
from cadre.kinds.iteration.thinking import last_action, thinking_question
from cadre.kinds.stepwise import StepwiseKind
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec


class GoalsKind(StepwiseKind):
    """`cadre.engine.kind.Kind` for agents that work on goals."""

    name = DECLARATION.name
    ending = FINISH

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        """The first step, or the one that a fork begins with, which may owe a thought."""
        at = run.task.forks.at if run.task is not None and run.task.forks is not None else 1
        return [self._next(run, at)] if _question(arrival.prefix) is None else self._think(run, at)

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        if run.model is not None and run.model.purpose == THINK:
            return self.went(run, arrival)
        return super().replied(run, reply, arrival)

    def act(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        assert run.spec is not None
        try:
            answer = read_iteration(reply.content, offered_schemas(run))
        except ReadingError as error:
            return self.went(run, arrival, error.info)
        step = step_in_work(run)
        thought = Note(_thought(step, answer))
        if answer.is_end:
            return [thought, Answer(answer_of(run, answer.response))]
        if answer.is_thinking and goals_of(run.spec).think:
            return [thought, EndStep(), *self._think(run, step + 1)]
        return [thought, Call([ev.RequestedCall(named_in_offer(run, answer.tool), answer.arguments)])]

    def last_word(self, run: Run, step: int, arrival: Arrival) -> Moves:
        """The run ends with what it has found; it may be continued."""
        return [Stop("max_steps_error", PARTIAL_RESULT, self._out_of_steps(run))]

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        return ask_in_next_form(run, failure) or super().gave_up(run, purpose, failure, arrival)

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
        goals = [*goals_of(run.spec).goals, task_text(run)]
        question = _question(run.steps) or ""
        return ModelRequest(messages=view.thinking_messages(run, question, goals, chat))

    def frame(self, prompts: Prompts) -> str:
        return view.frame(prompts)

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        if isinstance(step.own, ThoughtStep):
            return view.thought_messages(step.own.thought or "", prompts)
        return view.step_messages(step, prompts)

    def deed(self, own: KindStep) -> Deed:
        assert isinstance(own, ThoughtStep)
        return Deed("Thought", own.question, f"Thought about: {own.question}", own.thought, "(no thought)")

    def tokens(self, run: Run, event: JournalEvent) -> int:
        """A thought is kept beside what the model wrote, with its question."""
        if not isinstance(event, ev.ModelAnswered) or event.purpose != THINK:
            return 0
        return tokens_of(event.content) + tokens_of(_question(run.steps) or "")

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return is_whole(reply.content)

    def _think(self, run: Run, step: int) -> Moves:
        if step > run.max_steps:
            return [Stop("max_steps_error", PARTIAL_RESULT, self._out_of_steps(run))]
        return [BeginStep(step, THINK), Ask(THINK, step)]

    def _out_of_steps(self, run: Run) -> ErrorInfo:
        error = super()._out_of_steps(run)
        return error.saying(f"{error.message} `cadre continue {run.id}` goes on with it.")


def _thought(step: int, answer: Iteration) -> GoalThought:
    thoughts = answer.thoughts
    return GoalThought(
        step=step, tool=answer.tool, text=thoughts.get("text", ""), speak=thoughts.get("speak", "")
    )


def _question(steps: Sequence[Step]) -> str | None:
    """What is to be thought through behind the steps; None where nothing is."""
    last = last_action(steps)
    return thinking_question(last) if last is not None and last.own is None else None


GOALS = GoalsKind()
