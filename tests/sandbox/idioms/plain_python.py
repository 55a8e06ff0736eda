"""Runs idioms in plain CPython, a child process: `python plain_python.py < blocks.json > outcomes.json`.

A block is a text, an outcome what a sandbox says of it: `{logs, text, error}`. The blocks share one namespace.
"""

import ast
import contextlib
import io
import json
import linecache
import sys
from typing import Any


def outcome_of(block: str, name: str, namespace: dict[str, Any]) -> dict[str, str]:
    """Return the output of the block, the text of its last expression, and the type of the error that it raises."""
    # Where `inspect` looks for the text of a function.
    linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
    printed, text, error = io.StringIO(), "", ""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            tree = ast.parse(block)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec", dont_inherit=True), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)
                text = "" if value is None else str(value)
        except BaseException as raised:
            error = type(raised).__name__
    return {"logs": printed.getvalue(), "text": text, "error": error}


def main() -> None:
    namespace = vars(sys.modules["__main__"])
    blocks = json.load(sys.stdin)
    json.dump([outcome_of(block, f"<block {n}>", namespace) for n, block in enumerate(blocks)], sys.stdout)


if __name__ == "__main__":
    main()
