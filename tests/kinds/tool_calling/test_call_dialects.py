"""Calls in the forms that models were trained to write: made where they are the whole answer, never where a text
mentions them."""

import json
import time
from typing import Any

import pytest

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.calls.call_dialects import read_in_form, read_written
from cadre.journal.events import RequestedCall
from cadre.spec.model import ModelSpec
from kinds.test_no_call_is_made import done, offer
from unit.loop.build import SimulatedRun, spec

CALL = '{"name": "f", "arguments": {"a": 1}}'
DIALECTS = {
    "json": CALL,
    "json in a fence": f"```json\n{CALL}\n```",
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "hermes in capitals": f"<TOOL_CALL>{CALL}</TOOL_CALL>",
    "hermes with a bracket too many": f"<tool_call>\n{CALL}}}\n</tool_call>",
    "hermes without its end": f"<tool_call>\n{CALL}\n",
    "hermes in a fence": f"```xml\n<tool_call>{CALL}</tool_call>\n```",
    "hermes behind a thought": f"<think>No.</think>\n<tool_call>{CALL}</tool_call>",
    "qwen": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "qwen alone": "<function=f>\n<parameter=a>1</parameter>\n</function>",
    "llama 3.1": '<function=f>{"a": 1}</function>',
    "glm": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "glm 4.7": "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
    "kimi k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
    "kimi k3": '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"'
    "<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
    '{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
    "deepseek v3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
    '<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "harmony": '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
    "harmony in analysis": '<|channel|>analysis to=functions.f code<|message|>{"a": 1}<|call|>',
    "harmony behind analysis": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
    ' to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
    "harmony by role": '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
    "llama 3": '<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>',
    "llama 3 in Python": "<|python_tag|>f.call(a=1)",
    "llama 4": "[f(a=1)]",
    "gemma 3": "```tool_code\nf(a=1)\n```",
    "lfm2": "<|tool_call_start|>[f(a=1)]<|tool_call_end|>",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "mistral, newer": '[TOOL_CALLS]f[ARGS]{"a": 1}',
    "minimax m2": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "minimax m3": ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>'
    "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    "gemma 4": "<|tool_call>call:f{a:1}<tool_call|>",
    "granite": f"<|tool_call|>[{CALL}]",
    "phi": f"functools[{CALL}]",
    "claude": '<function_calls>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n</function_calls>',
    "lm studio": f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]",
    "react": 'Thought: I need it.\nAction: f\nAction Input: {"a": 1}',
    "react alone": 'Action: f\nAction Input: {"a": 1}',
    "react in JSON": 'Thought: So.\nAction:\n```json\n{"action": "f", "action_input": {"a": 1}}\n```',
    "nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "longcat": f"<longcat_tool_call>{CALL}</longcat_tool_call>",
    "internlm": '<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": 1}}<|action_end|>',
    "seed": "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>",
    "command a": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>',
    "command a behind a thought": "<|START_THINKING|>Hm.<|END_THINKING|>"
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>',
    "command r": 'Action: ```json\n[{"tool_name": "f", "parameters": {"a": 1}}]\n```',
    "functionary": '>>>f\n{"a": 1}',
    "apertus": '<|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>',
    "olmo 3": "<function_calls>\nf(a=1)\n</function_calls>",
    "gemma 3, printed": "```tool_code\nprint(default_api.f(a=1))\n```",
    "step 3": '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">'
    '<steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
    "hunyuan": '<tool_calls>\n<tool_call>f\n```json\n{"a": 1}\n```\n</tool_call>\n</tool_calls>',
    "cherry studio": '<tool_use>\n<name>f</name>\n<arguments>{"a": 1}</arguments>\n</tool_use>',
    "llama 3.1 with its end": '<function=f>{"a": 1}<|eom_id|>',
    "llama at groq": '<function=f{"a": 1}</function>',
    "llama at groq, with a comma": '<function=f,{"a": 1}></function>',
    "react in Python": "Thought: I need it.\nAction: f(a=1)",
    "as an API writes it": '{"tool_calls": [{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]}',
    "as an API wrote it": '{"function_call": {"name": "f", "arguments": "{\\"a\\": 1}"}}',
    "parallel use": '{"tool_uses": [{"recipient_name": "functions.f", "parameters": {"a": 1}}]}',
    "langchain": '{"action": "f", "action_input": {"a": 1}}',
}
PLAIN = {
    *("json", "json in a fence", "llama 4", "gemma 3", "hermes in a fence", "harmony behind analysis"),
    *("gemma 3, printed", "as an API writes it", "as an API wrote it", "parallel use", "langchain"),
}
"""Those that stand behind words only as JSON, or not at all."""


def schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


SCHEMAS = {
    "f": schema(a={"type": "integer"}),
    "t": schema(text={"type": "string"}, n={"type": "number"}, on={"type": "boolean"}, list={"type": "array"}),
}


def says(content: str, form: Any = "native") -> list[Any]:
    agent = spec(kind="tool_calling", model=ModelSpec(calls=form), tools=[*SCHEMAS], team=[])
    return done(SimulatedRun(agent, offer(SCHEMAS)).begin("Do it.").say(content=content))


@pytest.mark.parametrize("form", ["native", "text", "schema"])
@pytest.mark.parametrize("name", DIALECTS)
def test_an_answer_that_is_a_call_makes_it(name: str, form: str) -> None:
    assert says(DIALECTS[name], form) == [("f", {"a": 1})]


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in PLAIN])
def test_calls_may_stand_behind_words_where_the_prompt_asks_for_text(name: str) -> None:
    text = f"Let me look.\n\n{DIALECTS[name]}"
    assert says(text, "text") == [("f", {"a": 1})]
    assert says(text) == []


MENTIONS = [
    "You could write {} to call it.",
    "It is written so:\n\n{}\n\nbut I do not need it.",
    "`{}`",
    '"{}"',
    "> {}",
    "It is written so:\n```\n{}\n```\nas you know.",
    "{} is the form.",
    "As in:\n```\n{}\n```",
]


@pytest.mark.parametrize("mention", MENTIONS)
@pytest.mark.parametrize("name", [name for name in DIALECTS if "fence" not in name and not name.startswith("gemma 3")])
def test_a_text_that_mentions_a_call_makes_none(name: str, mention: str) -> None:
    text = mention.format(DIALECTS[name])
    assert says(text) == []
    if not name.startswith("json"):
        assert read_written(text, SCHEMAS.get) == []


@pytest.mark.parametrize(
    "mention",
    ["You could write {} to call it.", "`{}`", "It is written so:\n```\n{}\n```\nas you know.", "{} is it."],
)
@pytest.mark.parametrize(
    "name", [name for name in DIALECTS if name in ("qwen", "glm", "kimi k2", "claude", "react alone")]
)
def test_a_mention_makes_no_call_where_the_prompt_asks_for_text(name: str, mention: str) -> None:
    assert says(mention.format(DIALECTS[name]), "text") == []


@pytest.mark.parametrize("label", ["text", "markdown", "txt"])
@pytest.mark.parametrize("name", ["json", "hermes"])
def test_a_fence_of_words_quotes_a_call(name: str, label: str) -> None:
    text = f"It is written so:\n\n~~~{label}\n{DIALECTS[name]}\n~~~\n\nI do not need it."
    assert says(text, "text") == says(text) == []


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": 1}}',
        '{"a": 1}<|im_end|>',
        '{"a": 1}\n</tool_call>',
        '```json\n{"a": 1}\n```',
        '[{"a": 1}]',
        json.dumps(json.dumps('{"a": 1}')),
    ],
)
def test_arguments_are_read_out_of_what_the_endpoint_left_around_them(arguments: str) -> None:
    agent = spec(kind="tool_calling", tools=[*SCHEMAS], team=[])
    events = SimulatedRun(agent, offer(SCHEMAS)).begin("Do it.").say(RequestedCall("f", arguments))
    assert done(events) == [("f", {"a": 1})]


@pytest.mark.parametrize("arguments", ['{"a": 1} or {"a": 2}', '{"a": 1}, so', '[{"a": 1}, {"a": 2}]', '{"a": 1'])
def test_arguments_with_more_than_marks_behind_them_are_not_used(arguments: str) -> None:
    agent = spec(kind="tool_calling", tools=[*SCHEMAS], team=[])
    events = SimulatedRun(agent, offer(SCHEMAS)).begin("Do it.").say(RequestedCall("f", arguments))
    assert done(events) == []


@pytest.mark.parametrize("form", ["native", "text"])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_call_that_breaks_off_is_not_made(name: str, form: str) -> None:
    text = DIALECTS[name]
    begun = text.rindex("1")  # within its last argument
    assert says(text[:begun], form) == []


@pytest.mark.parametrize("name", DIALECTS)
def test_a_function_that_is_not_offered_is_not_called(name: str) -> None:
    assert read_written(DIALECTS[name], lambda asked: None) == []


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=t>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n1.5\n</parameter>\n"
        "<parameter=on>\ntrue\n</parameter>\n<parameter=list>\n[1, 2]\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>t\n<arg_key>text</arg_key>\n<arg_value>12</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1.5"
        "</arg_value>\n<arg_key>on</arg_key>\n<arg_value>True</arg_value>\n<arg_key>list</arg_key>\n<arg_value>[1, 2]"
        "</arg_value>\n</tool_call>",
        '<invoke name="t"><parameter name="text">12</parameter><parameter name="n">1.5</parameter>'
        '<parameter name="on">true</parameter><parameter name="list">[1, 2]</parameter></invoke>',
        '<|tool_call>call:t{text:<|"|>12<|"|>,n:1.5,on:true,list:[1,2]}<tool_call|>',
        '[t(text="12", n=1.5, on=True, list=[1, 2])]',
    ],
)
def test_values_have_the_types_of_the_schema(text: str) -> None:
    assert says(text) == [("t", {"text": "12", "n": 1.5, "on": True, "list": [1, 2]})]


@pytest.mark.parametrize("name", ["hermes", "qwen", "glm", "claude", "deepseek v3.1", "mistral, newer", "llama 4"])
def test_several_calls_are_made_in_their_order(name: str) -> None:
    one = DIALECTS[name]
    other = one.replace("1", "2") if name != "deepseek v3.1" else one.replace(" 1}", " 2}")
    text = "[f(a=1), f(a=2)]" if name == "llama 4" else f"{one}\n{other}"
    assert says(text) == [("f", {"a": 1}), ("f", {"a": 2})]


def test_what_a_model_makes_up_behind_a_call_is_not_done() -> None:
    text = 'Action: f\nAction Input: {"a": 1}\nObservation: 5\nAction: f\nAction Input: {"a": 2}'
    assert says(text) == says(text, "text") == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "unit", ["Thought: a\n", "<tool_call>", "[f(", "Action: f\n", "<function=f>", '{"a": ', "```\n"]
)
def test_long_answers_are_read_in_time(unit: str) -> None:
    begun = time.monotonic()
    for form in ("native", "text"):
        with pytest.raises(ReadingError):
            read_in_form(unit * (100_000 // len(unit)), SCHEMAS.get, form)
    assert time.monotonic() - begun < 20
