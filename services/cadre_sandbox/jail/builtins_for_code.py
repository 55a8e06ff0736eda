"""The builtins that the code sees: Python's, with imports checked, the refused ones explained, and its functions."""

import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cadre_sandbox.jail.refusal import BUILTINS, NotAllowed, authorized, builtin_message, import_message

_real_import = builtins.__import__


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
        wanted = [f"{name}.{part}" for part in fromlist or ()]
        by_parts = bool(wanted) and all(authorized(part, self._imports) for part in wanted)
        if not (authorized(name, self._imports) or by_parts):
            raise ImportError(import_message(name, self._imports), name=name)
        module = _real_import(name, globals, locals, fromlist or (), level)
        self.imported.update(full for full in (name, *wanted) if "." in full and full in sys.modules)
        return module


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotAllowed(builtin_message(name))

    refuse.__name__ = name
    return refuse
