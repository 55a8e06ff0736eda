"""The kind `task_queue`: a queue of tasks made from the goals, each done by one call, after SuperAGI's task-queue mode.

Every model call is a step, regardless of its purpose. The queue is state of the journal: it is folded from its own
events.
"""

from collections.abc import Iterator, Sequence

from cadre.engine.answers.answer_form import CUT, cut_off, last_answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.reasoning import for_people
from cadre.engine.context.text_size import clip
from cadre.engine.draft import Draft
from cadre.engine.graph import MODEL, agent_graph, goal_nodes
from cadre.engine.kind import Chat, Editable, EditNotAllowed, Kind, StepAccount
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import ActionStep, CallState, Run, Step
from cadre.kinds.iteration.records import JsonFormRefused
from cadre.kinds.iteration.view import (
    THINK,
    as_text,
    ask_in_next_form,
    contract_of,
    is_whole,
    last_action,
    name_in_toolset,
    offered_schemas,
    read_iteration,
    step_messages,
    thinking_messages,
    thinking_question,
    thought_messages,
)
from cadre.kinds.task_queue import view
from cadre.kinds.task_queue.queue import (
    MAX_RESULT_CHARS,
    QUEUE_EVENTS,
    editable_queue,
    edited_tasks,
    first_tasks,
    in_order,
    new_task,
    rebuilt,
    take,
)
from cadre.kinds.task_queue.records import (
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
from cadre.spec.contract import AgentContract, TeamReach


class TaskQueueKind(Kind):
    """`cadre.engine.kind.Kind` for agents that work through a queue of tasks."""

    # --- decide

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return contract_of(spec, queue_of(spec))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    def begin(self, draft: Draft) -> None:
        """The first step, or the one that a fork begins with."""
        thinks = _question(draft.arrival.prefix, state_of(draft.run)) is not None
        _ask(draft, draft.first_step, thinks=thinks)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        state, section = state_of(draft.run), _section(draft.run)
        assert draft.asked is not None
        if draft.asked.purpose == THINK:
            _tried(draft, for_people(reply.content))
            return
        if draft.asked.purpose != state.stage:  # a person has added a task while the answer was written
            self.go_on(draft)
            return
        try:
            if reply.finish_reason == CUT and not is_whole(reply.content):
                raise ReadingError(cut_off().message)
            match state.stage:
                case "initialize":
                    tasks = first_tasks(reply.content, state, section)
                    _change(draft, [*state.pending, *tasks], tasks)
                case "create":
                    added = new_task(reply.content, state)
                    _change(draft, [*state.pending, *added], added)
                case "prioritize":
                    _change(draft, in_order(reply.content, state.pending), [])
                case "analyse":
                    self._act(draft, reply)
                case "conclude":
                    draft.answer(last_answer_of(draft.run, _conclusion(reply.content)))
        except ReadingError as error:
            _unread(draft, error.info)

    def _act(self, draft: Draft, reply: ModelReplied) -> None:
        """One tool for the task in hand. Raises ReadingError."""
        answer = read_iteration(reply.content, offered_schemas(draft.run))
        if answer.is_end:
            _tried(draft, as_text(answer.response) or "done")
        elif answer.is_thinking and _section(draft.run).think:
            step = draft.step
            draft.end_step()
            _ask(draft, step + 1, thinks=True)
        else:
            name = name_in_toolset(draft.run, answer.tool)
            draft.call([ev.RequestedCall(name, answer.arguments)])

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        error = calls[0].error
        if error is not None:
            _tried(draft, error.message, failed=True)
        else:
            _tried(draft, calls[0].observation or "")

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """Ask for what the stage of the queue wants next; an answer that was turned down is asked for once more."""
        step = draft.step
        draft.end_step(error)
        _ask(draft, step + 1)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        return ask_in_next_form(draft)

    # --- what people edit

    def editable(self, run: Run) -> Editable | None:
        return editable_queue(state_of(run))

    def edit(self, draft: Draft, edit: Edit) -> None:
        state = state_of(draft.run)
        if state.stage == "conclude" and draft.run.model is None:
            raise EditNotAllowed("its answer is being checked", "edit-too-late")
        pending, added = edited_tasks(state, edit.operations, _section(draft.run))
        draft.edited(edit)
        draft.note(QueueEdited(step=draft.step, pending=pending, added=added))

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
            case ev.ContextOverflowed() | ev.ModelAnswered():
                pass  # the context may have another size now
            case _:
                return
        state_of(run).tokens = view.list_tokens(run, state_of(run))

    # --- what is read

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        state = state_of(run)
        if purpose != THINK:
            return view.request(run, purpose, state, chat)
        question = _question(run.steps, state) or ""
        return ModelRequest(messages=thinking_messages(run, question, view.goals_of(run), chat))

    def messages(self, step: ActionStep, prompts: Prompts) -> list[ChatMessage] | None:
        if isinstance(step.own, QueueStep) and step.own.question is not None:
            return thought_messages(step.own.thought or "", prompts)
        return step_messages(step, prompts)

    def account(self, own: KindStep) -> StepAccount | None:
        assert isinstance(own, QueueStep)
        if own.question is None:
            return None
        return StepAccount("Thought", own.question, f"Thought about: {own.question}", own.thought, "(no thought)")


def state_of(run: Run) -> QueueState:
    """The queue of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, QueueState) else QueueState()


def _section(run: Run) -> TaskQueueSpec:
    assert run.spec is not None
    return queue_of(run.spec)


def _question(steps: Sequence[Step], state: QueueState) -> str | None:
    """Return the question to think through after the steps, or None."""
    last = last_action(steps)
    own = last.own if last is not None else None
    is_analysis = isinstance(own, QueueStep) and own.stage == "analyse" and not own.events
    if state.stage != "analyse" or not is_analysis or not isinstance(own, QueueStep) or own.question is not None:
        return None
    return thinking_question(last)


def _ask(draft: Draft, step: int, *, thinks: bool = False) -> None:
    """Begin the next step: a thought, or what the stage of the queue asks for."""
    run = draft.run
    if step > run.max_steps:
        text = f"Reached the limit of {run.max_steps} steps. `cadre resume {run.id}` goes on with it."
        draft.stop("max_steps_error", draft.found(), ErrorInfo("max-steps", text))
        return
    purpose = THINK if thinks else state_of(run).stage
    draft.begin_step(step, purpose)
    draft.ask(purpose, step)


def _next(draft: Draft, error: ErrorInfo | None = None) -> None:
    """End the step, and begin what the queue says comes next."""
    state, step = state_of(draft.run), draft.step
    if state.stage == "conclude" and _came_to_nothing(draft.run, state):
        nothing = ErrorInfo("nothing-done", f"Nothing was done for any task: {state.done[-1].result}")
        draft.end_step(error)
        draft.stop("error", draft.found(), nothing)
        return
    draft.end_step(error)
    _ask(draft, step + 1)


def _came_to_nothing(run: Run, state: QueueState) -> bool:
    """Return whether no call was ever made and no task answered, so that there is nothing to conclude from."""
    steps = [*run.steps, run.current]
    calls = [call for step in steps if isinstance(step, ActionStep) for call in step.calls]
    failed = all(task.failed for task in state.done)
    return bool(state.done) and failed and all(call.kind == "refused" for call in calls)


def _conclusion(content: str) -> str:
    """The answer without its reasoning. Raises ReadingError where nothing is left."""
    text = for_people(content).strip()
    if not text:
        raise ReadingError("Your answer is empty.")
    return text


def _change(draft: Draft, pending: list[str], added: list[str]) -> None:
    reason = state_of(draft.run).stage
    draft.note(QueueChanged(step=draft.step, reason=reason, pending=pending, added=added))
    _next(draft)


def _tried(draft: Draft, outcome: str, error: ErrorInfo | None = None, *, failed: bool = False) -> None:
    """The task in hand is done, is tried again, or is given up."""
    state, step, text = state_of(draft.run), draft.step, clip(outcome, MAX_RESULT_CHARS)
    task = state.pending[0]
    if failed and state.tries + 1 < _section(draft.run).tries:
        draft.note(QueueTaskTried(step=step, task=task, reason=text))
    else:
        draft.note(QueueTaskDone(step=step, task=task, result=text, failed=failed))
    _next(draft, error)


def _unread(draft: Draft, error: ErrorInfo) -> None:
    """The answer is asked for again, done without, or ends the run: without tasks there is nothing to do."""
    stage, tries = state_of(draft.run).stage, state_of(draft.run).tries
    if stage == "analyse":
        _tried(draft, error.message, error, failed=True)
        return
    given_up = tries + 1 >= _section(draft.run).tries
    unread = QueueAnswerRefused(step=draft.step, purpose=stage, reason=error.message, given_up=given_up)
    draft.note(unread)
    if given_up and stage in ("initialize", "conclude"):
        draft.end_step(error)
        draft.stop("error", draft.found(), error)
    else:
        _next(draft, error)


TASK_QUEUE = TaskQueueKind()


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: goals, the queue that is made of them, and how a task is done."""
    section = queue_of(spec)
    tasks = "tasks"
    yield from agent_graph(spec, "concludes", goal_nodes(section.goals, "initialize"), calls=tasks)
    yield f'    initialize["initialize<br/>at most {section.initial} tasks"] --> queue'
    yield f'    queue[("queue<br/>at most {section.most} tasks")]'
    yield f'    queue -->|"first"| {tasks}["does a task<br/>at most {section.tries} tries"]'
    after = [name for name, wanted in (("create", section.create), ("prioritize", section.prioritize)) if wanted]
    for node in after:
        yield f'    {node}["{node}"]'
    yield f"    {' --> '.join([tasks, *after, 'queue'])}"
    yield f'    queue -->|"empty"| {MODEL}'
