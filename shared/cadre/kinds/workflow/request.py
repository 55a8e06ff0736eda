"""Requests to the model in a step: each asks one thing, with the results so far and earlier turns of the session, and
nothing else of the run's own history."""

from typing import Any

from cadre.engine.chat import as_text
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.observation import observation_of
from cadre.engine.context.tokens import fit
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.journal.run import Run
from cadre.kinds.workflow.fold import state_of
from cadre.kinds.workflow.section import AskAction, RouteChoice, ToolAction, action_of, workflow_of
from cadre.kinds.workflow.values import results_told, text_of, values_of
from cadre.spec.answer_schema import as_parameter

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
