"""The rules for code: a block is read before it runs, refused builtins and attributes are named in words for a model to
act on, and small habits of models are turned into what they mean."""

import ast
import builtins
import dis
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

_GETTERS = {"getattr", "setattr", "hasattr", "delattr"}
_HIDDEN = frozenset({"__builtins__", "__loader__", "__spec__"})
_BINDS = {
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
    ast.alias: "asname",
}
"""The fields in which statements hold, as a text, the variable that they set."""

FINAL = "final_answer"
RENAMED = "final_answer_variable"


@dataclass(frozen=True, slots=True)
class Rules:
    """The imports, calls and assignments that a block may make."""

    imports: Sequence[str]
    builtins: Sequence[str]
    functions: Collection[str]
    """Names that the code calls and must not assign."""
    own: Collection[str] = ()
    """Names that earlier blocks assigned: `input = 3` makes it the code's own."""


def read(code: str, filename: str, rules: Rules) -> ast.Module:
    """Return the block as the syntax tree that is run. Raises SyntaxError, and NotAllowed with the line."""
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
    """Yield the names that the block assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif name := getattr(node, _BINDS.get(type(node), ""), None):
            yield name


def _declared(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the block makes its own in other ways: parameters, functions, classes, imports."""
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
            parameter.arg != FINAL for parameter in ast.iter_child_nodes(arguments) if isinstance(parameter, ast.arg)
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
            raise NotAllowed("relative imports lead nowhere here: import the module by its full name.", node.lineno)
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
                "return stands in a function only: print a value to see it, or end the task with final_answer(value).",
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
        """Count the variables that a function assigns beyond itself as if the block did."""
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


_real_import = builtins.__import__


_IMPORT_NAME = dis.opmap["IMPORT_NAME"]


class NotAllowed(Exception):
    """The guard refuses something. The walls are elsewhere: this only says early and in words what would not work."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def authorized(module: str, imports: Sequence[str]) -> bool:
    """Return whether `imports` allow the module: by its name, by that of a package above it, or by `*`. `__future__` is
    syntax."""
    return (
        module == "__future__"
        or any(
            allowed == "*" or module == allowed or module.startswith(allowed.removesuffix(".*") + ".")
            for allowed in imports
        )
        or any(module == allowed.removesuffix(".*") for allowed in imports)
    )


def import_message(module: str, imports: Sequence[str]) -> str:
    """Return the message for code that may not import the module."""
    names = ", ".join(sorted(imports)) or "none"
    return f"import of {module} is not authorized. Authorized imports: {names}. Use these, or a tool."


TOOL_MODULES = frozenset({"tools", "tool", "functions", "function", "default_api", "agent_tools", "team"})
"""Modules that models invent for the functions which their code has."""


def functions_message(names: Sequence[str]) -> str:
    """Return the words for code that imports what it has as functions."""
    shown = ", ".join(f"{name}(…)" for name in names) or "final_answer(…)"
    return f"the functions are here already, and no module holds them: write {shown} without an import or a prefix."


_COMMAND = re.compile(r"\s*(?:[!%]{1,2}\s*\w|(?:pip3?|conda|apt(?:-get)?|npm|cd|ls|cat|curl|wget|python3?)\s+[\w.-])")


def is_command(line: str) -> bool:
    """Return whether a line is a command of a shell or a notebook."""
    return _COMMAND.match(line) is not None


def command_message(imports: Sequence[str]) -> str:
    """Return the words for code that is a command of a shell or a notebook."""
    names = ", ".join(sorted(imports)) or "none"
    return (
        "this is a command of a shell or a notebook, and the block is Python alone: nothing can be installed or"
        f" started here. Authorized imports: {names}."
    )


def await_message(awaited: ast.expr | None) -> str:
    """Return the words for code that waits at its top level, with the line that does without."""
    text = ast.unparse(awaited) if awaited is not None else ""
    instead = f"write {text}" if text and len(text) <= _SHOWN else "call them as they are"
    return (
        f"there is no await outside of a function, and functions here return their results at once: {instead}."
        " For several calls at the same time write gather(first.later(…), second.later(…))."
    )


_SHOWN = 200
"""Characters of code that a message repeats."""

BUILTINS = {
    "__import__": "use the import statement",
    "breakpoint": "print what you want to see",
    "compile": "write the code itself into the block",
    "eval": "write the expression itself, or use ast.literal_eval or json.loads for data",
    "exec": "write the code itself into the block",
    "input": "nobody sits at this console; use a tool that asks a person, if you have one",
    "open": "files are not authorized; use a tool to read or write",
    "exit": "end the task with final_answer(value)",
    "quit": "end the task with final_answer(value)",
}
"""Refused unless authorized by name, and what to do instead."""


def builtin_message(name: str) -> str:
    """Return the message for code that may not use the builtin, and what to do instead."""
    return f"{name}() is not available here: {BUILTINS[name]}."


ATTRIBUTES = frozenset(
    (
        *("__base__", "__bases__", "__builtins__", "__closure__", "__code__", "__func__", "__getattribute__"),
        *("__globals__", "__import__", "__loader__", "__mro__", "__reduce__", "__reduce_ex__", "__self__"),
        *("__spec__", "__subclasses__", "__traceback__", "ag_frame", "co_code", "cr_frame", "f_back"),
        *("f_builtins", "f_globals", "f_locals", "gi_code", "gi_frame", "mro", "tb_frame", "tb_next"),
    )
)
"""Attributes by which code walks from a value into the interpreter."""


def attribute_message(name: str) -> str:
    """Return the message for code that may not use the attribute."""
    return f"the attribute {name} is not available here: it leads into the interpreter, not to your data."


class Builtins:
    """The builtins in one dict for the interpreter's life: every function keeps the dict that it was defined under."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.imported: set[str] = set()
        """Modules within packages, by their full names."""
        self._imports: Sequence[str] = ()

    def start(self, imports: Sequence[str], allowed: Sequence[str], functions: dict[str, Any]) -> None:
        """Fill the dict for a block: `allowed` names builtins that are refused otherwise, `functions` are added to
        it."""
        self._imports = imports
        self.names.clear()
        self.names.update(vars(builtins))
        for name in () if "*" in allowed else BUILTINS.keys() - set(allowed):
            self.names[name] = _refused(name)
        self.names["__import__"] = self._import
        self.names.update(functions)

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if globals is not None and globals is locals and not _is_import_statement(sys._getframe(1)):
            # So does C code, on the frame that called it: `datetime.strptime` imports a module. Libraries have what
            # they need.
            return _real_import(name, globals, locals, fromlist or (), level)
        wanted = [f"{name}.{part}" for part in fromlist or ()]
        by_parts = bool(wanted) and all(authorized(part, self._imports) for part in wanted)
        if not (authorized(name, self._imports) or by_parts):
            raise ImportError(import_message(name, self._imports), name=name)
        module = _real_import(name, globals, locals, fromlist or (), level)
        self.imported.update(full for full in (name, *wanted) if "." in full and full in sys.modules)
        return module


def _is_import_statement(frame: FrameType) -> bool:
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_NAME


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotAllowed(builtin_message(name))

    refuse.__name__ = name
    return refuse
