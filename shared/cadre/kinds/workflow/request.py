"""Build the model's request in a step, with earlier results and turns of the session, and read its answer."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.answers.lenient_json import LenientError, Reader
from cadre.engine.answers.reasoning import for_people, without_reasoning
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.calls_in_text import ARGUMENT_KEYS, read_call, read_given
from cadre.engine.chat import as_text
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.text_size import fit, observation_of
from cadre.engine.kind import Chat
from cadre.engine.model_request import ModelRequest, asked_model
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.workflow.fold import state_of
from cadre.kinds.workflow.records import FailedStep, WorkflowState
from cadre.kinds.workflow.section import AskAction, RouteChoice, ToolAction, action_of, workflow_of
from cadre.spec.answer_schema import as_parameter, fitted, misfits
from cadre.spec.expressions import filled

_ANSWER = "The answer, complete."


def ask_for_step(run: Run, purpose: str, chat: Chat) -> ModelRequest:
    """The request of the step in work."""
    state = state_of(run)
    step = workflow_of(run.spec).steps[state.step]
    values = values_of(run, state)
    shown = {
        "task": fit(str(values.get("task", "")), known_room(run) // 8),
        "results": results_told(run, state),
        "complaint": state.complaint,
    }
    action = action_of(step)
    if purpose == "route" and step.route is not None:
        text, schema = _route(run, step.route, values, chat, shown)
        return _request(run, chat, text, schema)
    if isinstance(action, ToolAction):
        text, schema = _arguments(run, action, values, chat, shown)
        tools = [one for one in chat.functions() if one["function"]["name"] == action.name]
        return _request(run, chat, text, schema, tools if asked_model(run).calls == "native" else [])
    assert isinstance(action, AskAction)
    form = observation_of(action.schema) if action.schema is not None else ""
    prompt = _room_for(run, text_of(action.prompt, values))
    text = chat.rendered("workflow.ask", prompt=prompt, output_schema=form, **shown)
    return _request(run, chat, text, _as_object(action.schema))


def _route(
    run: Run, route: RouteChoice, values: dict[str, Any], chat: Chat, shown: dict[str, str]
) -> tuple[str, dict[str, Any]]:
    state, options = state_of(run), list(route.options)
    text = chat.rendered(
        "workflow.route",
        step=state.step,
        result=_room_for(run, observation_of(state.value)),
        instruction=_room_for(run, text_of(route.instruction, {**values, state.step: state.value})),
        options=options,
        **shown,
    )
    return text, _as_object({"enum": options, "type": "string"}) or {}


def _arguments(
    run: Run, tool: ToolAction, values: dict[str, Any], chat: Chat, shown: dict[str, str]
) -> tuple[str, dict[str, Any]]:
    card = run.tools.get(tool.name)
    about: dict[str, Any] = {"name": tool.name}
    if card is not None:
        about |= {"description": card.description, "input_schema": card.input_schema}
    instruction = _room_for(run, text_of(tool.instruction, values))
    text = chat.rendered("workflow.arguments", tool=observation_of(about), instruction=instruction, **shown)
    return text, {"type": "object", **(card.input_schema if card is not None else {})}


def _request(
    run: Run, chat: Chat, text: str, schema: dict[str, Any] | None, tools: list[dict[str, Any]] | None = None
) -> ModelRequest:
    asked = as_text([*chat.earlier(run), {"role": "user", "content": text}])
    messages = [chat.messages(run)[0], *asked]
    # What only the prompt asks for is asked for there; a call of the API has its tool's schema.
    held = None if tools or asked_model(run).calls == "text" else schema
    return ModelRequest(messages=messages, tools=tools or [], schema=held)


def _room_for(run: Run, text: str) -> str:
    return fit(text, known_room(run) // 4)


def _as_object(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema as endpoints take it, whose answers are objects."""
    if schema is None or schema.get("type") == "object":
        return schema
    return as_parameter(schema, _ANSWER)


_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
_MARKS = " \t\r\n\"'`.,;:*_“”‘’"
"""The characters that may stand around a label without being part of it."""


def read_tool_arguments(run: Run, tool: str, reply: ModelReplied) -> dict[str, Any]:
    """The arguments, from a call of the API or from JSON in the text. Raises ReadingError."""
    schema = input_schema(run, tool) or {}
    value = reply.calls[0] if reply.calls else _json(reply.content)
    if isinstance(value, RequestedCall) and value.error is not None:
        raise ReadingError(value.error.message)
    if isinstance(value, dict) and not _is_call(value, tool, schema.get("properties", {})):
        return read_given(tool, value, schema)
    if not isinstance(value, dict | RequestedCall):
        raise ReadingError("Answer with one JSON object: the arguments of the call.")
    call = value
    if isinstance(call, dict):
        call = read_call(value, lambda name: schema if _is(name, tool) else None)
    if not _is(call.name, tool):
        raise ReadingError(f"Give the arguments of {tool!r}, not a call of {call.name!r}.")
    return read_arguments(call)


def read_answer(schema: dict[str, Any] | None, reply: ModelReplied) -> Any:
    """The answer: text, or JSON that fits the schema. Raises ReadingError."""
    if schema is None:
        text = for_people(reply.content).strip()
        if not text:
            raise ReadingError("Your answer is empty.")
        return text
    text = without_reasoning(reply.content).strip()
    value = fitted(schema, _json(text) if _looks_like_json(text) else text)
    if isinstance(value, dict) and value.keys() == {"answer"} and misfits(schema, value):
        value = value["answer"]  # an object was asked for, with the answer in it
    if wrong := misfits(schema, value):
        raise ReadingError(f"Your answer does not fit the schema: {'; '.join(wrong)}")
    return value


def read_label(options: Iterable[str], reply: ModelReplied) -> str | None:
    """Return which of the labels was answered, regardless of its case and the marks around it; None if none was."""
    text = without_reasoning(reply.content)
    try:
        value = _json(text) if _looks_like_json(text) else text
    except ReadingError:
        value = text
    if isinstance(value, dict):
        value = next(iter(value.values()), "")
    said = _bare(str(value))
    return next((option for option in options if _bare(option) == said), None)


def _bare(label: str) -> str:
    return label.strip(_MARKS).casefold()


def _is_call(value: dict[str, Any], tool: str, own: dict[str, Any]) -> bool:
    """Return whether it is a call, or looks like one, and no mere arguments; `own` are the parameters of the tool."""
    has_function = isinstance(value.get("function"), dict) and "function" not in own
    name = value.get("name", value.get("tool"))
    if has_function or not isinstance(name, str):
        return has_function
    has_arguments = any(key in value and key not in own for key in ARGUMENT_KEYS)
    return has_arguments or (_is(name, tool) and own.keys().isdisjoint(("name", "tool")))


def _is(name: str, tool: str) -> bool:
    """Return whether a model means the tool by the name."""
    return "".join(name.split()).casefold() == tool.casefold()


def _looks_like_json(text: str) -> bool:
    return text.strip()[:1] in ("{", "[", '"', "'", "`")


def _json(text: str) -> Any:
    """The JSON value that a text is or holds, in a fence or behind other words. Raises ReadingError."""
    text = without_reasoning(text).strip()
    fenced = _FENCED.search(text)
    text = fenced[1].strip() if fenced else text
    begin = text.find("{")
    for at in (0, begin) if begin > 0 else (0,):
        try:
            return Reader(text, at).value()
        except LenientError as error:
            problem = error
    raise ReadingError(f"Your answer is not valid JSON: {problem}")


def values_of(run: Run, state: WorkflowState) -> dict[str, Any]:
    """The values by their names. A result has its step's name."""
    task = run.task
    assert task is not None
    assert run.spec is not None
    given = workflow_of(run.spec).given
    if given is None:
        values: dict[str, Any] = {"task": task.task, "inputs": task.inputs}
    else:
        values = {**given, **task.inputs}
    values |= {"visits": state.visits, "now": state.started_at, **state.results}
    ending, error = state.ending, state.error
    if ending is not None:
        values["undone"] = msgspec.to_builtins(ending.undone)
        error = error or FailedStep.of("", ending.error)
    if error is not None:
        values["error"] = msgspec.to_builtins(error)
    return values


def text_of(template: str, values: dict[str, Any]) -> str:
    """Return a template as text, for any value that it gives. Raises ExpressionError."""
    return observation_of(filled(template, values))


def results_told(run: Run, state: WorkflowState) -> str:
    """Return what the steps so far gave, as a model reads it: each with its share of what there is room for."""
    if not state.results:
        return ""
    most = known_room(run) // 4 // len(state.results)
    texts = {name: fit(observation_of(value), most) for name, value in state.results.items()}
    return "\n".join(f'<result step="{name}">\n{text}\n</result>' for name, text in texts.items())
