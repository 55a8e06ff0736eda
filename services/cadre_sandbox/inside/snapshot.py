"""The code's variables as bytes and back: data, functions and classes by value, modules and tools by name.

Made and read inside the jail only. Functions keep the interpreter's namespace as their globals, so that a variable
set later is seen by a function restored earlier.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import types
import weakref
from typing import Any

import cloudpickle

_HEAD = f"cadre-state-1 {sys.version_info.major}.{sys.version_info.minor}\n".encode()

namespace: dict[str, Any] = {}
"""The one that restored functions live in; the interpreter replaces it by its own, once."""


class SnapshotUnreadable(Exception):
    """Made by another version, or damaged."""


def use(globals_of_code: dict[str, Any]) -> None:
    global namespace
    namespace = globals_of_code


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """cloudpickle, but functions of the code stay in its namespace and share their cells."""

    doubtful = False
    """Something was saved whose own code has a say in whether it can be read again."""

    def reducer_override(self, item: Any) -> Any:
        kind = type(item)
        if kind is types.FunctionType and item.__globals__ is namespace:
            return _reduce_function(item)
        if kind is types.CellType:
            return _reduce_cell(item)
        if issubclass(kind, io.IOBase):
            raise pickle.PicklingError("an open file")
        if kind.__module__ == "__main__":
            self.doubtful = True
        if issubclass(kind, BaseException):
            return _new_exception, (kind, item.args), item.__dict__
        return super().reducer_override(item)


def _reduce_function(function: types.FunctionType) -> Any:
    made = (function.__code__, function.__name__, function.__closure__)
    state = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__annotations__": function.__annotations__,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
    }
    return _make_function, made, (state, function.__dict__), None, None, _set_function


def _make_function(code: types.CodeType, name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(code, namespace, name, None, closure)


def _set_function(function: types.FunctionType, state: Any) -> None:
    attributes, dictionary = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(dictionary)


def _reduce_cell(cell: types.CellType) -> Any:
    try:
        contents = cell.cell_contents
    except ValueError:
        return types.CellType, ()
    return types.CellType, (), (contents,), None, None, _set_cell


def _set_cell(cell: types.CellType, state: Any) -> None:
    (cell.cell_contents,) = state


def _new_exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Without its own __init__, which often wants other arguments than it hands on."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    return error


class Keeper:
    """Saves and restores the namespace; knows what could not be saved, and why."""

    def __init__(self) -> None:
        self._dropped: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        """Not there since the snapshot last restored."""

    def save(self, most_bytes: int) -> tuple[bytes, list[str]]:
        """The snapshot, and what the model should know of it that it was not told before."""
        told, self._dropped = self._dropped, {}
        variables, modules = {}, {}
        for name, value in namespace.items():
            if isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value:
                modules[name] = value.__name__
            elif value is not namespace and not (name.startswith("__") and name.endswith("__")):
                variables[name] = value
        missing = {name: why for name, why in self._missing.items() if name not in namespace}
        data = self._saved(variables, modules, missing, most_bytes)
        return data, [
            f"The variable {name} is lost should the interpreter be restarted: {why}."
            for name, why in self._dropped.items()
            if name not in told
        ]

    def _saved(self, variables: dict[str, Any], modules: Any, missing: Any, most_bytes: int) -> bytes:
        try:
            data = _dump((variables, modules, missing))
        except Exception:
            data = b""  # one of them will not be saved: which, is found out below
        if 0 < len(data) <= most_bytes:
            return data
        sizes: dict[str, int] = {}
        for name, value in list(variables.items()):
            try:
                sizes[name] = len(_dump(value))
            except Exception as error:
                self._drop(variables, name, _reason(value, error))
        while sizes and sum(sizes.values()) > most_bytes:
            largest = max(sizes, key=lambda name: sizes[name])
            size = sizes.pop(largest) / 1e6
            self._drop(
                variables, largest, f"{size:.0f} MB are too much to keep, {most_bytes / 1e6:.0f} MB may be"
            )
        return _dump((variables, modules, missing | self._dropped))

    def _drop(self, variables: dict[str, Any], name: str, why: str) -> None:
        del variables[name]
        self._dropped[name] = why

    def restore(self, data: bytes) -> None:
        """Raises SnapshotUnreadable."""
        if not data.startswith(_HEAD):
            raise SnapshotUnreadable(f"it begins with {data[:20]!r}, not with {_HEAD!r}")
        try:
            variables, modules, missing = _load(data)
        except Exception as error:
            raise SnapshotUnreadable(f"{type(error).__name__}: {error}") from None
        namespace.update(variables)
        self._missing = missing
        for name, module in modules.items():
            try:
                namespace[name] = importlib.import_module(module)
            except ImportError as error:
                self._missing[name] = str(error)

    def explain(self, name: str) -> str:
        """To be added to the NameError of a variable that got lost; empty for any other."""
        why = self._missing.get(name)
        return f". It was lost when the interpreter was restarted ({why}): make it again" if why else ""


def _dump(item: Any) -> bytes:
    """Raises whatever objects raise that do not want to be saved, or could not be read again."""
    file = io.BytesIO()
    file.write(_HEAD)
    pickler = _Pickler(file, protocol=5)
    pickler.dump(item)
    data = file.getvalue()
    if pickler.doubtful:
        _try_to_load(data)
    return data


def _try_to_load(data: bytes) -> None:
    """Into classes of its own: cloudpickle would write into the living ones, which it knows again."""
    module = cloudpickle.cloudpickle
    known = module._DYNAMIC_CLASS_TRACKER_BY_CLASS, module._DYNAMIC_CLASS_TRACKER_BY_ID
    module._DYNAMIC_CLASS_TRACKER_BY_CLASS = weakref.WeakKeyDictionary()
    module._DYNAMIC_CLASS_TRACKER_BY_ID = weakref.WeakValueDictionary()
    try:
        _load(data)
    finally:
        module._DYNAMIC_CLASS_TRACKER_BY_CLASS, module._DYNAMIC_CLASS_TRACKER_BY_ID = known


def _load(data: bytes) -> Any:
    return pickle.loads(memoryview(data)[len(_HEAD) :])


def _reason(value: Any, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory to save it"
    if isinstance(error, RecursionError):
        return "it is nested too deep to be saved"
    return f"a {type(value).__name__} cannot be saved"
