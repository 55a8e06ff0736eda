"""Signatures of functions from their text, without evaluating any of it."""

import ast
import inspect
from functools import cache
from typing import Any


class _ToolDefault:
    """Stands for a default that only the tool itself knows."""

    def __repr__(self) -> str:
        return "…"


_TOOL_DEFAULT = _ToolDefault()


@cache
def parse(name: str, text: str) -> inspect.Signature:
    """Return the signature that the text `(a: int, *, b=1) -> str` stands for. Annotations stay texts; defaults are
    known to the tool alone.

    Raises ValueError for what is no signature.
    """
    text = text.strip()
    text = text[text.index("(") :] if "(" in text else f"({text})"
    try:
        (function,) = ast.parse(f"def _{text.removesuffix(':')}: ...").body
    except (SyntaxError, ValueError):
        raise ValueError(f"the signature of {name} is none: {text}") from None
    assert isinstance(function, ast.FunctionDef)
    given, kinds = function.args, inspect.Parameter
    empty: Any = kinds.empty
    positional = [*given.posonlyargs, *given.args]
    required = len(positional) - len(given.defaults)
    made = [
        _parameter(
            argument,
            kinds.POSITIONAL_ONLY if argument in given.posonlyargs else kinds.POSITIONAL_OR_KEYWORD,
            empty if index < required else _TOOL_DEFAULT,
        )
        for index, argument in enumerate(positional)
    ]
    if given.vararg:
        made.append(_parameter(given.vararg, kinds.VAR_POSITIONAL, empty))
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        made.append(_parameter(argument, kinds.KEYWORD_ONLY, empty if default is None else _TOOL_DEFAULT))
    if given.kwarg:
        made.append(_parameter(given.kwarg, kinds.VAR_KEYWORD, empty))
    returns = ast.unparse(function.returns) if function.returns else inspect.Signature.empty
    return inspect.Signature(made, return_annotation=returns)


def _parameter(argument: ast.arg, kind: Any, default: Any) -> inspect.Parameter:
    annotation = ast.unparse(argument.annotation) if argument.annotation else inspect.Parameter.empty
    return inspect.Parameter(argument.arg, kind, default=default, annotation=annotation)
