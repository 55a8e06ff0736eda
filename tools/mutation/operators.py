"""The small bugs that are planted: for a node of a syntax tree, each operator says what may stand in its place."""

import ast
from collections.abc import Iterator
from typing import TypeVar

OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OFF_BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
ORDER_DOES_NOT_MATTER = {"min", "max", "isinstance", "cast", "range", "zip", "getattr"}
"""Calls whose arguments are not swapped: they mean the same, or fail at once."""

Node = TypeVar("Node", bound=ast.AST)
Replacement = tuple[str, ast.AST]
"""The operator's name and what it puts in the node's place."""


def replacements(node: ast.AST) -> Iterator[Replacement]:
    """Every mutation of this very node, none of the nodes below it."""
    match node:
        case ast.Compare():
            yield from _comparison(node)
        case ast.BoolOp():
            yield from _boolean(node)
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
            yield "always", ast.Constant(True)
        case ast.Call():
            yield from _call(node)
        case ast.Constant():
            yield from _constant(node)
        case ast.BinOp() | ast.AugAssign():
            yield from _sign(node)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return-none", ast.Return(ast.Constant(None))
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield from _handler(node, caught)
        case ast.MatchOr():
            yield from (
                ("case", ast.MatchOr([*node.patterns[:i], *node.patterns[i + 1 :]]))
                for i in range(len(node.patterns))
                if len(node.patterns) > 2
            )
        case _:
            pass
    if isinstance(node, ast.If | ast.While | ast.IfExp) and _is_plain(node.test):
        yield "negate", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension):
        for i in range(len(node.ifs)):
            yield "filter", _with(node, ifs=[*node.ifs[:i], *node.ifs[i + 1 :]])
    if _is_droppable(node):
        yield "drop", ast.Pass()


def _comparison(node: ast.Compare) -> Iterator[Replacement]:
    for name, table in (("comparison", OPPOSITE), ("boundary", OFF_BY_ONE)):
        for i, op in enumerate(node.ops):
            if type(op) in table:
                yield name, _with(node, ops=[*node.ops[:i], table[type(op)](), *node.ops[i + 1 :]])


def _boolean(node: ast.BoolOp) -> Iterator[Replacement]:
    yield "and-or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield "operand", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _call(node: ast.Call) -> Iterator[Replacement]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in ("min", "max"):
        yield "min-max", _with(node, func=ast.Name("max" if name == "min" else "min", ast.Load()))
    first = node.args[:2]
    if len(first) == 2 and name not in ORDER_DOES_NOT_MATTER:
        same = ast.dump(first[0]) == ast.dump(first[1])
        if not same and not any(isinstance(arg, ast.Starred) for arg in first):
            yield "arguments", _with(node, args=[first[1], first[0], *node.args[2:]])


def _constant(node: ast.Constant) -> Iterator[Replacement]:
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield "constant", ast.Constant(node.value + 1)


def _sign(node: ast.BinOp | ast.AugAssign) -> Iterator[Replacement]:
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    if any(isinstance(operand, ast.List | ast.JoinedStr | ast.Tuple | ast.ListComp) for operand in operands):
        return  # joined, not added: any test sees the exception
    if isinstance(node.op, ast.Add | ast.Sub):
        yield "sign", _with(node, op=ast.Sub() if isinstance(node.op, ast.Add) else ast.Add())


def _handler(node: ast.ExceptHandler, caught: ast.expr) -> Iterator[Replacement]:
    """One exception fewer is caught; where it was the only one, none."""
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    for i in range(len(kinds)):
        rest = [*kinds[:i], *kinds[i + 1 :]]
        yield "except", _with(node, type=ast.Tuple(rest, ast.Load()))


def _is_plain(test: ast.expr) -> bool:
    """Return whether no other operator turns the condition round already."""
    one = isinstance(test, ast.Compare) and len(test.ops) == 1
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return not one and not negated and not isinstance(test, ast.Constant)


def _is_droppable(node: ast.AST) -> bool:
    """A statement whose absence is no NameError: a call, a raise, a change of something that stays."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Delete():
            return True
        case ast.Continue() | ast.Break():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            return True
        case _:
            return False


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _with(node: Node, **fields: object) -> Node:
    """A copy of the node with these fields changed."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})
