"""Scripts: which rule answers, what its templates say, and what is wrong with a bad one."""

import re
from pathlib import Path
from typing import Any

import pytest

from cadre.errors import SettingError
from cadre_scripted_model.request import BadRequest, Reply, RequestView, read_request
from cadre_scripted_model.script_player import (
    BadTemplate,
    Match,
    Rule,
    Script,
    find,
    matches,
    number,
    read_script,
    render,
    render_reply,
)


def view_of(*messages: dict[str, Any], **body: Any) -> RequestView:
    return read_request({"model": "m", "messages": list(messages) or [user("hello")], **body})


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


CONVERSATION = [
    {"role": "system", "content": "You plan."},
    user("First question"),
    {"role": "assistant", "content": None, "tool_calls": [call("1", "search"), call("2", "add")]},
    result("2", "42"),
    result("1", "found\nit"),
]


def test_the_view_of_a_conversation() -> None:
    view = view_of(*CONVERSATION, tools=[tool("search"), tool("add")])
    assert (view.first, view.user, view.system, view.last) == (
        "First question",
        "First question",
        "You plan.",
        "found\nit",
    )
    assert view.tool == "42\nfound\nit"
    assert view.results == {"add": ["42"], "search": ["found\nit"]}
    assert (view.turn, view.has_tool, view.tools, view.called) == (
        1,
        True,
        ["search", "add"],
        ["search", "add"],
    )
    later = view_of(*CONVERSATION, user([{"type": "text", "text": "and "}, {"type": "text", "text": "now"}]))  # type: ignore[arg-type]
    assert (later.tool, later.user, later.first) == ("", "and now", "First question")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages"),
        ({"messages": [user("x")], "tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_what_is_no_request(body: object, param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read_request(body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(), True),
        (Match(user="QUESTION$"), True),
        (Match(user="answer"), False),
        (Match(model="^m$", system="plan", first="first", last="found.it"), True),
        (Match(tool="42.*found"), True),
        (Match(tool="43"), False),
        (Match(turn=1, has_tool=True, tools=["add"]), True),
        (Match(turn=0), False),
        (Match(has_tool=False), False),
        (Match(tools=["add", "other"]), False),
        (Match(times=2), False),
        (Match(times=3), True),
    ],
)
def test_every_given_key_must_hold(match: Match, expected: bool) -> None:
    view = view_of(*CONVERSATION, tools=[tool("search"), tool("add")])
    assert matches(match, view, hits=2) is expected


def test_replies_come_in_order_and_the_last_repeats() -> None:
    replies = [Reply(content=str(n)) for n in (1, 2)]
    script = Script(
        [
            Rule(name="twice", match=Match(user="a", times=3), reply=replies),
            Rule(name="rest", match=Match(user="a"), reply=Reply(content="rest")),
        ]
    )

    def answers(count: int) -> list[tuple[str, str | None]]:
        chosen = [script.choose(view_of(user("a"))) for _ in range(count)]
        return [(found[0], found[1].content) for found in chosen if found]

    expected = [("twice", "1"), ("twice", "2"), ("twice", "2"), ("rest", "rest")]
    assert answers(4) == expected
    script.reset()
    assert answers(1) == expected[:1]
    assert script.choose(view_of(user("b"))) is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain {text}", "plain {text}"),
        ("{{ results.search[0].split()[-1] }}", "it"),
        ("{{ number(results.add[0]) * 2 }}", 84),
        ("twice is {{ number(results.add[0]) * 2 }}", "twice is 84"),
        ("{% for text in tool_results %}<{{ text }}>{% endfor %}", "<42><found\nit>"),
        ("{{ '{\"n\": [1, 2]}' | fromjson }}", {"n": [1, 2]}),
        ("{{ model }} turn {{ turn }} {{ 'yes' if has_tool else 'no' }}", "m turn 1 yes"),
        ({"a": ["{{ turn }}", 2, None]}, {"a": [1, 2, None]}),
        ("{{ tool_results }}", ["42", "found\nit"]),
        ("{{ {'n': 1} | tojson }}", '{"n": 1}'),
        ("{{ [1, 2] | map('string') }}", ["1", "2"]),
    ],
)
def test_templates(template: object, expected: object) -> None:
    assert render(template, view_of(*CONVERSATION)) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ nothing }}",
        "{{ nothing.at.all }} more",
        "{{ results.search[5] }}",
        "{{ number(user) }}",
        "{{ user | fromjson }}",
        "{{ 1 / 0 }}",
        "{{ user.__class__.__mro__ }}",
        "{{ number }}",
        "{{ tool_results | map }}",
        "{{ 1e400 }}",
    ],
)
def test_a_template_that_asks_for_too_much_says_so(template: str) -> None:
    with pytest.raises(BadTemplate, match="template "):
        render(template, view_of(*CONVERSATION))


def test_numbers_and_texts_are_found_by_pattern() -> None:
    text = "Paris: 2,102,650 people on 105.4 km²; -3 degrees"
    assert number(text) == 2102650
    assert number(text, r"on ([\d.]+)") == 105.4
    assert number(text, r"-\d") == -3
    assert find(text, r"^(\w+):") == "Paris"
    with pytest.raises(BadTemplate, match="nothing matches 'Rome'"):
        find(text, "Rome")


def test_content_is_text_whatever_the_expression_gives() -> None:
    view = view_of(*CONVERSATION)
    assert render_reply(Reply(content="{{ turn }}"), view).content == "1"
    assert render_reply(Reply(content="{{ tool_results }}"), view).content == '["42","found\\nit"]'


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (
            "{match: {usr: a}, reply: {content: x}}",
            "rule 1: unknown key 'usr' in match; known keys: model, user,",
        ),
        ("{name: n, repy: {content: x}}", "rule 1 (n): "),
        ("{reply: {content: x}, when: 1}", "unknown key 'when'; known keys: name, match, reply"),
        ("{reply: {text: x}}", "unknown key 'text' in reply; known keys: content, tool_calls"),
        ("{reply: [{content: x}, {sleep: 1}]}", "unknown key 'sleep' in reply[1]; known keys: content"),
        (
            "{reply: {tool_calls: [{tool: x}]}}",
            "unknown key 'tool' in reply.tool_calls[0]; known keys: name, arg",
        ),
        ("{reply: {error: {code: x}}}", "`$.reply.error`"),
        ("{match: {turn: one}, reply: {content: x}}", "`$.match.turn`"),
        ("{match: {user: '('}, reply: {content: x}}", "match.user"),
        ("{reply: {content: '{{ user'}}", "template '{{ user'"),
        ("{reply: {content: '{{ user | nofilter }}'}}", "nofilter"),
        ("{reply: {latency: 1}}", "reply says nothing"),
        ("{reply: []}", "reply "),
        ("{reply: {content: x, chunk: 0}}", "reply.chunk is 0"),
        ("{reply: {error: {status: 200}}}", "reply.error.status is 200"),
        ("just text", "Expected `object`"),
    ],
)
def test_a_bad_rule_is_named_with_its_file_and_key(tmp_path: Path, rule: str, complaint: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(f"rules:\n  - {rule}\n")
    with pytest.raises(SettingError) as caught:
        read_script(path)
    assert str(caught.value).startswith(f"{path}: rule 1")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules: {a", "not YAML: line 2"),
        ("rules: 2026-13-45", "not YAML: month must be"),
        ("- a", "'rules'"),
        ("", "'rules'"),
        ("rules: []\nmode: x", "'mode'"),
        ("rules: []\ncontext: 0", r"\bcontext\b.*\b0\b"),
        ("rules: []\ncontext: many", "'many'"),
    ],
)
def test_a_bad_script_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=complaint):
        read_script(path)
    with pytest.raises(SettingError, match="cannot be read"):
        read_script(tmp_path / "missing.yaml")


def test_rules_without_a_name_get_their_number(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("rules: [{name: a, reply: {content: x}}, {reply: [{content: y}]}]")
    assert [rule.name for rule in read_script(path).rules] == ["a", "rule 2"]


def test_the_worked_example_of_the_documentation_works(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
    example = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert example
    path = tmp_path / "demo.yaml"
    path.write_text(example[1])
    script = read_script(path)
    question = user("What is the population of Paris and Rome?")

    def reply(*more: dict[str, Any]) -> Reply:
        view = view_of(question, *more, tools=[tool("search"), tool("final_answer")])
        chosen = script.choose(view)
        assert chosen
        return render_reply(chosen[1], view)

    limit = reply().error
    assert limit
    assert limit.status == 429
    assert [made.name for made in reply().tool_calls] == ["search", "search"]
    calls = {"role": "assistant", "content": None, "tool_calls": [call("p", "search"), call("r", "search")]}
    last = reply(calls, result("p", "2,100,000 inhabitants"), result("r", "2,750,000 inhabitants"))
    assert last.tool_calls[0].arguments == {"answer": "4850000 people live in both."}


def test_what_a_request_takes_up() -> None:
    assert view_of(user("x" * 41)).tokens == 11
    with_call = {"role": "assistant", "content": None, "tool_calls": [call("1", "search")]}
    assert view_of(user("x" * 40), with_call).tokens > 20
    assert view_of(user("x" * 40), tools=[tool("search")]).tokens > 20
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    assert view_of({"role": "user", "content": [image]}).tokens == 0
