"""Code acts on codes: no part of the product decides by the words of a message."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from cadre.protocol.codes import (
    EDIT_REFUSALS,
    ERRORS,
    IGNORED,
    EditRefusal,
    ErrorCode,
    ErrorInfo,
    IgnoredCode,
)
from cadre_gateway.requests.problems import TITLES

PRODUCT = [*Path("shared").rglob("*.py"), *Path("services").rglob("*.py")]

TEXTS = {"message", "reason", "detail", "explanation", "complaint"}
"""Attributes, keys and variables that hold a text for people or models."""

ERROR_NAMES = {"error", "exc", "failure", "refusal", "problem", "lack", "trouble"}
"""Variables whose attribute `text` is one, too, and whose `str()` is."""

READING = {
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "partition",
    "rpartition",
    "removeprefix",
    "count",
}
"""Methods of a text that look for words in it."""

MATCHING = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn"}

ALLOWED = {
    "shared/cadre/structs.py:misfit_of": "msgspec says in a sentence alone what does not fit",
    "shared/cadre/adapters/models/failure.py:_hint": "model endpoints of many makers refuse in sentences",
    "shared/cadre/adapters/models/failure.py:_names": "likewise",
    "shared/cadre/adapters/models/failure.py:may_refuse": "likewise",
    "shared/cadre/adapters/models/failure.py:names_a_bound": "likewise",
    "shared/cadre/adapters/models/failure.py:bounds": "likewise",
    "shared/cadre/adapters/models/failure.py:most_named": "likewise",
    "shared/cadre/adapters/models/openai_model.py:_otherwise": "likewise",
    "shared/cadre/adapters/models/profiles.py:taught_by": "likewise",
    "shared/cadre/adapters/nats/connection/connect.py:_on_error": "the NATS server sends `-ERR` with a sentence alone",
    "shared/cadre/adapters/nats/connection/connect.py:_why_hopeless": "likewise",
    "shared/cadre/kinds/workflow/walk.py:_is_passing": "the author of a workflow names words of a tool's own error",
    "services/cadre_operator/reconcile.py:_define": "a condition's `reason` is a code in Kubernetes",
    "services/cadre_operator/reconcile.py:_tell": "likewise",
    "services/cadre_operator/reconcile.py:_ready": "likewise",
    "services/cadre_operator/reconcile.py:_keys_of_waiting": "likewise",
    "services/cadre_operator/status.py:of_deployment": "likewise",
    "services/cadre_operator/status.py:pod_trouble": "likewise",
    "services/cadre_operator/status.py:_kstatus": "likewise",
}
"""Functions that may, by file and name, and why: most read what others say, at the edge of the product."""


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function or module, without the functions in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_nodes(node)


class Scope:
    """A function or module, and which of its names hold texts."""

    def __init__(self, scope: ast.AST) -> None:
        self.nodes = list(own_nodes(scope))
        caught = {node.name for node in self.nodes if isinstance(node, ast.ExceptHandler) and node.name}
        self.errors = ERROR_NAMES | caught
        self.texts = TEXTS - {"message"}  # a variable of this name is most often a record
        for node in self.nodes:
            if isinstance(node, ast.Assign | ast.NamedExpr) and self.is_text(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.texts = self.texts | {one.id for one in targets if isinstance(one, ast.Name)}

    def is_text(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.texts
            case ast.Attribute(value=ast.Name(id=owner), attr="text"):
                return owner in self.errors
            case ast.Attribute(attr=name):
                return name in TEXTS
            case ast.Subscript(slice=ast.Constant(value=key)):
                return key in TEXTS
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                return name in self.errors
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]):
                return key in TEXTS
            case ast.Call(func=ast.Attribute(value=text, attr="lower" | "casefold" | "strip")):
                return self.is_text(text)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Call(func=ast.Attribute(value=text))]):
                return self.is_text(text)
            case ast.JoinedStr(values=values):
                return any(isinstance(one, ast.FormattedValue) and self.is_text(one.value) for one in values)
            case ast.BoolOp(values=values):
                return any(map(self.is_text, values))
            case _:
                return False

    def found(self) -> Iterator[ast.AST]:
        """Yield what decides by words."""
        for node in self.nodes:
            match node:
                case ast.Compare():
                    if any(self._decides(*one) for one in sides(node)):
                        yield node
                case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                    reads = name in READING and (self.is_text(value) or any(map(is_sentence, args)))
                    texts = (isinstance(one, ast.Name) and one.id in TEXTS for one in args)
                    if reads or (name in MATCHING and (any(map(self.is_text, args)) or any(texts))):
                        yield node
                case ast.Match(subject=subject) if self.is_text(subject):
                    yield node

    def _decides(self, left: ast.AST, operator: ast.cmpop, right: ast.AST) -> bool:
        if isinstance(operator, ast.In | ast.NotIn):
            return self.is_text(right) or is_sentence(left) or (self.is_text(left) and is_literal(right))
        if not isinstance(operator, ast.Eq | ast.NotEq):
            return False
        pairs = ((left, right), (right, left))
        return any((self.is_text(one) and is_literal(other)) or is_sentence(other) for one, other in pairs)


def sides(node: ast.Compare) -> Iterator[tuple[ast.AST, ast.cmpop, ast.AST]]:
    operands = [node.left, *node.comparators]
    yield from zip(operands, node.ops, operands[1:], strict=False)


def is_sentence(node: ast.AST) -> bool:
    """Return whether it is a text of several words, and no SQL."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node.value.isupper():
        return False
    words = node.value.split()
    return len(words) > 1 and all(word.strip(",.:;'`!?").isalpha() for word in words)


def is_literal(node: ast.AST) -> bool:
    """Return whether it is a text, or texts, or a constant that may hold one."""
    match node:
        case ast.Constant(value=str(value)):
            return bool(value)
        case ast.JoinedStr():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return any(map(is_literal, elements))
        case _:
            return False


def decisions_by_words(source: str) -> Iterator[tuple[str, int, str]]:
    """Yield function, line and text of each place of a module that decides by the words of a message."""
    tree = ast.parse(source)
    scopes = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))]
    for scope in scopes:
        for node in Scope(scope).found():
            assert isinstance(node, ast.expr | ast.stmt)
            yield getattr(scope, "name", ""), node.lineno, ast.unparse(node).split("\n")[0]


def test_the_product_decides_by_no_words() -> None:
    found = [
        f"{file}:{line}: {text}"
        for file in PRODUCT
        for function, line, text in decisions_by_words(file.read_text())
        if f"{file}:{function}" not in ALLOWED
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    used = {f"{file}:{function}" for file in PRODUCT for function, _, _ in decisions_by_words(file.read_text())}
    assert set(ALLOWED) - used == set()


@pytest.mark.parametrize(
    "source",
    [
        'event.reason == "the lamp is out"',
        "error.message == _CUT",
        '"holds no " in str(error)',
        'body["detail"] in ("gone", "late")',
        '(lack or "").startswith("the lamp has no oil")',
        "re.search(pattern, error.message)",
        're.sub("neither .*", "", str(error))',
        "str(error).partition(mark)",
        "text = str(error)\nif text.startswith(mark): pass",
        'match error.message:\n    case "no": pass',
    ],
)
def test_such_a_decision_is_found(source: str) -> None:
    assert list(decisions_by_words(source))


@pytest.mark.parametrize(
    "source",
    [
        'error.code == "max-steps"',
        'print(f"{error.message}.")',
        "old.message != new.message",
        "if error.message: pass",
        'detail = " ".join(str(error).split())',
    ],
)
def test_nothing_else_is(source: str) -> None:
    assert not list(decisions_by_words(source))


def test_the_console_decides_by_no_words() -> None:
    text = r"(?:message|reason|detail)\b"
    decides = re.compile(
        rf"\.{text}\s*(?:[!=]==\s*[\"'`]|\?*\.(?:includes|startsWith|endsWith|match|search|split|indexOf)\()"
        rf"|\.(?:test|exec)\((?:\w+\.)?{text}"
    )
    scripts = [*Path("services/cadre_gateway/console/web").rglob("*.js")]
    found = [f"{file}: {one[0]}" for file in scripts for one in decides.finditer(file.read_text())]
    assert (found, bool(decides.search('if (error.message === "no") return'))) == ([], True)


def codes_raised() -> Iterator[tuple[str, str]]:
    """Yield the literal codes of problems that the gateway raises, each with its file."""
    for file in Path("services/cadre_gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Problem"), args=[_, ast.Constant(value=str(code)), *_]):
                    yield code, str(file)
                case _:
                    pass


def test_codes_of_problems_are_of_one_closed_list() -> None:
    raised = dict(codes_raised())
    assert len(raised) > 60
    assert {code: file for code, file in raised.items() if code not in TITLES} == {}
    assert {*get_args(IgnoredCode)} - {"not-awaited", "invalid-correction"} <= TITLES.keys()
    assert {*get_args(EditRefusal)} - {"invalid-edit"} <= TITLES.keys()


OF_DOORS = {
    "answer-changed",
    "request-cancelled",
    "not-json",
    "not-a-call",
    "parse-error",
    "unknown-method",
    "unknown-version",
    "task-not-cancelable",
    "unknown-conversation",
    "unknown-item",
}
"""Codes that the doors answer in the forms of their protocols, which have their own names for them."""


def test_codes_of_problems_are_documented() -> None:
    page = Path("docs/http-api.md").read_text()
    assert [code for code in TITLES if code not in OF_DOORS and f"`{code}`" not in page] == []


def test_every_code_says_what_it_stands_for() -> None:
    assert [*ERRORS] == [*get_args(ErrorCode)]
    assert [*IGNORED] == [*get_args(IgnoredCode)]
    assert [*EDIT_REFUSALS] == [*get_args(EditRefusal)]


def test_an_error_has_the_type_of_its_code_and_keeps_its_code_with_another_text() -> None:
    error = ErrorInfo("tool-failed", "About x: no", preamble=9, raised="ValueError")
    assert (error.type, error.saying("About x: yes").preamble) == ("AgentToolExecutionError", 9)
    other = error.saying("no")
    assert (other.code, other.raised, other.preamble) == ("tool-failed", "ValueError", 0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"code": "some-word", "message": "no"}', type=ErrorInfo)
