"""The kind `task_queue`: a queue of tasks made from the goals, each done by one call, after SuperAGI's task-queue mode.

Every model call is a step, whatever it is about. The queue is state of the journal: it is folded from its own events.
"""

from collections.abc import Sequence

from cadre.engine.answers.answer_form import last_answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.reasoning import behind_reasoning
from cadre.engine.answers.truncation import cut_off
from cadre.engine.context.context_budget import MESSAGE
from cadre.engine.context.observation import clip
from cadre.engine.context.tokens import tokens_of
from cadre.engine.edits import Editable, EditNotAllowed
from cadre.engine.kind import Chat, Deed
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.moves import PARTIAL_RESULT, Answer, Ask, BeginStep, Call, EndStep, Moves, Note, Stop
from cadre.engine.steps import step_in_work
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, CallState, Step
from cadre.kinds.iteration.offer import ask_in_next_form, named_in_offer, offered_schemas
from cadre.kinds.iteration.parse import FINISH, THINK, as_text, is_whole, read_iteration
from cadre.kinds.iteration.records import JsonFormRefused
from cadre.kinds.iteration.thinking import last_action, thinking_question
from cadre.kinds.iteration.view import step_messages, thinking_messages, thought_messages
from cadre.kinds.kind import PlainKind
from cadre.kinds.task_queue import view
from cadre.kinds.task_queue.editing import editable_queue, edited_tasks
from cadre.kinds.task_queue.outcome import Outcome, outcome_of, refusal_in
from cadre.kinds.task_queue.queue import (
    MAX_RESULT_CHARS,
    QUEUE_EVENTS,
    after,
    first_tasks,
    in_order,
    new_task,
    rebuilt,
    take,
)
from cadre.kinds.task_queue.records import (
    DECLARATION,
    QueueAnswerRefused,
    QueueChanged,
    QueueEdited,
    QueueState,
    QueueStep,
    QueueTaskDone,
    QueueTaskTried,
    TaskQueueSpec,
    queue_of,
)
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Edit, ErrorInfo
from cadre.spec.agent import AgentSpec


class TaskQueueKind(PlainKind):
    """`cadre.engine.kind.Kind` for agents that work through a queue of tasks."""

    name = DECLARATION.name
    ending = FINISH

    # --- decide

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        """The first step, or the one that a fork begins with."""
        at = run.task.forks.at if run.task is not None and run.task.forks is not None else 1
        state = rebuilt(arrival.prefix, _section(run))
        return _ask(run, state, at, thinks=_question(arrival.prefix, state) is not None)

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        assert run.spec is not None
        assert run.model is not None
        state, section = state_of(run), _section(run)
        if run.model.purpose == THINK:
            return _tried(run, Outcome(clip(reply.content, MAX_RESULT_CHARS), False))
        if run.model.purpose != state.stage:  # a person has added a task while the answer was written
            return [EndStep(), *_ask(run, state, step_in_work(run) + 1)]
        cut = cut_off(run.spec, self, reply)
        try:
            if cut is not None:
                raise ReadingError(cut.message)
            match state.stage:
                case "initialize":
                    tasks = first_tasks(reply.content, state, section)
                    return _changed(run, [*state.pending, *tasks], tasks)
                case "create":
                    added = new_task(reply.content, state)
                    return _changed(run, [*state.pending, *added], added)
                case "prioritize":
                    return _changed(run, in_order(reply.content, state.pending), [])
                case "analyse":
                    return self._act(run, reply)
                case "conclude":
                    return [Answer(last_answer_of(run, _conclusion(reply.content)))]
        except ReadingError as error:
            return _unread(run, error.info)

    def _act(self, run: Run, reply: ModelReplied) -> Moves:
        """One tool for the task in hand. Raises ReadingError."""
        answer = read_iteration(reply.content, offered_schemas(run))
        if answer.is_end:
            return _tried(run, Outcome(clip(as_text(answer.response) or "done", MAX_RESULT_CHARS), False))
        if answer.is_thinking and _section(run).think:
            return [EndStep(), *_ask(run, state_of(run), step_in_work(run) + 1, thinks=True)]
        return [Call([ev.RequestedCall(named_in_offer(run, answer.tool), answer.arguments)])]

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        return _tried(run, outcome_of(arrival)) if run.current is not None else []

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        return _tried(run, refusal_in(list(calls)))

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        """The answer was turned down: it is asked for once more."""
        return [EndStep(error), *_ask(run, state_of(run), step_in_work(run) + 1)]

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        return ask_in_next_form(run, failure) or super().gave_up(run, purpose, failure, arrival)

    # --- what people edit

    def editable(self, run: Run) -> Editable | None:
        return editable_queue(state_of(run))

    def check_edit(self, run: Run, edit: Edit) -> None:
        state = state_of(run)
        if state.stage == "conclude" and run.model is None:
            raise EditNotAllowed("its answer is being checked", "edit-too-late")
        edited_tasks(state, edit.operations, _section(run))

    def edited(self, run: Run, edit: Edit, arrival: Arrival) -> Moves:
        pending, added = edited_tasks(state_of(run), edit.operations, _section(run))
        return [Note(QueueEdited(step=step_in_work(run), pending=pending, added=added))]

    # --- state

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        own = run.current.own if run.current is not None else None
        match event:
            case ev.RunAccepted():
                run.own = rebuilt(event.prefix, _section(run))
            case ev.StepStarted(name=name) if run.current is not None:
                state = state_of(run)
                task = state.pending[0] if state.stage == "analyse" else ""
                question = _question(run.steps, state) if name == THINK else None
                run.current.own = QueueStep(stage=state.stage, task=task, question=question)
            case ev.ModelAnswered(purpose=purpose, content=content) if purpose == THINK:
                if isinstance(own, QueueStep):
                    own.thought = content
            case JsonFormRefused(form=form):
                state_of(run).form = form
            case _ if isinstance(event, QUEUE_EVENTS):
                take(state_of(run), event, _section(run))
                if isinstance(own, QueueStep):
                    own.events = [*own.events, event]
            case _:
                pass

    # --- what is read

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        state = state_of(run)
        if purpose != THINK:
            return view.request(run, purpose, state, chat)
        question = _question(run.steps, state) or ""
        return ModelRequest(messages=thinking_messages(run, question, view.goals_of(run), chat))

    def frame(self, prompts: Prompts) -> str:
        return view.frame(prompts)

    def held_tokens(self, run: Run) -> int:
        return view.held_tokens(run, state_of(run))

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        if isinstance(step.own, QueueStep) and step.own.question is not None:
            return thought_messages(step.own.thought or "", prompts)
        return step_messages(step, prompts)

    def deed(self, own: KindStep) -> Deed | None:
        assert isinstance(own, QueueStep)
        if own.question is None:
            return None
        return Deed("Thought", own.question, f"Thought about: {own.question}", own.thought, "(no thought)")

    def tokens(self, run: Run, event: JournalEvent) -> int:
        match event:
            case QueueChanged(added=added) | QueueEdited(added=added):
                return sum(tokens_of(task) + MESSAGE for task in added)
            case QueueTaskDone(result=result):
                return tokens_of(result) + MESSAGE
            case ev.ModelAnswered(purpose=purpose, content=content) if purpose == THINK:
                return tokens_of(content) + tokens_of(_question(run.steps, state_of(run)) or "")
            case _:
                return 0

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return is_whole(reply.content)


def state_of(run: Run) -> QueueState:
    """The queue of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, QueueState) else QueueState()


def _section(run: Run) -> TaskQueueSpec:
    assert run.spec is not None
    return queue_of(run.spec)


def _question(steps: Sequence[Step], state: QueueState) -> str | None:
    """What is to be thought through behind the steps; None where nothing is."""
    last = last_action(steps)
    own = last.own if last is not None else None
    is_analysis = isinstance(own, QueueStep) and own.stage == "analyse" and not own.events
    if (
        state.stage != "analyse"
        or not is_analysis
        or not isinstance(own, QueueStep)
        or own.question is not None
    ):
        return None
    return thinking_question(last)


def _ask(run: Run, state: QueueState, step: int, *, thinks: bool = False) -> Moves:
    """The next step: a thought, or what the stage of the queue asks for."""
    if step > run.max_steps:
        text = f"Reached the limit of {run.max_steps} steps. `cadre continue {run.id}` goes on with it."
        return [Stop("max_steps_error", PARTIAL_RESULT, ErrorInfo("max-steps", text))]
    purpose = THINK if thinks else state.stage
    return [BeginStep(step, purpose), Ask(purpose, step)]


def _next(run: Run, events: list[JournalEvent], error: ErrorInfo | None = None) -> Moves:
    """The step ends with these events, and the queue says what comes next."""
    state = after(state_of(run), events, _section(run))
    notes = [Note(event) for event in events]
    if state.stage == "conclude" and _came_to_nothing(run, state):
        nothing = ErrorInfo("nothing-done", f"Nothing was done for any task: {state.done[-1].result}")
        return [*notes, EndStep(error), Stop("error", PARTIAL_RESULT, nothing)]
    return [*notes, EndStep(error), *_ask(run, state, step_in_work(run) + 1)]


def _came_to_nothing(run: Run, state: QueueState) -> bool:
    """Whether no call was ever made and no task answered, so that there is nothing to conclude from."""
    steps = [*run.steps, run.current]
    calls = [call for step in steps if isinstance(step, ActionStep) for call in step.calls]
    failed = all(task.failed for task in state.done)
    return bool(state.done) and failed and all(call.kind == "refused" for call in calls)


def _conclusion(content: str) -> str:
    """The answer without its reasoning. Raises ReadingError where nothing is left."""
    text = behind_reasoning(content).strip()
    if not text:
        raise ReadingError("Your answer is empty.")
    return text


def _changed(run: Run, pending: list[str], added: list[str]) -> Moves:
    changed = QueueChanged(step=step_in_work(run), reason=state_of(run).stage, pending=pending, added=added)
    return _next(run, [changed])


def _tried(run: Run, outcome: Outcome, error: ErrorInfo | None = None) -> Moves:
    """The task in hand is done, is tried again, or is given up."""
    state, step = state_of(run), step_in_work(run)
    task = state.pending[0]
    if outcome.failed and state.tries + 1 < _section(run).tries:
        return _next(run, [QueueTaskTried(step=step, task=task, reason=outcome.text)], error)
    done = QueueTaskDone(step=step, task=task, result=outcome.text, failed=outcome.failed)
    return _next(run, [done], error)


def _unread(run: Run, error: ErrorInfo) -> Moves:
    """The answer is asked for again, done without, or ends the run: without tasks there is nothing to do."""
    state, step = state_of(run), step_in_work(run)
    if state.stage == "analyse":
        return _tried(run, Outcome(error.message, True), error)
    given_up = state.tries + 1 >= _section(run).tries
    unread = QueueAnswerRefused(step=step, purpose=state.stage, reason=error.message, given_up=given_up)
    if given_up and state.stage in ("initialize", "conclude"):
        return [Note(unread), EndStep(error), Stop("error", PARTIAL_RESULT, error)]
    return _next(run, [unread], error)


TASK_QUEUE = TaskQueueKind()
