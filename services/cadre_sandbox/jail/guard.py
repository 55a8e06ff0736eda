"""Reads a block before it runs: refuses what it may not do, and turns small habits of models into what they mean."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cadre_sandbox.jail.refusal import (
    ATTRIBUTES,
    BUILTINS,
    TOOL_MODULES,
    NotAllowed,
    attribute_message,
    authorized,
    await_message,
    builtin_message,
    command_message,
    functions_message,
    import_message,
    is_command,
)

_GETTERS = {"getattr", "setattr", "hasattr", "delattr"}
_HIDDEN = frozenset({"__builtins__", "__loader__", "__spec__"})
_BINDS = {
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
    ast.alias: "asname",
}
"""Where statements hold, as a text, the variable that they set."""

FINAL = "final_answer"
RENAMED = "final_answer_variable"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a block may import, call and assign."""

    imports: Sequence[str]
    builtins: Sequence[str]
    functions: Collection[str]
    """Names that the code calls and shall not assign."""
    own: Collection[str] = ()
    """Names that earlier blocks assigned: `input = 3` makes it the code's own."""


def read(code: str, filename: str, rules: Rules) -> ast.Module:
    """The block as the syntax tree that is run. Raises SyntaxError, and NotAllowed with the line."""
    try:
        tree = ast.parse(code, filename)
    except SyntaxError as error:
        lines = code.splitlines()
        if error.lineno and error.lineno <= len(lines) and is_command(lines[error.lineno - 1]):
            raise NotAllowed(command_message(rules.imports), error.lineno) from error
        raise
    variables = set(_variables(tree))
    own = {*rules.own, *variables, *_declared(tree)}
    if FINAL in variables or RENAMED in rules.own:
        _Rename().visit(tree)
    _Guard(rules, own).visit(tree)
    _CatchLess().visit(tree)
    return tree


def _variables(tree: ast.Module) -> Iterator[str]:
    """The names that the block assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif name := getattr(node, _BINDS.get(type(node), ""), None):
            yield name


def _declared(tree: ast.Module) -> Iterator[str]:
    """The names that the block makes its own in other ways: parameters, functions, classes, imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias) and not node.asname:
            yield node.name.split(".")[0]


class _Rename(ast.NodeTransformer):
    """Renames a variable `final_answer`; the function of that name stays, and so does a parameter."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        field = _BINDS.get(type(node), "")
        if getattr(node, field, None) == FINAL:
            setattr(node, field, RENAMED)
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [RENAMED if name == FINAL else name for name in node.names]
        return super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.AST:
        arguments = node.args
        if all(
            parameter.arg != FINAL
            for parameter in ast.iter_child_nodes(arguments)
            if isinstance(parameter, ast.arg)
        ):
            return self.generic_visit(node)
        # Within, the name is that of the parameter; what is worked out outside of it is not.
        outside = [*arguments.defaults, *arguments.kw_defaults, *getattr(node, "decorator_list", ())]
        for expression in filter(None, outside):
            self.visit(expression)
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == FINAL:
            node.args = [self.visit(argument) for argument in node.args]
            node.keywords = [self.visit(keyword) for keyword in node.keywords]
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == FINAL:
            node.id = RENAMED
        return node


class _CatchLess(ast.NodeTransformer):
    """Makes `except:` and `except BaseException:` catch errors only, not the final answer or the end of the time."""

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        kind = node.type
        if kind is None or (isinstance(kind, ast.Name) and kind.id == "BaseException"):
            node.type = ast.copy_location(ast.Name("Exception", ast.Load()), kind or node)
        return node


class _Guard(ast.NodeVisitor):
    def __init__(self, rules: Rules, own: Collection[str]) -> None:
        self._rules = rules
        everything = "*" in rules.builtins
        self._refused = set() if everything else BUILTINS.keys() - set(rules.builtins) - set(own)
        self._attributes = frozenset() if everything else ATTRIBUTES
        self._hidden = frozenset() if everything else _HIDDEN
        self._own = own
        self._depth = 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._not_imported(alias.name, [alias.name], node)
            self._import(alias.name, node)
            self._not_a_function((alias.asname or alias.name).split(".")[0], node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            raise NotAllowed(
                "relative imports lead nowhere here: import the module by its full name.", node.lineno
            )
        module = node.module or ""
        self._not_imported(module, [alias.name for alias in node.names], node)
        for alias in node.names:
            if not authorized(module, self._rules.imports):
                self._import(f"{module}.{alias.name}", node, module)
            self._not_a_function(alias.asname or alias.name, node)

    def visit_Await(self, node: ast.Await) -> None:
        self._outside_of_functions(node, node.value)
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor | ast.AsyncWith) -> None:
        self._outside_of_functions(node, None)
        self.generic_visit(node)

    visit_AsyncWith = visit_AsyncFor

    def visit_Return(self, node: ast.Return) -> None:
        if not self._depth:
            raise NotAllowed(
                "return stands in a function only: print a value to see it, or end the task with"
                " final_answer(value).",
                node.lineno,
            )
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        """Leave an import that is tried and caught to be refused when it runs, so that the other branch is taken."""
        if not any(map(_catches_import_error, node.handlers)):
            self.generic_visit(node)
            return
        for part in (*node.body, *node.handlers, *node.orelse, *node.finalbody):
            if not (part in node.body and isinstance(part, ast.Import | ast.ImportFrom)):
                self.visit(part)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self._refused:
            raise NotAllowed(builtin_message(node.id), node.lineno)
        if node.id in self._hidden:
            raise NotAllowed(attribute_message(node.id), node.lineno)
        if not isinstance(node.ctx, ast.Load) and not self._depth:
            self._not_a_function(node.id, node)

    def visit_Global(self, node: ast.Global) -> None:
        """What a function assigns beyond itself counts as if the block did."""
        depth, self._depth = self._depth, 0
        for name in node.names:
            self._not_a_function(name, node)
        self._depth = depth

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in self._attributes:
            raise NotAllowed(attribute_message(node.attr), node.lineno)
        if isinstance(node.value, ast.Name) and node.value.id in TOOL_MODULES - set(self._own):
            self._not_imported(node.value.id, [node.attr], node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id=getter), args=[_, ast.Constant(value=str(name)), *_]):
                if getter in _GETTERS and name in self._attributes:
                    raise NotAllowed(attribute_message(name), node.lineno)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if field := _BINDS.get(type(node)):
            self._not_a_function(getattr(node, field), node)
        super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._not_a_function(node.name, node)
        self._inner(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._not_a_function(node.name, node)
        self._inner(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node)

    def _inner(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def _not_imported(self, module: str, names: Sequence[str], node: ast.AST) -> None:
        """Raise NotAllowed for what the code has already as functions, wherever it believes them to be."""
        if authorized(module, self._rules.imports):
            return
        found = [name for name in names if name in self._rules.functions]
        if found or module in TOOL_MODULES:
            message = functions_message(found or sorted(self._rules.functions))
            raise NotAllowed(message, getattr(node, "lineno", None))

    def _outside_of_functions(self, node: ast.AST, awaited: ast.expr | None) -> None:
        if not self._depth:
            raise NotAllowed(await_message(awaited), getattr(node, "lineno", None))

    def _import(self, module: str, node: ast.stmt, shown: str = "") -> None:
        if not authorized(module, self._rules.imports):
            raise NotAllowed(import_message(shown or module, self._rules.imports), node.lineno)

    def _not_a_function(self, name: str | None, node: ast.AST) -> None:
        if self._depth or not (name in self._rules.functions or name == "print"):
            return
        line = getattr(node, "lineno", None)
        raise NotAllowed(f"{name} is a function that you call; choose another name for your own.", line)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    caught = {"ImportError", "ModuleNotFoundError", "Exception"}
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in caught) for kind in kinds)
