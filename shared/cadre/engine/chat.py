"""Render the model's input: a run's memory as the messages of a chat completion.

A `Transcript` keeps what it has rendered, so the cost of a step does not grow with the steps before it.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import final_answer_parameters
from cadre.engine.context.context_budget import (
    MESSAGE,
    known_room,
    limit,
    message_of,
    pinned,
    summary_tokens,
    task_of,
    to_cover,
)
from cadre.engine.context.images import Pictured, latest, with_images_of
from cadre.engine.context.text_size import CHARACTERS, fit, observation_of, tokens_of
from cadre.engine.kind import StepAccount, account_of, kind_of
from cadre.engine.model_request import ChatMessage, ModelRequest, asked_model, spec_as_asked, without_items
from cadre.engine.parts import with_inputs
from cadre.journal.run import (
    SUMMARY,
    ActionStep,
    AnswerStep,
    CallState,
    MessageStep,
    PlanningStep,
    RecalledStep,
    Run,
    Step,
    TaskStep,
    is_fresh,
)
from cadre.prompting.prompt_file import shipped_files
from cadre.prompting.prompts import NO_TERMS, Prompts, kind_for
from cadre.prompting.tool_text import told_with_answer
from cadre.spec.kinds import facts_of
from cadre.spec.member_call import call_schema
from cadre.spec.names import FINAL_ANSWER

LONGEST_CALL_ID = 40
"""Characters: the OpenAI API refuses a longer id of a tool call."""

_NO_NAME, _LONGEST_NAME = re.compile(r"[^a-zA-Z0-9_-]"), 64
"""The characters that the API refuses in a function's name, and the longest name that it takes."""

_NEVER_THERE = (
    "\n\nYou were meant to have these too, but nothing offers them, so they cannot be called: {names}."
    " Where the task needs one of them, say that it is missing; do not answer as if it had been done."
)


class Transcript:
    """Renders one run; it must see the run's states in order, as `fold` makes them."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._messages: list[ChatMessage] = []
        self._summary: list[ChatMessage] = []
        self._pictured = False
        self._rendered = 0
        self._begun = (0, 0)
        self._toolset: tuple[object, object, object, object] | None = None
        self._system: ChatMessage = {}
        self._tools: list[dict[str, Any]] = []

    def request(self, run: Run, purpose: str) -> ModelRequest:
        self.catch_up(run)
        request = self._condensing(run) if purpose == SUMMARY else kind_of(run).request(run, purpose, self)
        request.fallback = run.choice.fallback if run.choice is not None else 0
        request.learned = run.learned
        return request

    def messages(self, run: Run) -> list[ChatMessage]:
        """The system prompt, and every step as the model reads it."""
        shown = latest(self._messages, run) if self._pictured else self._messages
        return [self._system, *shown]

    def functions(self) -> list[dict[str, Any]]:
        """Tools, members and `final_answer`, as functions of the API."""
        return self._tools

    def catch_up(self, run: Run) -> None:
        """Render what is new, so that the next request need not."""
        calls = asked_model(run).calls if run.spec is not None else None
        known, missing = self._toolset, _missing(run)
        same = known is not None and known[0] is run.tools and known[1] is run.members
        if known is None or not same or known[2:] != (calls, missing):
            self._toolset = (run.tools, run.members, calls, missing)
            self._system = system_message(run, self._prompts)
            self._tools = functions(run)
        begun = (run.summary.covers if run.summary is not None else 0, run.overflows)
        if self._begun != begun:
            self._begun = begun
            self._begin_anew(run)
        for step in run.steps[self._rendered :]:
            self._add(step, run)
        self._rendered = len(run.steps)

    def _begin_anew(self, run: Run) -> None:
        """With the summary in place of what it covers, but for the task."""
        self._messages, self._summary = [], []
        self._rendered = run.summary.covers if run.summary is not None else 0
        for place in pinned(run):
            if place < self._rendered:
                self._add(run.steps[place], run)
        if run.summary is not None:
            summary = _user(self._prompts.summary(run.summary.text))
            self._messages.append(summary)
            self._summary.append(summary)

    def _add(self, step: Step, run: Run) -> None:
        rendered = self._messages_of(step, run)
        self._messages += rendered
        self._pictured = self._pictured or any(isinstance(message, Pictured) for message in rendered)
        self._summary += in_summary(step, rendered)

    def _messages_of(self, step: Step, run: Run) -> list[ChatMessage]:
        if isinstance(step, TaskStep):
            step = msgspec.structs.replace(step, task=task_of(step, run))
        elif isinstance(step, MessageStep):
            step = msgspec.structs.replace(step, text=message_of(step, run))
        return messages_of(step, run, self._prompts)

    def _condensing(self, run: Run) -> ModelRequest:
        first, always = run.summary.covers if run.summary is not None else 0, pinned(run)
        past = [
            message
            for place in range(first, to_cover(run) or first)
            if place not in always
            for message in self._messages_of(run.steps[place], run)
        ]
        prompt = summary_prompt(run, as_text(past), task_text(run), self._prompts)
        return ModelRequest(messages=[_user(prompt)], max_tokens=summary_tokens(run), native_tools=False)

    def earlier(self, run: Run) -> list[ChatMessage]:
        """Return what was said and done in the turns that the run goes on from."""
        covers = run.summary.covers if run.summary is not None else 0
        told = [_user(self._prompts.summary(run.summary.text))] if run.summary is not None else []
        for step in run.steps[covers : pinned(run).start]:
            told += in_summary(step, self._messages_of(step, run))
        return told

    def planning(self, run: Run) -> list[ChatMessage]:
        """The request for a plan, or for a new one."""
        task = repeated_task(run)
        tools, members = list(run.tools.values()), list(run.members.values())
        if is_fresh(run.steps):
            before = [step for step in run.steps if isinstance(step, RecalledStep | MessageStep)]
            known = [message for step in before for message in self._messages_of(step, run)]
            return [*known, _user(self._prompts.initial_plan(whole_task(run), tools, members))]
        asked = _user(self._prompts.update_plan_post(task, tools, members, run.max_steps - run.step))
        return [
            {"role": "system", "content": self._prompts.update_plan_pre(task)},
            *as_text([*latest(self._summary, run), asked]),
        ]

    def last_word(self, run: Run) -> list[ChatMessage]:
        """The request for an answer when the steps are used up."""
        return [
            {"role": "system", "content": self._prompts.final_pre()},
            *as_text([*latest(self._messages, run), _user(self._final_question(run))]),
        ]

    def read(self, run: Run, steps: Sequence[Step]) -> list[ChatMessage]:
        """These steps alone as the model reads them, behind the summary of the run if there is one."""
        pinned_steps = [step for step in steps if not isinstance(step, ActionStep)]
        acted = [step for step in steps if isinstance(step, ActionStep)]
        messages = [message for step in pinned_steps for message in self._messages_of(step, run)]
        messages += [_user(self._prompts.summary(run.summary.text))] if run.summary is not None else []
        return [*messages, *(message for step in acted for message in self._messages_of(step, run))]

    def rendered(self, key: str, **values: Any) -> str:
        """A template of the kind's own."""
        return self._prompts.rendered(key, **values)

    def _final_question(self, run: Run) -> str:
        """With the form of the answer: an endpoint may refuse the request that carries it."""
        schema = run.spec.output_schema if run.spec is not None else None
        return self._prompts.final_post(repeated_task(run), schema)


def task_text(run: Run) -> str:
    """The text of the run's task, as the model reads it."""
    return next((step.task for step in reversed(run.steps) if isinstance(step, TaskStep)), "")


def whole_task(run: Run) -> str:
    """The task as far as the context has room for it."""
    return next((task_of(step, run) for step in reversed(run.steps) if isinstance(step, TaskStep)), "")


def repeated_task(run: Run) -> str:
    """The task where the memory holds it as well."""
    text = whole_task(run)
    return fit(text, known_room(run) // 8) if run.spec is not None else text


def base_tokens(run: Run, prompts: Prompts) -> int:
    """Return what a request of the run takes up besides its memory, whichever its purpose."""
    tools, members = list(run.tools.values()), list(run.members.values())
    asked = system_message(run, prompts)["content"]
    if run.spec is None or run.spec.model.calls == "native":
        asked += msgspec.json.encode(functions(run)).decode()
    asked += _frame(run, prompts)
    planned = prompts.update_plan_pre("") + prompts.update_plan_post("", tools, members, 0)
    schema = run.spec.output_schema if run.spec is not None else None
    last = prompts.final_pre() + prompts.final_post("", schema)
    longest = max(map(tokens_of, (asked, planned, prompts.initial_plan("", tools, members), last)))
    return longest + 8 * MESSAGE


def _frame(run: Run, prompts: Prompts) -> str:
    """Return the longest two of the templates of the run's kind: a request holds no more of them at length."""
    if run.spec is None or not kind_of(run).guided:
        return ""  # no summary of its steps would make room
    file = shipped_files()[kind_for(run.spec)]
    if (file.shares or run.spec.kind) != run.decided_by:
        return ""  # they are for another kind that may decide runs of the agent
    texts = sorted((prompts.texts[key] for key in file.templates), key=len)
    return "".join(texts[-2:])


def system_message(run: Run, prompts: Prompts) -> ChatMessage:
    """The message with the instructions."""
    instructions = with_inputs(run, run.spec.instructions) if run.spec else ""
    terms = NO_TERMS
    if run.spec is not None:
        terms = with_inputs(run, dict(facts_of(spec_as_asked(run)).terms()))
    tools, members = list(run.tools.values()), list(run.members.values())
    schema = run.spec.output_schema if run.spec else None
    text = prompts.system(tools, members, instructions, terms, schema)
    if missing := _missing(run):
        text += _NEVER_THERE.format(names=", ".join(map(repr, missing)))
    return {"role": "system", "content": text}


def _missing(run: Run) -> list[str]:
    """Return the names of the agent's file that its model would be offered, and that nothing has ever served."""
    shown = [*run.spec.tools, *run.spec.team] if run.spec is not None and run.missing else []
    return [name for name in run.missing if name in shown]


def functions(run: Run) -> list[dict[str, Any]]:
    """Tools, team members and `final_answer` as functions that the model may call."""
    return [
        *(_function(tool.name, tool.description, tool.input_schema) for tool in run.tools.values()),
        *(
            _function(member.name, told_with_answer(member), call_schema(member.input_schema))
            for member in run.members.values()
        ),
        *(
            [
                _function(
                    FINAL_ANSWER,
                    "Gives the final answer to the task and ends it.",
                    final_answer_parameters(run),
                )
            ]
            if run.task is None or not run.task.terms.ends_with_call
            else []
        ),
    ]


def messages_of(step: Step, run: Run, prompts: Prompts) -> list[ChatMessage]:
    """The messages that a step is read as."""
    match step:
        case TaskStep():
            return [_with_images(prompts.new_task(_task_as_read(step, run, prompts)), step.images)]
        case RecalledStep():
            return [_user(prompts.recalled(step.memories))]
        case MessageStep():
            return [_user(step.text)]
        case PlanningStep():
            return [
                {"role": "assistant", "content": prompts.plan(step.plan, first=step.first)},
                _user(prompts.proceed()),
            ]
        case ActionStep():
            read = kind_of(run).messages(step, prompts) if run.spec is not None else None
            return with_images_of(step, _action(step, prompts) if read is None else read)
        case AnswerStep():
            return [{"role": "assistant", "content": observation_of(step.output)}]


def _task_as_read(step: TaskStep, run: Run, prompts: Prompts) -> str:
    """Return the task of a part of the agent's own work by the template of its kind, that of a manager by its own."""
    framed = facts_of(run.spec).task if run.spec is not None else None
    if framed is not None:
        template, values = framed
        return prompts.rendered(template, task=step.task, **values)
    form = run.spec.output_schema if run.spec is not None else None
    return prompts.managed_task(run.agent, step.task, form) if step.delegated else step.task


def in_summary(step: Step, rendered: list[ChatMessage]) -> list[ChatMessage]:
    """A step in summary mode: what was asked, called and observed, without plans and the model's prose."""
    if isinstance(step, PlanningStep):
        return []
    if isinstance(step, AnswerStep):
        return rendered
    kept = [{**without_items(m), "content": _called(step)} if m["role"] == "assistant" else m for m in rendered]
    return [m for m in kept if m["role"] != "assistant" or m["content"] or m.get("tool_calls")]


def _called(step: Step) -> str | None:
    """Return what a step did, when its model wrote that in text: the block of code, or the calls."""
    if not isinstance(step, ActionStep):
        return None
    account = account_of(step)
    if account is not None:
        return account.written
    return None if step.native or not step.asked else _written_out([_tool_call(call) for call in step.asked])


def _written_out(calls: list[dict[str, Any]]) -> str:
    listed = "\n".join(f"{c['function']['name']} {c['function']['arguments']}" for c in calls)
    return f"Calling tools:\n{listed}"


def as_text(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Tool calls and their results written out, and roles in turns: for requests that offer no functions."""
    written: list[ChatMessage] = []
    for message in map(without_items, messages):
        if calls := message.get("tool_calls"):
            said = f"{message['content']}\n" if message.get("content") else ""
            message = {"role": "assistant", "content": said + _written_out(calls)}
        elif message["role"] == "tool":
            message = _user(f"Observation:\n{message['content']}")
        last = written[-1] if written else {"role": None, "content": None}
        before, now = last["content"], message["content"]
        if last["role"] == message["role"] and isinstance(before, str) and isinstance(now, str):
            written[-1] = {**last, "content": f"{before}\n\n{now}"}
        else:
            written.append(message)
    return written


def _action(step: ActionStep, prompts: Prompts) -> list[ChatMessage]:
    said: ChatMessage = {"role": "assistant", "content": step.content or None}
    if step.items:
        said |= {"items": step.items, "items_of": step.items_of}
    calls = step.asked
    if calls and step.native:
        said["tool_calls"] = [_tool_call(call) for call in calls]
        return [
            said,
            *({"role": "tool", "tool_call_id": _call_id(call), "content": observed(call, prompts)} for call in calls),
        ]
    said["content"] = step.content or "(empty)"
    account = account_of(step)
    if account is not None:
        return [said, _user(_seen(account, step, prompts))]
    seen = ["Observation:\n" + "\n\n".join(_observations(step, prompts))] if calls else []
    seen += [prompts.error(step.error.message)] if step.error is not None else []
    if not seen:
        # The run's last step: its answer follows.
        return [said] if step.content else []
    return [said, _user("\n".join(seen))]


def _observations(step: ActionStep, prompts: Prompts) -> list[str]:
    """Return the outcome of each call that the model has asked for in its text."""
    return [f"{call.name}: {observed(call, prompts)}" for call in step.asked]


def _seen(account: StepAccount, step: ActionStep, prompts: Prompts) -> str:
    """Return the text of a step's result for the model, with the reason where the step failed."""
    observed = [account.seen] if account.seen else []
    observed += _observations(step, prompts) if account.with_calls else []
    seen = ["Observation:\n" + "\n\n".join(observed)] if observed else []
    seen += [prompts.error(step.error.message)] if step.error is not None else []
    return "\n".join(seen) or account.nothing


def observed(call: CallState, prompts: Prompts) -> str:
    """Return what a call came to, as its model reads it."""
    return prompts.error(call.error.message) if call.error is not None else call.observation or ""


def _tool_call(call: CallState) -> dict[str, Any]:
    asked = call.correction or call
    arguments = asked.arguments
    if call.kind == "member" and not arguments.get("additional_args"):
        # The journal keeps an empty one for a member that was given none.
        arguments = {name: value for name, value in arguments.items() if name != "additional_args"}
    return {
        "id": _call_id(call),
        "type": "function",
        "function": {"name": _as_name(asked.name), "arguments": msgspec.json.encode(arguments).decode()},
    }


def _as_name(invented: str) -> str:
    """Models invent names, which endpoints then refuse as they are; the call says what was wrong with it."""
    return _NO_NAME.sub("_", invented)[:_LONGEST_NAME] or "_"


def _call_id(call: CallState) -> str:
    """The end of a call's id distinguishes it from the run's other calls, and the API takes no longer one."""
    return call.id[-LONGEST_CALL_ID:]


def _function(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def _user(text: str) -> ChatMessage:
    return {"role": "user", "content": text}


def _with_images(text: str, images: list[str]) -> ChatMessage:
    if not images:
        return _user(text)
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


_TEMPLATE = 600
"""Tokens kept free for the words of the template around the texts."""


def summary_prompt(run: Run, past: list[dict[str, Any]], task: str, prompts: Prompts) -> str:
    """`past` holds the messages to be covered, in plain text; the request never outgrows the context either."""
    most = summary_tokens(run)
    free = limit(run) - most - _TEMPLATE
    task = fit(task, max(0, free // 8))
    before = fit(run.summary.text, most) if run.summary is not None else None
    free -= tokens_of(task) + (tokens_of(before) if before is not None else 0)
    text = fit("\n\n".join(f"{m['role']}:\n{_words(m['content'])}" for m in past), max(0, free - MESSAGE))
    if before is None:
        return prompts.agent_summary(task, text, most * CHARACTERS)
    return prompts.agent_recursive_summary(task, before, text, most * CHARACTERS)


def _words(content: Any) -> str:
    """The text of a message; images say nothing in a summary."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part.get("type") == "text")
