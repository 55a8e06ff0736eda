"""Agents that act step by step, after smolagents' MultiStepAgent: a plan every n steps, and one last answer when the
steps are used up."""

from abc import abstractmethod

from cadre.engine.answers.answer_form import CUT, LAST_WORD_FAILED, WRITE_LESS, cut_off, last_answer_form
from cadre.engine.calls.calls_in_text import answer_form, last_word
from cadre.engine.draft import Draft
from cadre.engine.kind import Chat, Kind
from cadre.engine.model_request import ModelRequest, asked_model
from cadre.journal.arrivals import ModelReplied
from cadre.journal.run import ActionStep, PlanningStep, Run
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec

END_PLAN = "<end_plan>"


class Stepwise(Kind):
    """Base of kinds whose model decides about one action after another."""

    @abstractmethod
    def act(self, draft: Draft, reply: ModelReplied) -> None:
        """Decide what follows from the model's answer to the question for the next action."""

    @abstractmethod
    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        """Return the question for the next action."""

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        """Return True if an answer that was cut at the limit of tokens is whole in what it asks for."""
        return False

    def begin(self, draft: Draft) -> None:
        """The first step, or the one that a fork begins with."""
        self._next(draft, draft.first_step)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        asked = draft.asked
        assert asked is not None
        if asked.purpose == "plan":
            draft.ask("act", asked.step)
        elif asked.purpose == "final":
            draft.stop("max_steps_error", last_word(draft.run, reply), self._out_of_steps(draft.run))
        elif reply.finish_reason == CUT and not self.is_whole(draft.spec, reply):
            self.go_on(draft, cut_off(self.when_cut(draft.run, reply)))
        else:
            self.act(draft, reply)

    def when_cut(self, run: Run, reply: ModelReplied) -> str:
        """Return what the model is to do after an answer that was cut off."""
        return WRITE_LESS

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        step = draft.step
        draft.end_step(error)
        self._next(draft, step + 1)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """The model has the last word when the steps are used up."""
        asked = draft.asked
        if error.code == "max-steps":
            draft.call_model("final", draft.step)
        elif error.code == "no-answer" and asked is not None and asked.purpose == "final":
            failed = f"{LAST_WORD_FAILED}{error.message}"
            draft.stop("max_steps_error", failed, self._out_of_steps(draft.run))
        else:
            return False
        return True

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        if purpose == "plan":
            return ModelRequest(messages=chat.planning(run), stop=[END_PLAN])
        if purpose == "final":
            in_text = asked_model(run).calls == "text"
            schema = None if in_text else last_answer_form(run) or answer_form(run)
            return ModelRequest(messages=chat.last_word(run), schema=schema, is_form_needed=False)
        return self.action_request(run, chat)

    def _next(self, draft: Draft, step: int) -> None:
        """A step, with a plan first when one is due (before steps 1, 1+n, 1+2n …)."""
        interval = draft.spec.planning_interval
        draft.ask("plan" if interval and (step - 1) % interval == 0 else "act", step)

    def _out_of_steps(self, run: Run) -> ErrorInfo:
        text = f"Reached the limit of {run.max_steps} steps."
        why = why_idle(run)
        return ErrorInfo("max-steps", f"{text} {why}" if why else text)


def why_idle(run: Run) -> str:
    """Return what was wrong in the run's last steps, if they did nothing; "" where the last one did something."""
    problems: list[str] = []
    for step in reversed(run.steps):
        if isinstance(step, PlanningStep):
            continue
        problem = _problem(step) if isinstance(step, ActionStep) else ""
        if not problem:
            break
        problems.append(problem)
    if not problems:
        return ""
    steps = "step" if len(problems) == 1 else f"{len(problems)} steps"
    return f"In the last {steps} nothing could be done: {problems[0]}"


def _problem(step: ActionStep) -> str:
    """Return why nothing was done in the step; "" when something was."""
    if step.own is not None or any(call.kind != "refused" for call in step.calls):
        return ""
    errors = [call.error for call in step.calls if call.error is not None]
    errors += [step.error] if step.error is not None else []
    return errors[0].message if errors else ""
