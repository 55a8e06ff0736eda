"""Jinja2's sandbox with bounds: no template takes more time or memory than is allowed, regardless of its values.

Parsing is bounded by the numbers of characters, tokens and levels; rendering is charged by what it takes and what it
gives, before it happens. This module loads the template engine: commands that evaluate nothing should not import it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import TemplateSyntaxError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.lexer import TokenStream
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from cadre.spec.templates import template_prices as prices
from cadre.spec.templates.template_filters import allowed_filters, allowed_tests, compared, price_of_method
from cadre.spec.templates.template_work import ChargedFunction, TemplateWork, work_of_one_rendering

MAX_SOURCE_CHARACTERS = 200_000
"""Of one template."""

MAX_TOKENS = 1_200
"""Words, signs and pieces of text of one template."""

MAX_LEVELS = 40
"""Statements, brackets and operators in each other; each operator of a chain counts."""

MAX_LOOPS_WITHIN = 8
MAX_MACRO_DEPTH = 16

_SCOPES = ("_loop_vars", "_block_vars")
"""The engine adds these names to the arguments of every call in a loop or block; nothing here takes them."""

_TOO_DEEP = f"it is nested more than {MAX_LEVELS} deep, or has a longer chain of operators"

_STATEMENTS = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Macro, nodes.CallBlock),
    *(nodes.FilterBlock, nodes.With, nodes.Assign, nodes.AssignBlock),
)
_EXPRESSIONS = (
    *(nodes.Name, nodes.NSRef, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Concat),
    *(nodes.Compare, nodes.Operand, nodes.Not, nodes.Neg, nodes.Pos, nodes.And, nodes.Or, nodes.Call),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)
_ALLOWED = frozenset((*_STATEMENTS, *_EXPRESSIONS))

_UNITS: dict[type[nodes.Node], int] = {
    nodes.Filter: 40,
    nodes.Test: 30,
    nodes.Call: 60,
    nodes.CallBlock: 60,
    nodes.For: 30,
    nodes.Macro: 20,
    nodes.Compare: 20,
    nodes.Concat: 30,
    nodes.Output: 20,
    nodes.Getattr: 10,
    nodes.Getitem: 10,
    **dict.fromkeys((nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow), 25),
}
"""Units for a node of a template each time that it is evaluated; 1 for those that are not here."""

_LOOP_UNITS = 10
"""Units for a turn of a loop beyond its body."""


class CountingContext(Context):
    """Counts the work of one rendering."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.work: TemplateWork = work_of_one_rendering()
        self.depth = 0


# --- what the code of a template calls


@pass_context
def charged_loop(context: CountingContext, value: Any, units: int) -> Any:
    """Return the value of a loop whose turns take so many units each."""
    if isinstance(value, Undefined):
        return value
    if not hasattr(value, "__len__"):
        raise TypeError(f"a loop goes through no {type(value).__name__}")
    prices.price_of_items(context.work, value, units)
    return value


@pass_context
def charged_body(context: CountingContext, units: int) -> None:
    """Charge the body of a template or macro, which begins."""
    context.work.charge(units)


@pass_context
def charged_text(context: CountingContext, value: Any) -> Any:
    """Return the value, which becomes text."""
    prices.price_of_whole(context.work, value)
    return value


@pass_context
def charged_kept(context: CountingContext, value: Any) -> Any:
    """Return the value, which a namespace keeps: it could grow in a loop."""
    if not isinstance(value, Macro | Undefined):
        prices.price_of_whole(context.work, value)
    return value


@pass_context
def charged_key(context: CountingContext, value: Any) -> Any:
    """Return the value, by which something is looked up."""
    prices.price_of_key(context.work, value)
    return value


@pass_context
def charged_slice(context: CountingContext, value: Any) -> Any:
    """Return a part that was taken of a value."""
    prices.price_of_slice(context.work, value)
    return value


@pass_context
def sum_of(context: CountingContext, parts: list[Any]) -> str:
    """Return the texts of the parts as one text."""
    for part in parts:
        prices.price_of_whole(context.work, part)
    texts = [str(part) for part in parts]
    prices.price_of_text(context.work, sum(map(len, texts)))
    return "".join(texts)


_CALLED_BY_CODE = (
    *(charged_loop, charged_body, charged_text, charged_kept, charged_key, charged_slice, sum_of),
    compared,
)


class _BoundedCode(NodeTransformer):
    """Makes templates charge their work, and `a.b` mean the key `b` before a method of that name."""

    def visit_Template(self, node: nodes.Template) -> nodes.Node:
        units = _units(node)
        self.generic_visit(node)
        node.body.insert(0, _charge(units))
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        units = _LOOP_UNITS + sum(map(_units, [*node.body, *([node.test] if node.test else [])]))
        self.generic_visit(node)
        node.iter = _call(node.iter, "charged_loop", units)
        return node

    def visit_Macro(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:
        units = _units(node)
        self.generic_visit(node)
        node.body.insert(0, _charge(units))
        return node

    visit_CallBlock = visit_Macro

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        plain = (nodes.TemplateData, nodes.Const)
        node.nodes = [one if isinstance(one, plain) else _call(one, "charged_text") for one in node.nodes]
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.target, nodes.NSRef) or any(node.target.find_all(nodes.NSRef)):
            node.node = _call(node.node, "charged_kept")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        operands = [node.expr, *(one.expr for one in node.ops)]
        names = tuple(one.op for one in node.ops)
        if len(names) == 1 and names[0] not in ("in", "notin") and any(map(_is_plain, operands)):
            return node
        return _call(nodes.List(operands, lineno=node.lineno), "compared", names)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call(nodes.List(node.nodes, lineno=node.lineno), "sum_of")

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _call(node.key, "charged_key")
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        called = node.node
        self.generic_visit(node)
        if isinstance(called, nodes.Getattr):  # a method
            node.node = nodes.Getattr(called.node, called.attr, called.ctx, lineno=node.lineno)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Getitem(node.node, nodes.Const(node.attr), node.ctx, lineno=node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _call(node, "charged_slice")
        if not isinstance(node.arg, nodes.Const):
            node.arg = _call(node.arg, "charged_key")
        return node


def _call(node: nodes.Node, name: str, *args: Any) -> nodes.Filter:
    assert isinstance(node, nodes.Expr)
    given: list[nodes.Expr] = [nodes.Const(one, lineno=node.lineno) for one in args]
    return nodes.Filter(node, name, given, [], None, None, lineno=node.lineno)


def _charge(units: int) -> nodes.Node:
    return nodes.ExprStmt(_call(nodes.Const(units, lineno=1), "charged_body"), lineno=1)


def _names_in(target: nodes.Node) -> Iterator[nodes.Name]:
    return iter([target]) if isinstance(target, nodes.Name) else target.find_all(nodes.Name)


def _is_plain(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Const)


def _units(node: nodes.Node) -> int:
    """Return the units of a node with all that is in it."""
    units = _UNITS.get(type(node), 1)
    if isinstance(node, nodes.TemplateData):
        units += len(node.data) // prices.COPIED
    return units + sum(map(_units, node.iter_child_nodes()))


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for templates with bounds: a value that is too large, or too much work, raises OverflowError, and
    anything that is not allowed raises TemplateSyntaxError."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})
    context_class = CountingContext

    def __init__(self, **options: Any) -> None:
        super().__init__(autoescape=False, optimized=False, **options)
        self.globals.clear()
        self.globals.update(
            {"range": safe_range, "dict": dict, "namespace": Namespace, "cycler": Cycler, "joiner": Joiner}
        )
        self._makers = (safe_range, dict, Namespace, Cycler, Joiner)
        self.filters: dict[str, Any] = allowed_filters()
        self.tests: dict[str, Any] = allowed_tests()
        for one in _CALLED_BY_CODE:
            self.filters[one.__name__] = one
        self._hidden = frozenset(one.__name__ for one in _CALLED_BY_CODE)

    # --- parsing

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise TemplateSyntaxError(f"it has more than {MAX_SOURCE_CHARACTERS:,} characters", 1)
        tokens = self.lexer.tokeniter(self.preprocess(source, name, filename), name, filename, state)
        return TokenStream(self.lexer.wrap(_few(tokens), name, filename), name, filename)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        try:
            tree = super()._parse(source, name, filename)
        except RecursionError as error:
            raise TemplateSyntaxError(_TOO_DEEP, 1) from error
        self._check(tree)
        return tree

    def compile_expression(self, source: str, undefined_to_none: bool = True) -> Any:
        self.parse("{{ " + source + "\n}}")  # which checks it
        return super().compile_expression(source, undefined_to_none)

    def _check(self, tree: nodes.Template) -> None:
        level: list[tuple[nodes.Node, int]] = [(tree, 0)]
        depth = 0
        while level:
            depth += 1
            if depth > MAX_LEVELS:
                raise TemplateSyntaxError(_TOO_DEEP, level[0][0].lineno)
            below = []
            for node, loops in level:
                self._check_node(node)
                within = loops + isinstance(node, nodes.For)
                if within > MAX_LOOPS_WITHIN:
                    raise TemplateSyntaxError(f"it has more than {MAX_LOOPS_WITHIN} loops in each other", node.lineno)
                below += [(one, within) for one in node.iter_child_nodes()]
            level = below

    def _check_node(self, node: nodes.Node) -> None:
        if type(node) not in _ALLOWED:
            raise TemplateSyntaxError(f"a template may hold no {type(node).__name__.lower()}", node.lineno or 1)
        if isinstance(node, nodes.For):
            if node.recursive:
                raise TemplateSyntaxError("a template may hold no recursive loop", node.lineno)
            if any(one.name == "loop" for one in _names_in(node.target)):
                raise TemplateSyntaxError("loop is the name of the loop itself", node.lineno)
        if isinstance(node, nodes.Filter | nodes.Test):
            known = self.filters if isinstance(node, nodes.Filter) else self.tests
            if node.name not in known or node.name in self._hidden:
                kind = "filter" if isinstance(node, nodes.Filter) else "test"
                names = ", ".join(sorted(known.keys() - self._hidden))
                raise TemplateSyntaxError(f"No {kind} named {node.name!r} here: use {names}", node.lineno)
        number = node.value if isinstance(node, nodes.Const) else None
        if isinstance(number, int) and number.bit_length() > prices.MAX_NUMBER_BITS:
            raise TemplateSyntaxError(f"a number has more than {prices.MAX_NUMBER_BITS} bits", node.lineno)

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        return super()._generate(_BoundedCode().visit(source), *args, **named)

    # --- rendering

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        assert isinstance(context, CountingContext)
        prices.price_of_operands(context.work, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = super().getitem(obj, argument)
        if callable(found) and not isinstance(found, Macro | Cycler | Joiner | Undefined):
            return self.undefined(obj=obj, name=argument)  # a method that is not called
        return found

    def call(self, context: Any, called: Any, /, *args: Any, **named: Any) -> Any:
        for scope in _SCOPES:
            named.pop(scope, None)
        context.work.charge(len(args) + len(named))
        if isinstance(called, Macro):
            return self._call_macro(context, called, *args, **named)
        if any(called is one for one in self._makers):
            for one in (*args, *named.values()):
                prices.price_of_whole(context.work, one)
                if called is dict:
                    prices.price_of_pairs(context.work, one)
        elif isinstance(called, ChargedFunction):
            called.charge(context.work)
        elif not isinstance(called, Joiner | Undefined):
            price = price_of_method(called)
            if price is None:
                raise SecurityError(f"{getattr(called, '__name__', called)!r} may not be called here")
            price(context.work, *args, **named)
        return super().call(context, called, *args, **named)

    def _call_macro(self, context: Any, called: Any, /, *args: Any, **named: Any) -> Any:
        if context.depth == MAX_MACRO_DEPTH:
            raise OverflowError(f"macros call each other more than {MAX_MACRO_DEPTH} deep")
        context.depth += 1
        try:
            return super().call(context, called, *args, **named)
        finally:
            context.depth -= 1

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Return the text of a template. Raises OverflowError for one that is too long."""
        texts, length = [], 0
        for part in parts:
            length += len(part)
            if length > prices.MAX_TEXT_CHARACTERS:
                raise OverflowError(f"the text would have more than {prices.MAX_TEXT_CHARACTERS:,} characters")
            texts.append(part)
        return "".join(texts)


def _few(tokens: Iterator[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield the tokens. Raises TemplateSyntaxError for too many of them, and for brackets that are nested too deep."""
    count = depth = 0
    for line, kind, text in tokens:
        count += kind != "whitespace"
        if count > MAX_TOKENS:
            raise TemplateSyntaxError(f"it has more than {MAX_TOKENS:,} words and signs", line)
        if kind == "operator":
            depth += (text in "([{") - (text in ")]}")
            if depth > MAX_LEVELS // 2:
                raise TemplateSyntaxError(_TOO_DEEP, line)
        yield line, kind, text


def tokens_of(environment: BoundedEnvironment, source: str) -> int:
    """Return the number of words and signs of a template, by which its compiling is charged."""
    return sum(kind != "whitespace" for _, kind, _ in environment.lexer.tokeniter(source, None))
