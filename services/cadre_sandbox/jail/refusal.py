"""What code may not do: the builtins and attributes that are refused, and words about it for a model to act on."""

import ast
import builtins
import dis
import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

_real_import = builtins.__import__


_IMPORT_NAME = dis.opmap["IMPORT_NAME"]


class NotAllowed(Exception):
    """The guard refuses something. The walls are elsewhere: this only says early and in words what would not work."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def authorized(module: str, imports: Sequence[str]) -> bool:
    """Whether `imports` allow the module: by its name, by that of a package above it, or by `*`. `__future__` is
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
    """What the code is told when it may not import the module."""
    names = ", ".join(sorted(imports)) or "none"
    return f"import of {module} is not authorized. Authorized imports: {names}. Use these, or a tool."


TOOL_MODULES = frozenset({"tools", "tool", "functions", "function", "default_api", "agent_tools", "team"})
"""Modules that models invent for the functions which their code has."""


def functions_message(names: Sequence[str]) -> str:
    """Return the words for code that imports what it has as functions."""
    shown = ", ".join(f"{name}(…)" for name in names) or "final_answer(…)"
    return f"the functions are here already, and no module holds them: write {shown} without an import or a prefix."


_COMMAND = re.compile(
    r"\s*(?:[!%]{1,2}\s*\w|(?:pip3?|conda|apt(?:-get)?|npm|cd|ls|cat|curl|wget|python3?)\s+[\w.-])"
)


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
    """What the code is told when it may not use the builtin, and what to do instead."""
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
    """What the code is told when it may not use the attribute."""
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
