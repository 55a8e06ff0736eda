"""The iterations of a model: what it reads of them, and how its answer is read as thoughts and one tool."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.answer_form import final_answer_parameters, form_after, form_of
from cadre.engine.answers.json_text import ReadingError, is_closed, read_arguments, read_object
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.call_schema import ANY_ANSWER, call_union, object_of
from cadre.engine.calls.calls_in_text import ARGUMENT_KEYS, Schema, SchemaOf, read_call
from cadre.engine.chat import functions, observed
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.text_size import fit
from cadre.engine.draft import Draft
from cadre.engine.kind import Chat
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import ActionStep, Run, Step
from cadre.kinds.iteration.records import FINISH, IterationSection, JsonFormRefused, texts_of
from cadre.prompting.prompts import Prompts
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, ContractProblem, TaskInputs, inputs_type, read_problems
from cadre.spec.expression_types import Typed, attributes_read, names_read
from cadre.spec.expressions import templates_in
from cadre.spec.names import FINAL_ANSWER


def step_messages(step: ActionStep, prompts: Prompts) -> list[ChatMessage]:
    """The answer, and what its tool returned or what was wrong with it."""
    said = {"role": "assistant", "content": step.content or "(empty)"}
    found = [_result(call.name, observed(call, prompts), prompts) for call in step.asked]
    found += [prompts.error(step.error.message)] if step.error is not None else []
    if not found:
        return [said] if step.content else []
    return [said, user("\n\n".join(found))]


def thought_messages(thought: str, prompts: Prompts) -> list[ChatMessage]:
    """Return the outcome of `think`, after the answer that called it."""
    return [user(_result(THINK, thought, prompts))]


def now_message(run: Run, chat: Chat) -> ChatMessage:
    """The current time, as of the journal's entry that the request belongs to."""
    at = run.model.at if run.model is not None else run.started_at
    return {"role": "system", "content": chat.rendered("iteration.time", now=at)}


def thinking_messages(run: Run, question: str, goals: list[str], chat: Chat) -> list[ChatMessage]:
    """The request for a thought: the goals, the question, and what was found last."""
    least = known_room(run) // 8
    found = next((text for step in reversed(run.steps) if (text := _found(step))), "")
    text = chat.rendered(
        "iteration.think",
        goals=[fit(goal, least) for goal in goals],
        question=fit(question, 2 * least),
        found=fit(found, 2 * least),
    )
    return [user(text)]


def user(text: str) -> ChatMessage:
    """A message of the user."""
    return {"role": "user", "content": text}


def _result(name: str, text: str, prompts: Prompts) -> str:
    return prompts.rendered("iteration.result", name=name, text=text)


def _found(step: Any) -> str:
    if not isinstance(step, ActionStep):
        return ""
    return "\n".join(f"{call.name}: {call.observation}" for call in step.asked if call.observation)


THINK = "think"
"""The tool that asks the model itself, with its own prompt."""

THINK_PARAMETERS = object_of(task_description={"type": "string"})
_OWN = {FINISH: {"type": "object", "properties": {"response": {}}}, THINK: THINK_PARAMETERS}

FORM = (
    '{"thoughts": {"text": …, "reasoning": …, "plan": …, "criticism": …, "speak": …}, "tool": {"name": …, "args": {…}}}'
)


class Iteration(NamedTuple):
    """The content of an answer."""

    thoughts: dict[str, str]
    tool: str
    """As the model wrote it."""
    arguments: dict[str, Any]

    @property
    def is_end(self) -> bool:
        """The work is done."""
        return plain_name(self.tool) in ("", FINISH)

    @property
    def is_thinking(self) -> bool:
        return plain_name(self.tool) == THINK

    @property
    def question(self) -> str:
        """Return the question to think about."""
        return as_text(self.arguments.get("task_description") or next(iter(self.arguments.values()), ""))

    @property
    def response(self) -> Any:
        """Return what `finish` was given; without it, what the model thought."""
        if "response" in self.arguments:
            return self.arguments["response"]
        return self.thoughts.get("text") or self.thoughts.get("speak") or ""


def takes_own(name: str) -> Schema | None:
    """Return what the tools of the kinds themselves take."""
    return _OWN.get(plain_name(name))


def read_iteration(content: str, schema_of: SchemaOf = takes_own) -> Iteration:
    """Read an answer. Raises ReadingError with what is wrong, and the form wanted."""
    try:
        return _iteration(read_object(content, "tool", "thoughts", "name", "function"), schema_of)
    except ReadingError as error:
        raise ReadingError(f"{error.sentence} Answer with JSON of this form and nothing else: {FORM}") from error


def plain_name(name: str) -> str:
    """A tool's name as names are compared: without case and blanks."""
    return "".join(name.split()).casefold()


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _iteration(found: dict[str, Any], schema_of: SchemaOf) -> Iteration:
    said = {key: value for key, value in found.items() if key != "thoughts"}
    if isinstance(several := said.get("tool"), list):
        if len(several) != 1:
            raise ReadingError(f"Your answer names {len(several)} tools: name one, and read what it returns")
        said["tool"] = several[0]
    tool = next((said[key] for key in ("tool", "function") if isinstance(said.get(key), dict)), said)
    name = next((tool[key] for key in ("name", "tool") if isinstance(tool.get(key), str)), None)
    if name is None or (not name.strip() and "tool" not in found):
        raise ReadingError("Your answer names no tool.")
    # These need no arguments, and an empty name ends the work as well.
    own: dict[str, Any] = {"name": name if name.strip() else FINISH}
    if (takes_own(name) or not name.strip()) and tool.keys().isdisjoint(ARGUMENT_KEYS):
        own["args"] = {}
    call = read_call({**tool, **own}, schema_of)
    return Iteration(_thoughts(found.get("thoughts")), name.strip() and call.name, read_arguments(call))


def _thoughts(given: Any) -> dict[str, str]:
    if isinstance(given, dict):
        return {str(key): as_text(value) for key, value in given.items() if value not in (None, "")}
    return {"text": as_text(given)} if given else {}


def is_whole(content: str) -> bool:
    """Return whether an answer that was cut at the limit of tokens is whole in what it asks for."""
    try:
        read_iteration(content)
    except ReadingError:
        return False
    return is_closed(content)


def last_action(steps: Sequence[Step]) -> ActionStep | None:
    """The last action of the steps."""
    return next((step for step in reversed(steps) if isinstance(step, ActionStep)), None)


def thinking_question(step: ActionStep | None) -> str | None:
    """Return the question to think through after the step, or None."""
    if step is None or step.calls or step.error is not None:
        return None
    try:
        answer = read_iteration(step.content)
    except ReadingError:
        return None
    return answer.question if answer.is_thinking else None


_TEXT = {"type": "string"}


def name_in_toolset(run: Run, name: str) -> str:
    """The tool or member that the model means; the unchanged name if there is no such tool or member.

    Names are compared without case and blanks, and where that finds none, without `_` and `-` too.
    """
    known = [*run.tools, *run.members]
    if name in known:
        return name
    for without in ("", "_-"):
        wanted = _bare(name, without)
        alike = [one for one in known if _bare(one, without) == wanted]
        if len(alike) == 1:
            return alike[0]
    return name.strip()


def offered_schemas(run: Run) -> SchemaOf:
    """Return what the tools of an iteration take, by the names that the model may give them."""
    return lambda name: takes_own(name) or input_schema(run, name_in_toolset(run, name))


def _bare(name: str, without: str) -> str:
    return plain_name(name).translate({ord(sign): None for sign in without})


def iteration_schema(run: Run, *, think: bool, ends: bool = True) -> dict[str, Any]:
    """The JSON Schema of thoughts and one of the tools that the run has at this moment; `ends`: or of `finish`."""
    form = final_answer_parameters(run)
    is_open = run.spec is None or run.spec.output_schema is None
    about = {"response": ANY_ANSWER if is_open else form["properties"]["answer"]}
    response = {**form, "properties": about, "required": ["response"]}
    offered = [one["function"] for one in functions(run) if one["function"]["name"] != FINAL_ANSWER]
    offered += [{"name": THINK, "parameters": THINK_PARAMETERS}] if think else []
    definitions: dict[str, Any] = {}
    offered += [{"name": FINISH, "parameters": response}] if ends or not offered else []
    union = call_union(offered, definitions, "args")
    thoughts = object_of(text=_TEXT, reasoning=_TEXT, plan=_TEXT, criticism=_TEXT, speak=_TEXT)
    return object_of(thoughts=thoughts, tool={"anyOf": union}) | ({"$defs": definitions} if definitions else {})


def in_form(
    run: Run, messages: list[ChatMessage], schema: dict[str, Any], *, shown_as_object: bool = True
) -> ModelRequest:
    """A request for JSON, in the form that the model's endpoint takes (`model.structured`, or `calls: schema`).

    `shown_as_object`: what the prompt asks for is a JSON object, so that the endpoint's JSON mode may be used.
    """
    form = form_of(run)
    if form == "schema":
        return ModelRequest(messages=messages, schema=schema)
    return ModelRequest(messages=messages, json_object=form == "object" and shown_as_object)


def ask_in_next_form(draft: Draft) -> bool:
    """Ask the same question in the next form, if the endpoint has refused this one. Return False if it has not."""
    failure, asked = draft.arrival.what, draft.asked
    form = form_after(draft.run, failure) if isinstance(failure, ModelFailed) else None
    if form is None or asked is None or not isinstance(failure, ModelFailed):
        return False
    draft.note(JsonFormRefused(form=form, reason=failure.message))
    draft.ask(asked.purpose, asked.step, asked.attempt + 1)
    return True


INPUTS = "inputs"
"""The name by which a text reads all inputs at once."""


def contract_of(spec: AgentSpec, section: IterationSection) -> AgentContract:
    """Return the inputs that the texts read, and what does not hold between them and the agent's `input_schema`."""
    texts = [*_texts(spec, section)]
    needed, known = frozenset[str](), frozenset[str]()
    for _, text in texts:
        always, perhaps = names_read(text)
        of_all, may, _ = attributes_read(text, INPUTS)
        needed |= (always - {INPUTS}) | of_all
        known |= (perhaps - {INPUTS}) | may
    return AgentContract(_problems(spec, texts), TaskInputs(needed, known - needed))


def _texts(spec: AgentSpec, section: IterationSection) -> Iterator[tuple[str, str]]:
    yield "spec.instructions", spec.instructions
    for key, texts in texts_of(spec.kind, section):
        for index, text in enumerate(texts):
            yield f"spec.{key}[{index}]", text


def _problems(spec: AgentSpec, texts: list[tuple[str, str]]) -> Iterator[ContractProblem]:
    every = inputs_type(spec)
    for path, text in texts:
        for template in templates_in(text):
            names: dict[str, Typed] = {INPUTS: every}
            yield from read_problems(spec, path, template, names)
            if every is not None:
                for name in sorted(frozenset[str]().union(*names_read(template)) - {INPUTS}):
                    # A variable is read as what it stands for, an attribute of the inputs.
                    guard = "" if name in names_read(template)[0] else " is defined"
                    yield from read_problems(spec, path, f"{{{{ {INPUTS}[{name!r}]{guard} }}}}", names)
