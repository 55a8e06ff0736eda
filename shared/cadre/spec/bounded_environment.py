"""Jinja2's sandbox with bounds: no expression takes more time or memory than there is, whatever values it meets.

This module loads the template engine: commands that evaluate nothing should not import it.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from itertools import islice
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from cadre.spec.result_sizes import check_length, check_method, check_operands, checked_width

MAX_WORK = 1_000_000
"""Items that one evaluation goes through, in all its loops, filters and calls together."""

_CHARACTERS_PER_WORK = 64
"""Characters of a text that cost as much as an item of a list."""


class CountingContext(Context):
    """Counts the work of one evaluation: by numbers and not by time, as a run decided anew must find the same."""

    work = 0

    def charge(self, value: Any) -> None:
        if isinstance(value, str):
            self.work += len(value) // _CHARACTERS_PER_WORK
        elif hasattr(value, "__len__") and not isinstance(value, Undefined):
            self.work += len(value)
        self.work += 1
        if self.work > MAX_WORK:
            raise OverflowError(f"its loops go through more than {MAX_WORK:,} items in all")

    def charge_whole(self, value: Any) -> None:
        """Charges what is within the value too, however often it is the same."""
        within = [value]
        while within:
            one = within.pop()
            self.charge(one)
            if isinstance(one, dict):
                within += one.values()
            elif isinstance(one, list | tuple):
                within += one


@pass_context
def charged(context: CountingContext, value: Any) -> Any:
    """The value, whose items are about to be gone through."""
    if not hasattr(value, "__len__") and hasattr(value, "__iter__"):
        value = list(islice(value, MAX_WORK))
    context.charge(value)
    return value


@pass_context
def charged_sized(context: CountingContext, value: Any) -> Any:
    """The value, however it is used."""
    context.charge(value)
    return value


@pass_context
def charged_whole(context: CountingContext, value: Any) -> Any:
    """The value, which becomes text."""
    context.charge_whole(value)
    return value


@pass_context
def sum_of(context: CountingContext, parts: list[Any]) -> str:
    """The texts of the parts, as one."""
    context.charge_whole(parts)
    texts = [str(part) for part in parts]
    check_length("~", sum(map(len, texts)))
    return "".join(texts)


class BoundedCode(NodeTransformer):
    """Makes templates count their work, and `a.b` mean the key `b` before a method of that name."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "charged", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        self.generic_visit(node)
        if node.node is not None:
            whole = node.name in ("pprint", "string", "tojson", "urlencode")
            node.node = _filter(node.node, "charged_whole" if whole else "charged_sized")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [
            one if isinstance(one, nodes.TemplateData) else _filter(one, "charged_whole")
            for one in node.nodes
        ]
        return node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:
        self.generic_visit(node)
        if node.op in ("in", "notin"):
            node.expr = _filter(node.expr, "charged_sized")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "sum_of")

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        called = node.node
        self.generic_visit(node)
        if isinstance(called, nodes.Getattr):  # a method
            node.node = nodes.Getattr(called.node, called.attr, called.ctx, lineno=node.lineno)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Getitem(node.node, nodes.Const(node.attr), node.ctx, lineno=node.lineno)


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """What would be too large, or too much work, raises OverflowError."""

    intercepted_binops = frozenset({"**", "*", "%", "+"})
    context_class = CountingContext

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        center, indent = self.filters["center"], self.filters["indent"]
        self.filters["center"] = lambda value, width=80: center(value, checked_width(width))
        self.filters["indent"] = lambda s, width=4, *rest, **named: indent(
            s, checked_width(width), *rest, **named
        )
        for name in ("join", "replace", "format"):
            self.filters[name] = _checked(self.filters[name], name)
        self.filters |= {one.__name__: one for one in (charged, charged_sized, charged_whole, sum_of)}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, called: Any, /, *args: Any, **named: Any) -> Any:
        for value in (*args, None):
            context.charge(value)
        method = getattr(called, "__wrapped__", called)  # the sandbox has a `str.format` of its own
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            check_method(method.__name__, text, *args, *named.values())
        return super().call(context, called, *args, **named)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """The text of a template."""
        texts, length = [], 0
        for part in parts:
            length += len(part)
            check_length("the text", length)
            texts.append(part)
        return "".join(texts)

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        return super()._generate(BoundedCode().visit(source), *args, **named)


def _checked(filter_: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A filter whose arguments are checked as those of the method of that name are."""

    @wraps(filter_)  # which says whether it takes a context
    def checked(*args: Any, **named: Any) -> Any:
        value, *more = args if name == "format" else args[1:]
        if name == "join":
            value = list(value)
            args = (args[0], value, *more)
            check_method("join", str(more[0] if more else named.get("d", "")), value)
        else:
            check_method(name, str(value), *more, *named.values())
        return filter_(*args, **named)

    return checked
