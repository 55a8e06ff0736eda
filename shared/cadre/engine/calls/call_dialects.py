"""Calls in the forms that models were trained to write: read where a whole answer is calls, or ends with them on lines
of their own. What a sentence, a quotation or a fence with words around it holds is no call.

| dialect | a call |
|---|---|
| JSON | `{"name": "f", "arguments": {"a": 1}}`, bare or in a fence |
| Hermes, Qwen 2.5 and 3, Granite 4 | `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>` |
| Nemotron, LongCat | `<TOOLCALL>[{…}]</TOOLCALL>`, `<longcat_tool_call>{…}</longcat_tool_call>` |
| InternLM, Command A | `<|action_start|><|plugin|>{…}<|action_end|>`, `<|START_ACTION|>[{…}]<|END_ACTION|>` |
| Apertus | `<|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>` |
| Hunyuan, Functionary | `<tool_call>f` and a fence of JSON; `>>>f` and JSON on the next line |
| Cherry Studio | `<tool_use><name>f</name><arguments>{"a": 1}</arguments></tool_use>` |
| Qwen3-Coder, Seed-OSS | `<tool_call><function=f><parameter=a>1</parameter></function></tool_call>` |
| Llama 3.1 | `<function=f>{"a": 1}</function>`, at Groq also `<function=f{"a": 1}</function>` |
| GLM 4.5 | `<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>` |
| Kimi K2 | `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>` |
| Kimi K3 | `<|open|>call tool="f"<|sep|><|open|>argument key="a"<|sep|>1<|close|>argument<|sep|>…` |
| DeepSeek V3, R1, V3.1 | `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>` |
| DeepSeek V3.2, Claude, MiniMax, Step | `<invoke name="f"><parameter name="a">1</parameter></invoke>`, with prefixes |
| harmony | `<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>` |
| Llama 3 | `<|python_tag|>{"name": "f", "parameters": {"a": 1}}` or `<|python_tag|>f.call(a=1)` |
| Llama 3.2 and 4, LFM2, Gemma 3 | `[f(a=1), g(b="x")]`, with marks or in a fence `tool_code` |
| Olmo 3 | `<function_calls>f(a=1)</function_calls>`, each call on a line |
| Mistral | `[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]` or `[TOOL_CALLS]f[ARGS]{"a": 1}` |
| Gemma 4 | `<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>` |
| Granite 3, Phi-4-mini, LM Studio | `<|tool_call|>[{…}]`, `functools[{…}]`, `[TOOL_REQUEST]{…}[END_TOOL_REQUEST]` |
| ReAct, Cohere | `Action: f` and `Action Input: {"a": 1}` on lines of their own; `Action:` and a fence of JSON |
"""

import ast
import itertools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.json_text import UNREADABLE, ReadingError, decode_text
from cadre.engine.answers.lenient_json import LenientError, Reader
from cadre.engine.answers.reasoning import without_reasoning
from cadre.engine.calls.calls_in_text import SchemaOf, read_call, read_calls, several
from cadre.journal.events import RequestedCall

Schema = dict[str, Any]


class _Written(NamedTuple):
    """Calls as they were written, and where they end in the text."""

    calls: list[RequestedCall]
    end: int


class _NoCall(Exception):
    """The text begins like calls of a dialect but holds no call: it breaks off, or is something else."""


_Read = Callable[[str, re.Match[str], SchemaOf], _Written]

_FILLER = re.compile(
    r"(?:\s|</?s>|<\|(?:im_end|im_start|eot_id|eom_id|end|return|assistant|start|tool_calls_section_(?:begin|end))\|>"
    r"|(?<=<\|start\|>)assistant|</?(?:minimax:tool_call|tool_calls)>|</?tool_call>(?=\s*(?:<\w*:?invoke|\Z))|<\|/?tool_calls\|>|</?seed:tool_call>"
    r"|</(?:\w+:)?function_calls>|<(?:\w+:)?function_calls>(?!\s*[A-Za-z_][\w.]*\()"
    r"|<[｜|]DSML[｜|](?:function_calls|tool_calls)>|</[｜|]DSML[｜|](?:function_calls|tool_calls)>"
    r"|<[｜|]tool[▁_]calls[▁_](?:begin|end)[｜|]>|<[｜|]end[▁_]of[▁_]sentence[｜|]>"
    r"|<[｜|]tool[▁_]call[▁_]begin[｜|]>\s*function\s*<[｜|]tool[▁_]sep[｜|]>(?=\s*<\w+:invoke)"
    r"|<[｜|]tool[▁_]call[▁_]end[｜|]>|<\|(?:open|close)\|>tools<\|sep\|>|<\|tool_call_end\|>)*"
)
"""The text around the calls of an answer that carries no meaning."""

_MADE_UP = re.compile(r"\s*(?:Observation:|Calling tools:|<tool_response>|<\|tool_response)")
_FENCED = re.compile(
    r"\s*(`{3,}|~{3,})[ \t]*(json|xml|tool_call|tool_calls|tool_code)?[ \t]*\n(.*)\n[ \t]*\1\s*",
    re.DOTALL,
)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_ANALYSIS = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis(?![^<]*\bto=)[^<]*<\|message\|>.*?(?:<\|end\|>|(?=<\|start\|>))",
    re.DOTALL,
)
_FENCE_END = re.compile(r"\s*```")
_BLANK = re.compile(r"\s*")
_LINE = re.compile(r"^", re.MULTILINE)
_MOST_LINES = 2_000
_INLINE_OR_QUOTED = re.compile(
    r"(?<!`)`(?!`)[^`\n]*`(?!`)|^[ \t]*>.*$"
    r"|^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?:text|txt|plaintext|markdown|md|example)[ \t]*\n"
    r"(?:.*\n)*?[ \t]*(?P=fence)[ \t]*$",
    re.MULTILINE,
)
_AMONG_WORDS = (
    "A call stands among the words of your answer, so it was not made: words may only speak of a call."
    " Call the tool, and write nothing of it into your text."
)
_MINIMAX = "]<]minimax[>["


def read_written(content: str, schema_of: SchemaOf) -> list[RequestedCall]:
    """Return the calls that a whole answer is, in its order; [] where it holds anything else, or names no function
    that can be called now."""
    return _calls_in(_unwrapped(content), 0, schema_of)


def read_behind_words(content: str, schema_of: SchemaOf) -> list[RequestedCall]:
    """Return the calls in marks of a dialect that an answer ends with, on lines of their own behind words; [] where
    words follow. What is quoted or in a fence among words is no call."""
    text = _unwrapped(content)
    for line in itertools.islice(_LINE.finditer(text), _MOST_LINES):
        at = _past(text, line.start(), _FILLER)
        if at < len(text) and any(begins.match(text, at) for begins, _ in _MARKED_DIALECTS):
            before = text[: line.start()].rstrip().rpartition("\n")[2].lstrip()
            is_quoted = before.startswith(">") or len(_FENCE.findall(text, 0, line.start())) % 2 == 1
            return [] if is_quoted else _calls_in(text, line.start(), schema_of)
    return []


def read_in_form(content: str, schema_of: SchemaOf, form: str) -> list[RequestedCall]:
    """Return the calls of an answer in text. Raises ReadingError where it holds none, or one that cannot be read.

    Args:
        form: how the model was asked for calls. `native`: text is a call only where it is nothing else. Else the
            prompt asks for calls in text, and words may stand before and behind those in JSON.
    """
    calls = read_written(content, schema_of)
    if not calls and form != "native":
        calls = read_behind_words(content, schema_of)
    if calls:
        return calls
    if form != "native":
        return read_calls(_INLINE_OR_QUOTED.sub("", content), schema_of)
    calls = read_calls(content, schema_of)
    if any(schema_of(call.name) is not None for call in calls):
        raise ReadingError(_AMONG_WORDS)
    return calls  # of functions that are not there, as the model is to read


def _unwrapped(content: str) -> str:
    """Return an answer without thoughts, and out of the fence that holds all of it."""
    channels = _ANALYSIS.sub("", content) if content.lstrip().startswith("<|") else content
    text = without_reasoning(channels).replace(_MINIMAX, "").strip("\ufeff")
    fenced = _FENCED.fullmatch(text)
    if fenced is None or "\n```" in fenced[3]:
        return text
    return f"<|python_tag|>{fenced[3]}" if fenced[2] == "tool_code" else fenced[3]


def _calls_in(text: str, at: int, schema_of: SchemaOf) -> list[RequestedCall]:
    calls: list[RequestedCall] = []
    at = _past(text, at, _FILLER)
    while at < len(text):
        found = _calls_at(text, at, schema_of)
        if found is None:
            return []
        calls += found.calls
        if _MADE_UP.match(text, found.end):
            break
        at = _past(text, found.end, _FILLER)
    return calls if any(schema_of(call.name) is not None for call in calls) else []


def _calls_at(text: str, at: int, schema_of: SchemaOf) -> _Written | None:
    for begins, read in _DIALECTS:
        begun = begins.match(text, at)
        if begun is None:
            continue
        try:
            found = read(text, begun, schema_of)
        except (_NoCall, ReadingError, LenientError, SyntaxError, *UNREADABLE):
            continue
        if found.calls:
            return found
    return None


# --- values


def _json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the whole JSON value that begins here, and where it ends. Raises _NoCall, LenientError."""
    at = _blanks(text, at)
    fence = re.compile(r"```\w*\s*").match(text, at)
    reader = Reader(text, fence.end() if fence is not None else at)
    value = reader.value()
    if reader.unclosed:
        raise _NoCall
    end = reader.at
    if fence is not None:
        end = _past(text, end, _FENCE_END)
    return value, end


def _past(text: str, at: int, what: re.Pattern[str]) -> int:
    """Return the place behind what stands here; the same place where that is something else."""
    found = what.match(text, at)
    return found.end() if found is not None else at


def _blanks(text: str, at: int) -> int:
    return _past(text, at, _BLANK)


def _named(name: str, schema_of: SchemaOf) -> str:
    """Return the name of a function without what a dialect puts around it."""
    name = re.sub(r":\d+$", "", name.strip().strip("\"'`"))
    if schema_of(name) is not None:
        return name
    return name.removeprefix("functions.").removeprefix("function.").removeprefix("default_api.")


def _call(name: str, arguments: Any, schema_of: SchemaOf) -> RequestedCall:
    name = _named(name, schema_of)
    return read_call({"name": name, "arguments": arguments}, schema_of)


def _typed(text: str, about: Any) -> Any:
    """Return the value that a parameter was given as bare text, by its schema."""
    kinds = about.get("type") if isinstance(about, dict) else "string"
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds == ["string"]:
        return text
    try:
        value = decode_text(text.strip())
    except UNREADABLE:
        bare = text.strip().casefold()
        return {"true": True, "false": False, "none": None}.get(bare, text)
    return text if isinstance(value, str) and "string" in kinds else value


def _parameters(name: str, pairs: list[tuple[str, str]], schema_of: SchemaOf) -> dict[str, Any]:
    own = (schema_of(_named(name, schema_of)) or {}).get("properties", {})
    return {key: _typed(value, own.get(key, {"type": "string"})) for key, value in pairs}


def _trimmed(value: str) -> str:
    """Return a value without the line breaks that its tags stand on."""
    return value.removeprefix("\n").removesuffix("\n")


# --- dialects


def _json_calls(text: str, at: int, schema_of: SchemaOf) -> _Written:
    value, end = _json_at(text, at)
    return _Written([read_call(one, schema_of) for one in several(value)], end)


def _bare_json(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    return _json_calls(text, begun.start(), schema_of)


def _marked_json(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    found = _json_calls(text, begun.end(), schema_of)
    at = found.end
    while more := re.compile(r"\s*;\s*(?=\{)").match(text, at):  # Llama
        another = _json_calls(text, more.end(), schema_of)
        found, at = _Written([*found.calls, *another.calls], another.end), another.end
    return found._replace(end=_past(text, at, _MARKED))


_MARKED = re.compile(
    r"\s*(?:\}?\s*</(?i:tool_?call|longcat_tool_call)>|<\|(?:action_end|END_ACTION)\|>|\[END_TOOL_REQUEST\]|<\|/?tool_calls?\|>)"
)
_PARAMETER = re.compile(
    r"\s*<parameter=([^>\n]+)>(.*?)(?:</parameter>|(?=\s*<parameter=)|(?=\s*</function>))", re.DOTALL
)


def _function_tags(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    name, at = begun["name"], begun.end()
    if text.startswith("{", _blanks(text, at)):
        value, at = _json_at(text, at)
        call = _call(name, value, schema_of)
    else:
        pairs = []
        while one := _PARAMETER.match(text, at):
            pairs.append((one[1].strip(), _trimmed(one[2])))
            at = one.end()
        call = _call(name, _parameters(name, pairs, schema_of), schema_of)
    return _Written([call], _behind(text, at, r">?\s*(?:</function>(?:\s*</tool_call>)?|(?=<\|eo[tm]_id\|>))"))


def _behind(text: str, at: int, close: str) -> int:
    found = re.compile(close).match(text, at)
    if found is None:
        raise _NoCall
    return found.end()


_ARGUMENT = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _glm(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    name, at, pairs = begun["name"], begun.end(), []
    while one := _ARGUMENT.match(text, at):
        pairs.append((one[1].strip(), _trimmed(one[2])))
        at = one.end()
    call = _call(name, _parameters(name, pairs, schema_of), schema_of)
    return _Written([call], _behind(text, at, r"\s*</tool_call>"))


def _name_and_json(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    value, at = _json_at(text, begun.end())
    return _Written([_call(begun["name"], value, schema_of)], _past(text, at, _CLOSES))


_CLOSES = re.compile(
    r"\s*(?:</tool_call>|</arguments>\s*</tool_use>|<\|tool_call_end\|>|<[｜|]tool[▁_]call[▁_]end[｜|]>|<\|call\|>|<\|end\|>)"
)


def _keyed(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    """Read a list of objects of which each has the arguments under the name."""
    value, at = _json_at(text, begun.end())
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _NoCall
    calls = [_call(name, given, schema_of) for one in value for name, given in one.items()]
    return _Written(calls, _behind(text, at, r"\s*<\|tools_suffix\|>"))


_K3 = re.compile(r"<\|open\|>argument key=\"([^\"]+)\"[^<]*<\|sep\|>(.*?)<\|close\|>argument<\|sep\|>", re.DOTALL)


def _kimi_k3(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    name, at, pairs = begun["name"], begun.end(), []
    if block := re.compile(r"<\|open\|>json[^<]*<\|sep\|>").match(text, at):
        value, at = _json_at(text, block.end())
        at = _behind(text, at, r"\s*<\|close\|>json<\|sep\|>")
        return _Written([_call(name, value, schema_of)], _behind(text, at, r"\s*<\|close\|>call<\|sep\|>"))
    while one := _K3.match(text, at):
        pairs.append((one[1], one[2]))
        at = one.end()
    call = _call(name, _parameters(name, pairs, schema_of), schema_of)
    return _Written([call], _behind(text, at, r"\s*<\|close\|>call<\|sep\|>"))


_PREFIX = r"(?:[｜|]DSML[｜|]|\w+:)?"
_INVOKED = re.compile(
    rf"\s*<{_PREFIX}parameter name=\"([^\"]+)\"(?:\s+string=\"(true|false)\")?[^>]*>(.*?)</{_PREFIX}parameter>"
    r"|\s*<(?!/)([\w.-]+)>(.*?)</\4>",
    re.DOTALL,
)


def _invoke(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    name, at = begun["name"], begun.end()
    own = (schema_of(_named(name, schema_of)) or {}).get("properties", {})
    arguments: dict[str, Any] = {}
    while one := _INVOKED.match(text, at):
        key, value = (one[1], _trimmed(one[3])) if one[1] else (one[4], _trimmed(one[5]))
        about = (
            {"type": "string"} if one[2] == "true" else {} if one[2] == "false" else own.get(key, {"type": "string"})
        )
        arguments[key] = _typed(value, about)
        at = one.end()
    return _Written([_call(name, arguments, schema_of)], _behind(text, at, rf"\s*</{_PREFIX}invoke>"))


def _python_calls(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    """Read `[f(a=1), g(b="x")]` or `f(a=1)`: each argument is a literal by name, or the one that the function takes."""
    at, end = begun.end(), _end_of_python(text, begun.end())
    tree = ast.parse(text[at:end].strip(), mode="eval").body
    calls = _calls_of(tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree], schema_of)
    return _Written(calls, _past(text, end, _CLOSES))


def _python_lines(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    """Read calls of which each stands on its own line, up to the tag that ends them."""
    end = text.find("</function_calls>", begun.end())
    if end < 0:
        raise _NoCall
    block = ast.parse(text[begun.end() : end].strip()).body
    nodes = [one.value for one in block if isinstance(one, ast.Expr)]
    if len(nodes) < len(block):
        raise _NoCall
    return _Written(_calls_of(nodes, schema_of), end)


def _calls_of(nodes: list[ast.expr], schema_of: SchemaOf) -> list[RequestedCall]:
    calls = []
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and len(node.args) == 1:
            node = node.args[0]  # Gemma
        if not isinstance(node, ast.Call):
            raise _NoCall
        name = ast.unparse(node.func).removesuffix(".call")
        schema = schema_of(_named(name, schema_of))
        if schema is None:
            raise _NoCall
        names = [*schema.get("properties", {})]
        if len(node.args) > len(names) or any(word.arg is None for word in node.keywords):
            raise _NoCall
        given = dict(zip(names, map(_literal, node.args), strict=False))
        given |= {str(word.arg): _literal(word.value) for word in node.keywords}
        calls.append(_call(name, given, schema_of))
    return calls


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[node.id]
    return ast.literal_eval(node)


def _end_of_python(text: str, at: int) -> int:
    """Return where the expression ends: at the line or mark by which it is whole."""
    ends = [found.start() for found in re.finditer(r"\n|<\|", text[at:])]
    for end in [at + one for one in ends[:200]] + [len(text)]:
        try:
            ast.parse(text[at:end].strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return end
    raise _NoCall


_MISTRAL = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*(?P<name>[\w.-]+)(?:\[CALL_ID\]\w+)?\s*(?:\[ARGS\])?\s*(?=\{)")


def _mistral(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    at = begun.end()
    if text[_blanks(text, at) : _blanks(text, at) + 1] in ("[", "{"):
        return _json_calls(text, at, schema_of)
    calls: list[RequestedCall] = []
    while one := _MISTRAL.match(text, at):
        value, at = _json_at(text, one.end())
        calls.append(_call(one["name"], value, schema_of))
    return _Written(calls, at)


def _gemma(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    close = text.find("<tool_call|>", begun.end())
    if close < 0:
        raise _NoCall
    parts = text[begun.end() : close].split('<|"|>')
    if len(parts) % 2 == 0:
        raise _NoCall
    keyed = [re.sub(r"([{,]\s*)([A-Za-z_][\w.-]*)\s*:", r'\1"\2":', part) for part in parts[::2]]
    texts = [msgspec.json.encode(part).decode() for part in parts[1::2]] + [""]
    value = decode_text("".join(map("".join, zip(keyed, texts, strict=True))))
    return _Written([_call(begun["name"], value, schema_of)], close + len("<tool_call|>"))


def _react(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    name, at = begun["name"], _blanks(text, begun.end())
    if text[at : at + 1] in ("{", "["):
        value, end = _json_at(text, at)
    else:
        line = text.find("\n", at)
        end = line if line >= 0 else len(text)
        value = text[at:end].strip().strip("\"'")
    return _Written([_call(name, value, schema_of)], end)


def _action(text: str, begun: re.Match[str], schema_of: SchemaOf) -> _Written:
    """Read the calls that `Action:` holds as JSON."""
    return _json_calls(text, begun.end(), schema_of)


def _rule(begins: str, read: _Read) -> tuple[re.Pattern[str], _Read]:
    return re.compile(begins), read


_NAME = r"(?P<name>[\w.:-]+)"
_THOUGHT = r"(?:Thought:(?:(?!\n[ \t]*(?:Action|Observation):)[\s\S]){0,4000}?\n\s*)?"
_DIALECTS = (
    _rule(rf"(?:<tool_call>\s*)?<function={_NAME}>", _function_tags),
    _rule(rf"<function={_NAME},?(?=\{{)", _function_tags),
    _rule(
        r"<(?i:tool_?call|longcat_tool_call)>\s*(?=[\[{])|<\|START_ACTION\|>"
        r"|<\|action_start\|>\s*<\|plugin\|>",
        _marked_json,
    ),
    _rule(r"<\|tools_prefix\|>", _keyed),
    _rule(rf"<tool_call>\s*{_NAME}\s*(?=```|\{{)", _name_and_json),
    _rule(rf">>>{_NAME}\n\s*(?=\{{)", _name_and_json),
    _rule(rf"<tool_use>\s*<name>\s*{_NAME}\s*</name>\s*<arguments>", _name_and_json),
    _rule(rf"<tool_call>\s*{_NAME}\s*(?=<arg_key>|</tool_call>)", _glm),
    _rule(
        r"<\|python_tag\|>\s*(?=\{)|<\|tool_calls?\|>\s*(?=[\[{])|functools\s*(?=\[)|\[TOOL_REQUEST\]",
        _marked_json,
    ),
    _rule(rf"<\|tool_call_begin\|>\s*{_NAME}\s*<\|tool_call_argument_begin\|>", _name_and_json),
    _rule(
        rf"<[｜|]tool[▁_]call[▁_]begin[｜|]>\s*(?:function\s*<[｜|]tool[▁_]sep[｜|]>)?\s*{_NAME}\s*(?:<[｜|]tool[▁_]sep[｜|]>)?\s*",
        _name_and_json,
    ),
    _rule(
        rf"(?:<\|channel\|>)?\s*(?:commentary|analysis)\s+to={_NAME}\s*(?:<\|constrain\|>)?\s*\w*\s*(?:<\|message\|>|(?=\{{))",
        _name_and_json,
    ),
    _rule(
        rf"to={_NAME}\s*<\|channel\|>(?:commentary|analysis)\s*(?:<\|constrain\|>)?\s*\w*\s*<\|message\|>",
        _name_and_json,
    ),
    _rule(rf"<\|open\|>call tool=\"{_NAME}\"[^<]*<\|sep\|>", _kimi_k3),
    _rule(rf"<{_PREFIX}invoke name=\"{_NAME}\"[^>]*>", _invoke),
    _rule(r"<\|python_tag\|>\s*(?=[\w.\[]+)|<\|tool_call_start\|>\s*", _python_calls),
    _rule(r"<function_calls>\s*(?=[A-Za-z_])", _python_lines),
    _rule(r"\[TOOL_CALLS\]", _mistral),
    _rule(rf"<\|tool_call>\s*call:{_NAME}\s*(?=\{{)", _gemma),
    _rule(rf"{_THOUGHT}Action:[ \t]*`?{_NAME}`?[ \t]*\n\s*Action Input:[ \t]*", _react),
    _rule(rf"{_THOUGHT}Action:\s*(?=[\[{{`])", _action),
    _rule(rf"{_THOUGHT}Action:[ \t]*(?=[A-Za-z_][\w.]*\()", _python_calls),
    _rule(r"(?=[\[{])", _bare_json),
    _rule(r"(?=\[[A-Za-z_][\w.]*\()", _python_calls),
)
"""The beginnings of a call in each dialect, with the functions that read it."""

_MARKED_DIALECTS = _DIALECTS[:-2]
"""Those that words do not begin like."""
