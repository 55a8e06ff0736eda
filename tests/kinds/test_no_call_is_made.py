"""Text that is no call is never carried out, by agents of any kind, and what is meant as a call is."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cadre.journal import events as ev
from cadre.kinds.code.records import BlockStarted
from cadre.kinds.code.section import CodeSpec
from cadre.kinds.goals.records import GoalsSpec
from cadre.kinds.solution.records import SolutionSpec
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.cards import ToolCard
from cadre.spec.kinds import sections
from cadre.spec.model import ModelSpec
from unit.loop.build import KID, SimulatedRun, Toolset, spec
from unit.test_reasoning import DROPPED

Schema = dict[str, Any]


def schema(*required: str, closed: bool = True, **properties: Schema) -> Schema:
    whole = {"type": "object", "properties": properties, "required": [*required]}
    return whole | ({"additionalProperties": False} if closed else {})


TEXT = {"type": "string", "description": "Which one."}
SCHEMAS: dict[str, Schema] = {
    "wipe": schema("disk", disk=TEXT),
    "wipe_all": schema(),
    "open": schema(closed=False),
    "loose": schema(closed=False, disk=TEXT),
    "anything": {"type": "object"},
    "table": schema("columns", columns={"type": "object", "description": "By name."}),
    "any_value": schema("value", value={"description": "What it is."}),
    "typed": schema(type=TEXT, properties={"type": "object"}, closed=False),
    "referring": {
        **schema("at", at={"$ref": "#/$defs/At"}, closed=False),
        "$defs": {"At": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    },
}


def offer(schemas: dict[str, Schema] = SCHEMAS) -> Toolset:
    cards = {name: ToolCard(name=name, description="Does it.", input_schema=one) for name, one in schemas.items()}
    return Toolset(tools=cards, members={"kid": KID})


class Form(NamedTuple):
    """A kind of agent, and how its model writes a call."""

    fields: dict[str, Any]
    writes: Callable[[Any], Any] = lambda call: call
    before: tuple[str, ...] = ()

    def says(self, content: str, schemas: dict[str, Schema] = SCHEMAS) -> tuple[list[ev.AnyEvent], str]:
        """Return what follows from an answer; and what the model read was wrong."""
        fields = {"kind": "tool_calling", **self.fields, "tools": [*schemas]}
        sim = SimulatedRun(spec(**fields), offer(schemas)).begin("Do it.")
        for text in self.before:
            sim.say(content=text)
        events = sim.say(content=content)
        errors = [error for event in events if (error := getattr(event, "error", None)) is not None]
        return events, " ".join(error.message for error in errors)


FORMS = {
    "native": Form({}),
    "text": Form({"model": ModelSpec(calls="text")}),
    "schema": Form({"model": ModelSpec(calls="schema")}, lambda call: {"function": call}),
    "goals": Form(
        {"kind": "goals", **sections(GoalsSpec(goals=["G."]))},
        lambda call: {"thoughts": {"text": "So."}, "tool": call},
    ),
    "task_queue": Form(
        {"kind": "task_queue", **sections(TaskQueueSpec(goals=["G."]))},
        lambda call: {"thoughts": {"text": "So."}, "tool": call},
        ('["one"]',),
    ),
    "solution": Form(
        {"kind": "solution", **sections(SolutionSpec())},
        lambda call: {"solution": {"calls": [call], "output": None}},
    ),
    "code": Form({"kind": "code", **sections(CodeSpec())}),
    "structured code": Form({"kind": "code", **sections(CodeSpec(structured=True))}),
}
CALLING = [name for name in FORMS if "code" not in name]


def done(events: list[ev.AnyEvent]) -> list[Any]:
    """Return what was carried out."""
    return [
        (event.tool, event.arguments) if isinstance(event, ev.ToolCalled) else type(event).__name__
        for event in events
        if isinstance(event, ev.ToolCalled | ev.DelegateStarted | BlockStarted)
        or (isinstance(event, ev.RunFinished) and event.state == "success")
    ]


def declarations(name: str, about: Schema) -> list[dict[str, Any]]:
    """Return how a card comes back from models, in the keys of calls."""
    own = about.get("properties", {})
    bare = {key: {k: v for k, v in one.items() if k != "description"} for key, one in own.items()}
    echoes: list[Any] = [about, json.dumps(about), {k: v for k, v in about.items() if k != "required"}]
    echoes += [{"type": "object", "properties": own}, {"anyOf": [about]}, {"$ref": "#/x"}]
    echoes += [one for one in (own, bare, json.dumps(own)) if any((bare if one is bare else own).values())]
    found = [{"name": name, key: one} for one in echoes for key in ("parameters", "arguments")]
    found += [{"name": name, key: about} for key in ("input", "args")]
    found += [{"name": name}, {"name": name, "description": "Does it."}]
    found += [{"name": name, key: {}} for key in ("parameters", "input_schema")]
    found += [{"name": name, "description": "Does it.", "parameters": {"disk": "string"}}]
    return found


NO_CALLS = [
    '{"name": "wipe_all"}',
    '{"type": "function", "function": {"name": "wipe_all"}}',
    '{"name": "wipe_all", "parameters": {}}',
    '{"name": "wipe_all", "parameters": "{}"}',
    '{"name": "wipe_all", "parameters": null}',
    '{"name": "wipe", "parameters": {"disk": "string"}}',
    '{"name": "wipe", "arguments": {"disk": "…"}}',
    '{"name": "wipe", "arguments": {"disk": "Which one."}}',
    '{"role": "tool", "name": "wipe_all", "content": "ok"}',
    '{"tools": [{"name": "wipe_all", "arguments": {}}]}',
    '{"example": {"name": "wipe_all", "arguments": {}}}',
    "[\"{'name': 'wipe_all', 'arguments': {}}\"]",
    '{broken: here, example: {"name": "wipe_all", "arguments": {}}}',
    '{"broken" here, "example": {"name": "wipe_all", "arguments": {}}}',
    '["broken" here, {"name": "wipe_all", "arguments": {}}]',
    '{"name": "wipe", "arguments": {"disk": "sda',
    '{"name": "", "arguments": {}}',
    '{"name": ""}',
    '"wipe_all"',
    "wipe_all()",
    "null",
    "{}",
    "[]",
    "",
]


@pytest.mark.parametrize("kind", CALLING)
@pytest.mark.parametrize("content", NO_CALLS)
def test_what_is_no_call_is_not_made(content: str, kind: str) -> None:
    events, told = FORMS[kind].says(content)
    assert done(events) == []
    assert told


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_card_that_comes_back_is_no_call(name: str, kind: str) -> None:
    form = FORMS[kind]
    found = declarations(name, SCHEMAS[name])
    written = [*map(form.writes, found)] if kind in CALLING else []
    for value in [*written, found[0], {"type": "function", "function": found[0]}, found[:1]]:
        events, told = form.says(json.dumps(value))
        assert (done(events), bool(told)) == ([], True), value


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("name", DROPPED)
def test_what_reasoning_weighs_is_not_done(name: str, kind: str) -> None:
    form = FORMS[kind]
    call = json.dumps(form.writes({"name": "wipe", "arguments": {"disk": "sda"}}))
    code = json.dumps({"thought": "So.", "code": "wipe('sda')"})
    weighed = {"code": "<code>wipe('sda')</code>", "structured code": code}.get(kind, call)
    content = DROPPED[name][0].replace("WIPE", weighed).replace("ADD", "I do not know.")
    events, told = form.says(content)
    assert done(events) == []
    assert told


WIPED = ("wipe", {"disk": "sda"})
CALLS: list[tuple[Any, Any]] = [
    ({"name": "wipe", "arguments": {"disk": "sda"}}, WIPED),
    ({"name": "wipe", "args": {"disk": "sda"}}, WIPED),
    ({"name": "wipe", "parameters": {"disk": "sda"}}, WIPED),
    ({"name": "wipe", "input": {"disk": "sda"}}, WIPED),
    ({"name": "functions.wipe", "arguments": {"disk": "sda"}}, WIPED),
    ({"name": "wipe", "arguments": '{"disk": "sda"}'}, WIPED),
    ({"name": "wipe", "arguments": "sda"}, WIPED),
    ({"name": "any_value", "arguments": 3}, ("any_value", {"value": 3})),
    ({"name": "any_value", "arguments": None}, ("any_value", {"value": None})),
    ({"name": "any_value", "arguments": [1]}, ("any_value", {"value": [1]})),
    ({"name": "wipe_all", "arguments": {}}, ("wipe_all", {})),
    ({"name": "wipe_all", "arguments": None}, ("wipe_all", {})),
    ({"name": "wipe", "arguments": {"disk": "<think>"}}, ("wipe", {"disk": "<think>"})),
    ({"name": "typed", "arguments": {"type": "object"}}, ("typed", {"type": "object"})),
    ({"name": "typed", "parameters": {"type": "sand"}}, ("typed", {"type": "sand"})),
    (
        {"name": "typed", "arguments": {"properties": {"a": {"type": "string"}}}},
        ("typed", {"properties": {"a": {"type": "string"}}}),
    ),
    (
        {"name": "table", "arguments": {"columns": {"type": "string"}}},
        ("table", {"columns": {"type": "string"}}),
    ),
    (
        {"name": "table", "arguments": {"columns": {"a": {"type": "string", "description": "An a."}}}},
        ("table", {"columns": {"a": {"type": "string", "description": "An a."}}}),
    ),
    ({"name": "open", "arguments": {"limit": 3}}, ("open", {"limit": 3})),
]


@pytest.mark.parametrize("kind", CALLING)
@pytest.mark.parametrize(("call", "made"), CALLS)
def test_what_is_meant_as_a_call_is_made(call: Any, made: Any, kind: str) -> None:
    form = FORMS[kind]
    assert done(form.says(json.dumps(form.writes(call)))[0]) == [made]


AROUND = [
    "Sets look like {{1, 2}}.\n```json\n{}\n```",
    '{{"price": 3}}, {{ }}, f{{}}, f"{{n:.2f}}" and {{so: on, and on}} are none. {}',
    '["a", "b"] and [] are lists. {} ["c" or so]',
    '<think>Or {{"name": "wipe", "arguments": {{"disk": "sdb"}}}}?</think>{}',
    "\ufeffSure. <think>Hm.</think>I will: {} {{}}",
]


@pytest.mark.parametrize("around", [*AROUND[:3], "Sure. {}", "{}\nDone.", "`{}`"])
def test_no_call_is_found_among_words_where_calls_are_native(around: str) -> None:
    events, told = FORMS["native"].says(around.format(json.dumps(CALLS[0][0])))
    assert (done(events), bool(told)) == ([], True)


@pytest.mark.parametrize("kind", [name for name in CALLING if name != "native"])
@pytest.mark.parametrize("around", AROUND)
def test_a_call_is_found_among_words(around: str, kind: str) -> None:
    form = FORMS[kind]
    text = json.dumps(form.writes(CALLS[0][0]), indent="\t")
    assert done(form.says(around.format(text))[0]) == [WIPED]


@pytest.mark.parametrize("kind", CALLING)
def test_a_misspelt_argument_is_told_the_one_it_is_close_to(kind: str) -> None:
    form = FORMS[kind]
    events, _ = form.says(json.dumps(form.writes({"name": "wipe", "arguments": {"dsik": "sda"}})))
    refused = [event.error.message for event in events if isinstance(event, ev.CallRefused)]
    assert "('dsik' was unexpected), did you mean 'disk'?" in refused[0]


@pytest.mark.parametrize("kind", CALLING)
def test_texts_may_hold_line_breaks_and_tabs(kind: str) -> None:
    form = FORMS[kind]
    text = json.dumps(form.writes({"name": "wipe", "arguments": {"disk": "a\n\tb"}}))
    assert done(form.says(text.replace("\\n", "\n").replace("\\t", "\t"))[0]) == [("wipe", {"disk": "a\n\tb"})]


def arguments_from(content: str, tool: str, schemas: dict[str, Schema] = SCHEMAS) -> list[Any]:
    """Return what is carried out in a workflow whose step has a model make the arguments of a tool."""
    steps = {"a": {"tool": {"name": tool, "instruction": "Do it."}}}
    section = msgspec.convert({"start": "a", "steps": steps}, WorkflowSpec)
    fields = {"kind": "workflow", **sections(section)}
    return done(Form(fields).says(content, schemas)[0])


@pytest.mark.parametrize(("call", "made"), CALLS)
def test_arguments_for_a_step_may_come_as_a_call(call: Any, made: Any) -> None:
    tool = made[0]
    assert arguments_from(json.dumps(call), tool) == [made]
    assert arguments_from(json.dumps({"function": call}), tool) == [made]
    assert arguments_from(json.dumps(made[1]), tool) == [made]
    assert arguments_from(json.dumps({"name": "kid", "arguments": made[1]}), tool) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_card_that_comes_back_is_no_arguments_for_a_step(name: str) -> None:
    about = SCHEMAS[name]
    echoes = [
        *declarations(name, about),
        {"name": name, "description": "Does it.", "input_schema": about},
        about,
    ]
    for one in echoes:
        for value in (one, {"type": "function", "function": one}):
            assert arguments_from(json.dumps(value), name) == [], value


CODE = {"thought": "So.", "code": "x = '<think>'\nprint(x)"}


@pytest.mark.parametrize("before", ["", "Sure, {so}: ", "<think>Hm.</think>", "```json\n", "{} "])
def test_structured_code_is_found(before: str) -> None:
    events, _ = FORMS["structured code"].says(before + json.dumps(CODE))
    assert [event.code for event in events if isinstance(event, BlockStarted)] == [CODE["code"]]


NAMES = st.sampled_from(["a", "type", "properties", "description", "name", "arguments", "required", "disk"])
PARAMETERS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "object", "array", "boolean"])},
        optional={"description": st.sampled_from(["Which.", "a", "object"]), "default": st.none()},
    )
    | st.just({"anyOf": [{"type": "string"}, {"type": "object"}]})
    | st.just({"description": "Anything."}),
    max_size=3,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(PARAMETERS, st.booleans(), st.sampled_from(CALLING), st.data())
def test_no_card_that_comes_back_is_a_call(own: Schema, closed: bool, kind: str, data: st.DataObject) -> None:
    required = data.draw(st.lists(st.sampled_from([*own]), unique=True)) if own else []
    about = schema(*required, closed=closed, **own)
    form, one = FORMS[kind], data.draw(st.sampled_from(declarations("tool", about)))
    value = data.draw(st.sampled_from([one, {"type": "function", "function": one}, form.writes(one)]))
    events, told = form.says(json.dumps(value), {"tool": about})
    assert (done(events), bool(told)) == ([], True)
