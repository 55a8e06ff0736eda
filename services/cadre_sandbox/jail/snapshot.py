"""The code's variables as bytes and back: data, functions and classes by value, modules and tools by name.

Made and read inside the jail only. Functions keep the interpreter's namespace as their globals, so that a variable
set later is seen by a function restored earlier.
"""

import contextlib
import functools
import gc
import importlib
import io
import linecache
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

_HEAD = f"cadre-state-1 {sys.version_info.major}.{sys.version_info.minor}\n".encode()

namespace: dict[str, Any] = {}
"""The one that restored functions live in; the interpreter replaces it by its own, once."""


class SnapshotUnreadable(Exception):
    """The snapshot was made by another version, or is damaged."""


def use_namespace(globals_of_code: dict[str, Any]) -> None:
    """Have restored functions live in this namespace."""
    global namespace
    namespace = globals_of_code


def keep_source(file: str, source: str) -> None:
    """Keep the text of a block for tracebacks and `inspect.getsource`."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles as cloudpickle does, but functions of the code stay in its namespace and share their cells."""

    doubtful = False
    """True if something was saved that perhaps cannot be read again: its own code takes part in that."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.files: set[str] = set()
        """File names of the blocks that the saved functions were written in."""

    def reducer_override(self, item: Any) -> Any:
        kind = type(item)
        if kind is types.FunctionType and item.__globals__ is namespace:
            self.files.add(item.__code__.co_filename)
            return _reduce_function(item)
        if kind is types.CellType:
            return _reduce_cell(item)
        if issubclass(kind, io.IOBase):
            raise pickle.PicklingError("an open file")
        self.doubtful = self.doubtful or not _is_sure(item, kind)
        if kind is _Cached and item.__module__ == "__main__":
            return _reduce_cached(item)
        if issubclass(kind, BaseException) and _is_own(kind.__init__) and not _is_own(kind.__reduce__):
            return _new_exception, (kind, item.args), item.__dict__
        return super().reducer_override(item)


_Cached = functools._lru_cache_wrapper

_TRUSTED = sys.stdlib_module_names | {"cadre_sandbox"}


def _is_sure(item: Any, kind: type) -> bool:
    """Return whether the item is read as it was saved; to try takes as long as to save. Its parts are asked one by
    one.
    """
    if kind is _Cached or issubclass(kind, BaseException):
        return False
    if issubclass(kind, type):
        return bool(item.__module__ != "__main__")  # else a name
    return str(kind.__module__).partition(".")[0] in _TRUSTED


def _is_own(method: Callable[..., Any]) -> bool:
    """Return whether the method is written in Python."""
    return isinstance(method, types.FunctionType)


def _reduce_cached(cached: Any) -> Any:
    """Reduce a function under `functools.cache` or `lru_cache`, without what it remembers."""
    bounds = cached.cache_parameters()
    made = (cached.__wrapped__, bounds["maxsize"], bounds["typed"], functools._CacheInfo)
    return _Cached, made, cached.__dict__


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
    """Make an exception without its own __init__, which often wants other arguments than it hands on."""
    error = kind.__new__(kind, *arguments)
    python = next(base for base in kind.__mro__ if issubclass(base, BaseException) and not _is_own(base.__init__))
    # Some of Python's own keep more than the arguments; it fails where these were never given to it.
    with contextlib.suppress(TypeError):
        python.__init__(error, *arguments)
    error.args = arguments
    return error


class Snapshots:
    """Saves and restores the namespace; knows what could not be saved, and why."""

    def __init__(self, imported: set[str]) -> None:
        """`imported` are the dotted names that the code has imported, and are added to as it runs."""
        self._imported = imported
        self._dropped: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        """Not there since the snapshot last restored."""
        self._shared: dict[str, str] = {}
        """Arrays that are views, each with the variable that it is a view of."""

    def save(self, most_bytes: int) -> tuple[bytes, list[str]]:
        """Return the snapshot, and the notes for the model on what could not be saved, if they are new."""
        known, self._dropped = self._dropped, {}
        variables, modules = {}, {}
        for name, value in namespace.items():
            if isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value:
                modules[name] = value.__name__
            elif value is not namespace and not (name.startswith("__") and name.endswith("__")):
                variables[name] = value
        # By its full name; the variable of `import a.b` holds `a`, which knows of `b` only when that is imported too.
        kept = tuple(f"{module}." for module in modules.values())
        modules |= {full: full for full in sorted(self._imported) if full.startswith(kept)}
        missing = {name: why for name, why in self._missing.items() if name not in namespace}
        data = self._saved(variables, modules, missing, most_bytes)
        notes = [
            f"The variable {name} is lost should the interpreter be restarted: {why}."
            for name, why in self._dropped.items()
            if name not in known
        ]
        shared, self._shared = self._shared, dict(_views(variables))
        notes += [
            f"The variable {name} shares its numbers with {other}; should the interpreter be restarted, it is a copy."
            for name, other in self._shared.items()
            if name not in shared
        ]
        return data, notes

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
            self._drop(variables, largest, f"{size:.0f} MB are too much to keep, {most_bytes / 1e6:.0f} MB may be")
        # Each was tried alone; for all together there may be too little memory.
        return _dump((variables, modules, missing | self._dropped), try_it=False)

    def _drop(self, variables: dict[str, Any], name: str, why: str) -> None:
        del variables[name]
        self._dropped[name] = why

    def restore(self, data: bytes) -> None:
        """Put the variables of a snapshot into the namespace. Raises SnapshotUnreadable."""
        if not data.startswith(_HEAD):
            raise SnapshotUnreadable(f"it begins with {data[:20]!r}, not with {_HEAD!r}")
        try:
            (variables, modules, missing), sources = _load(data)
        except Exception as error:
            raise SnapshotUnreadable(f"{type(error).__name__}: {error}") from None
        namespace.update(variables)
        for file, source in sources.items():
            keep_source(file, source)
        self._missing = missing
        for name, module in modules.items():
            try:
                found = importlib.import_module(module)
            except ImportError as error:
                self._missing[name] = str(error)
                continue
            if "." in name:
                self._imported.add(name)
            else:
                namespace[name] = found

    def explain(self, name: str) -> str:
        """Return what to add to the NameError of a variable that got lost; empty for any other."""
        why = self._missing.get(name)
        return f". It was lost when the interpreter was restarted ({why}): make it again" if why else ""


def _views(variables: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the numpy arrays whose numbers are those of another variable, with that one."""
    numpy: Any = sys.modules.get("numpy")
    owners: dict[int, str] = {}
    for name, value in variables.items() if numpy is not None else ():
        if isinstance(value, numpy.ndarray):
            root = value
            while isinstance(root.base, numpy.ndarray):
                root = root.base
            owner = owners.setdefault(id(root), name)
            if owner != name and variables[owner] is not value:
                yield name, owner


def _dump(item: Any, *, try_it: bool = True) -> bytes:
    """Return the item as a snapshot. Raises any exception of an object that cannot be saved, or not be read again."""
    file = io.BytesIO()
    file.write(_HEAD)
    pickler = _Pickler(file)
    pickler.dump(item)
    sources = {name: "".join(linecache.getlines(name)) for name in sorted(pickler.files & linecache.cache.keys())}
    pickle.dump(sources, file, protocol=5)
    data = file.getvalue()
    if try_it and pickler.doubtful:
        _try_to_load(data)
    return data


def _try_to_load(data: bytes) -> None:
    """Load the data as a new interpreter would, with no help from what the living one has."""
    collects = gc.isenabled()
    gc.disable()  # what is loaded is no garbage: to look for some takes as long again
    try:
        with _empty_world():
            _load(data)
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _empty_world() -> Iterator[None]:
    """Have no variables within, and separate classes: cloudpickle would write into the living ones, which it knows
    again."""
    module = cloudpickle.cloudpickle
    known = module._DYNAMIC_CLASS_TRACKER_BY_CLASS, module._DYNAMIC_CLASS_TRACKER_BY_ID
    living, main = namespace, sys.modules["__main__"]
    empty = types.ModuleType("__main__")
    vars(empty)["__builtins__"] = living["__builtins__"]
    module._DYNAMIC_CLASS_TRACKER_BY_CLASS = weakref.WeakKeyDictionary()
    module._DYNAMIC_CLASS_TRACKER_BY_ID = weakref.WeakValueDictionary()
    sys.modules["__main__"] = empty
    use_namespace(vars(empty))
    try:
        yield
    finally:
        use_namespace(living)
        sys.modules["__main__"] = main
        module._DYNAMIC_CLASS_TRACKER_BY_CLASS, module._DYNAMIC_CLASS_TRACKER_BY_ID = known


def _load(data: bytes) -> tuple[Any, dict[str, str]]:
    """Return what was saved, and the sources of its functions by file name."""
    file = io.BytesIO(data)
    file.seek(len(_HEAD))
    item = pickle.load(file)
    return item, pickle.load(file)


def _reason(value: Any, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory to save it"
    if isinstance(error, RecursionError):
        return "it is nested too deep to be saved"
    return f"a {type(value).__name__} cannot be saved"
