"""Agents that act step by step, after smolagents' MultiStepAgent: a plan every n steps, and one last answer when the
steps are used up."""

from abc import abstractmethod

from cadre.engine.answers.answer_form import LAST_WORD_FAILED, last_answer_form, last_answer_of
from cadre.engine.answers.truncation import cut_off
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import Ask, EndStep, Move, Moves, Stop
from cadre.engine.steps import step_in_work
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.run import Run
from cadre.kinds.idle_steps import why_idle
from cadre.kinds.kind import PlainKind
from cadre.protocol.messages import ErrorInfo

END_PLAN = "<end_plan>"


class StepwiseKind(PlainKind):
    """Base of kinds whose model decides about one action after another."""

    answers_messages = True

    @abstractmethod
    def act(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        """What follows from the model's answer to the question for the next action."""

    @abstractmethod
    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        """The question for the next action."""

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        """The first step, or the one that a fork begins with."""
        assert run.task is not None
        return [self._next(run, run.task.forks.at if run.task.forks is not None else 1)]

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        model = run.model
        assert model is not None
        assert run.spec is not None
        if model.purpose == "plan":
            return [Ask("act", model.step)]
        if model.purpose == "final":
            return [Stop("max_steps_error", last_answer_of(run, reply.content), self._out_of_steps(run))]
        cut = cut_off(run.spec, self, reply)
        return self.went(run, arrival, cut) if cut is not None else self.act(run, reply, arrival)

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        return [EndStep(error), self._next(run, step_in_work(run) + 1)]

    def last_word(self, run: Run, step: int, arrival: Arrival) -> Moves:
        return [Ask("final", step)]

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        if purpose != "final":
            return None
        return [Stop("max_steps_error", f"{LAST_WORD_FAILED}{failure.message}", self._out_of_steps(run))]

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        if purpose == "plan":
            return ModelRequest(messages=chat.planning(run), stop=[END_PLAN])
        if purpose == "final":
            in_text = asked_model(run).calls == "text"
            return ModelRequest(
                messages=chat.last_word(run), schema=None if in_text else last_answer_form(run)
            )
        return self.action_request(run, chat)

    def _next(self, run: Run, number: int) -> Move:
        """Step `number`, with a plan first when one is due (before steps 1, 1+n, 1+2n …)."""
        interval = run.spec.planning_interval if run.spec is not None else None
        return Ask("plan" if interval and (number - 1) % interval == 0 else "act", number)

    def _out_of_steps(self, run: Run) -> ErrorInfo:
        text = f"Reached the limit of {run.max_steps} steps."
        why = why_idle(run)
        return ErrorInfo("max-steps", f"{text} {why}" if why else text)
