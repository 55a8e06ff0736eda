"""Build what the model of a task-queue agent reads: the queue, and what was tried for the task in hand."""

from collections.abc import Iterator, Sequence

from cadre.engine.answers.answer_form import last_answer_form
from cadre.engine.calls.call_schema import object_of
from cadre.engine.chat import as_text, task_text
from cadre.engine.context.context_budget import MESSAGE, known_room, pinned
from cadre.engine.context.text_size import fit, tokens_of
from cadre.engine.kind import Chat
from cadre.engine.model_request import ModelRequest
from cadre.engine.parts import with_inputs
from cadre.journal.run import ActionStep, Run, Step
from cadre.kinds.iteration import view
from cadre.kinds.iteration.view import in_form, iteration_schema
from cadre.kinds.task_queue.records import DoneTask, QueueState, QueueStep, queue_of
from cadre.prompting.tool_text import to_json

_TASKS = object_of(tasks={"type": "array", "items": {"type": "string"}})
"""Answers about the queue, in the form of a JSON schema, which must be an object."""

MOST_DONE = 10
"""The number of done tasks, the last ones, that are listed with their outcomes."""

MAX_DONE_TOKENS = 600


def request(run: Run, purpose: str, state: QueueState, chat: Chat) -> ModelRequest:
    """The question of the stage that the queue is in."""
    if purpose == "analyse":
        return _analysis(run, state, chat)
    asked = [
        *chat.earlier(run),
        view.user(_question(run, purpose, state, chat)),
        *chat.read(run, _tries(run))[_summarized(run) :],
    ]
    if purpose != "conclude":
        return in_form(run, as_text(asked), _TASKS, shown_as_object=False)
    answer = last_answer_form(run)
    return in_form(run, as_text(asked), answer) if answer else ModelRequest(messages=as_text(asked))


def _analysis(run: Run, state: QueueState, chat: Chat) -> ModelRequest:
    """System prompt, current time, the run's goal, the queue, and what was tried for the task in hand."""
    assert run.spec is not None
    section = queue_of(run.spec)
    covered = run.summary.covers if run.summary is not None else 0
    given = [step for step in run.steps[pinned(run).start :] if not isinstance(step, ActionStep)]
    tried = [step for step in _tries(run) if run.steps.index(step) >= covered]
    queue = chat.rendered(
        "queue.analyse",
        task=fit(state.pending[0], _part(run)),
        pending=_within(state.pending[1:], _part(run)),
        done=_done(state, min(MAX_DONE_TOKENS, _part(run))),
    )
    system = chat.messages(run)[0]
    now = chat.read(run, given)[: -_summarized(run) or None]
    told = [*chat.earlier(run), *now, view.user(queue), *chat.read(run, tried)[_summarized(run) :]]
    messages = [
        system,
        view.now_message(run, chat),
        *as_text([*told, view.user(chat.rendered("iteration.next"))]),
    ]
    return in_form(run, messages, iteration_schema(run, think=section.think, ends=False))


def _question(run: Run, purpose: str, state: QueueState, chat: Chat) -> str:
    assert run.spec is not None
    section, part = queue_of(run.spec), _part(run)
    goals = [fit(goal, part) for goal in goals_of(run)]
    pending, done = _within(state.pending, part), _done(state, min(MAX_DONE_TOKENS, part))
    match purpose:
        case "initialize":
            return chat.rendered(
                "queue.initialize",
                goals=goals,
                constraints=with_inputs(run, section.constraints),
                instructions=with_inputs(run, run.spec.instructions).strip(),
                most=str(min(section.initial, section.most)),
                offered=_offered(run),
            )
        case "create":
            last = state.done[-1]
            return chat.rendered(
                "queue.create",
                goals=goals,
                task=fit(last.task, part),
                result=fit(last.result, part),
                pending=pending,
                done=done,
            )
        case "prioritize":
            return chat.rendered("queue.prioritize", goals=goals, pending=pending, done=done)
        case _:
            form = run.spec.output_schema
            schema = to_json(form) if form is not None else ""
            every = _within([*map(_told, reversed(state.done))], 2 * part)[::-1]
            return chat.rendered("queue.conclude", goals=goals, done=every, output_schema=schema)


def _offered(run: Run) -> str:
    """Return what the tasks can be done with: each tool and member on a line."""
    tools = [(tool.name, tool.description) for tool in run.tools.values()]
    members = [(member.name, member.description) for member in run.members.values()]
    return "\n".join(f"- {name}: {about}" for name, about in tools + members)


def goals_of(run: Run) -> list[str]:
    """The agent's goals, and the task of the run."""
    assert run.spec is not None
    goals = with_inputs(run, queue_of(run.spec).goals)
    return [*goals, *([task_text(run)] if task_text(run).strip() else [])]


def list_tokens(run: Run, state: QueueState) -> int:
    """The most that the lists of a request take up."""
    texts = [*state.pending, *map(_told, state.done)]
    return min(sum(tokens_of(text) + MESSAGE for text in texts), 4 * _part(run))


def _part(run: Run) -> int:
    return known_room(run) // 16


def _done(state: QueueState, tokens: int) -> list[str]:
    return _within([_told(one) for one in reversed(state.done[-MOST_DONE:])], tokens)[::-1]


def _told(one: DoneTask) -> str:
    return f"{one.task}: {'failed: ' if one.failed else ''}{one.result or 'done'}"


def _within(texts: Sequence[str], tokens: int) -> list[str]:
    """As many of the texts, from the first on, as there is room for; the last of them may be cut."""

    def found() -> Iterator[str]:
        left = tokens
        for text in texts:
            if left < MESSAGE:
                return
            yield (cut := fit(text, left))
            left -= tokens_of(cut)

    return [*found()]


def _tries(run: Run) -> list[Step]:
    """The steps before this one that were about the very same thing, and in vain."""
    now = run.current.own if run.current is not None else None
    if not isinstance(now, QueueStep):
        return []
    tries: list[Step] = []
    for step in reversed(run.steps):
        own = step.own if isinstance(step, ActionStep) else None
        if not isinstance(own, QueueStep) or (own.stage, own.task) != (now.stage, now.task):
            break
        tries.append(step)
    return tries[::-1]


def _summarized(run: Run) -> int:
    """Messages of the summary, which stands once in a request."""
    return 1 if run.summary is not None else 0
