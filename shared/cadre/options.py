"""Refusals of what a call or an attribute names and there is not: each lists what there is, and names the nearest word.

The words of other libraries lead to ours (`system_prompt` to `instructions`).
"""

import difflib
import dis
import functools
import inspect
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, get_args, is_typeddict

from cadre.errors import UnknownOption

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_WORDS: dict[str, str] = {
    "additional_args": "inputs",
    "agents": "team",
    "approve": "approvals",
    "args": "inputs",
    "backstory": "instructions",
    "base_url": "url",
    "comment": "feedback",
    "connect": "url",
    "conversation_id": "session",
    "created": "asked_at",
    "created_at": "asked_at",
    "completed_at": "ended_at",
    "finished_at": "ended_at",
    "data": "output",
    "dollars": "cost",
    "expires": "deadline",
    "final_output": "output",
    "func": "tools",
    "functions": "tools",
    "goal": "instructions",
    "inputs_schema": "input_schema",
    "gateway": "url",
    "handoff_description": "description",
    "handoffs": "team",
    "image": "images",
    "input": "task",
    "input_schema": "inputs",
    "instruction": "instructions",
    "invoke": "run",
    "kickoff": "run",
    "json_schema": "input_schema",
    "label": "labels",
    "llm": "model",
    "llm_config": "model",
    "last_messages": "events",
    "max_iterations": "max_steps limits",
    "max_turns": "max_steps limits",
    "mock_tools": "tools",
    "model_client": "model",
    "members": "team",
    "model_settings": "model",
    "models": "model",
    "message": "task text",
    "message_history": "session",
    "messages": "task requests",
    "memories": "memory",
    "metadata": "labels",
    "name": "type",
    "note": "feedback",
    "order": "sort",
    "order_by": "sort",
    "page_size": "limit",
    "responses": "model",
    "script": "model",
    "scripts": "model",
    "skip_time": "skip",
    "sleep": "skip",
    "advance": "skip",
    "travel": "skip",
    "output_schema": "output_type",
    "params": "inputs",
    "parameters": "input_schema inputs",
    "prompt": "task instructions",
    "query": "task",
    "reason": "feedback",
    "recursion_limit": "max_steps limits",
    "requires_approval": "approval",
    "response_format": "output_type",
    "response_model": "output_type",
    "result_type": "output_type",
    "role": "description",
    "run_id": "run id",
    "session_id": "session",
    "settings": "model",
    "status": "state",
    "sub_agents": "team",
    "system": "instructions",
    "system_message": "instructions",
    "system_prompt": "instructions",
    "tags": "labels",
    "thread": "session",
    "timeout": "seconds deadline",
    "thread_id": "session",
    "thread_ts": "session",
    "token": "api_key",
    "usd": "cost",
    "user_id": "user",
    "user_prompt": "task",
}
"""Words of other libraries and of other doors, each with ours for it, the likelier one first."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is meant by another one; "" where none seems to be."""
    there = [*known]
    ours = next((word for word in _WORDS.get(name, "").split() if word in there), "")
    return ours or next(iter(difflib.get_close_matches(name, there, n=1, cutoff=0.7)), "")


def unknown_option(what: str, name: str, known: Iterable[str], hint: str = "") -> UnknownOption:
    """Return the error of an option that `what` does not have; `hint` says what to write instead."""
    names = [*known]
    return UnknownOption(
        f"{what} has no option {name!r}{_meant(name, names, hint)}: it takes {', '.join(names) or 'none'}"
    )


def no_attribute(what: str, name: str, known: Iterable[str], hint: str = "") -> AttributeError:
    """Return the error of an attribute that `what` does not have."""
    names = [one for one in known if not one.startswith("_")]
    return AttributeError(f"{what} has no attribute {name!r}{_meant(name, names, hint)}: it has {', '.join(names)}")


def _meant(name: str, known: list[str], hint: str) -> str:
    near = nearest(name, known)
    return f" ({hint})" if hint else f" (did you mean {near!r}?)" if near else ""


class Explaining(ABCMeta):
    """The type of classes that name their attributes where one is asked of the class itself that it does not have."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_attribute(cls.__name__, name, dir(cls), getattr(cls, "_hints", {}).get(name, ""))


def missing_name(
    module: str, name: str, names: Iterable[str], hints: Mapping[str, str] | None = None
) -> AttributeError | ImportError:
    """Return the error of a name that a public module's `__getattr__` does not find: it names what there is, or the
    public module that has it.

    Where `from module import name` asks, that is an ImportError: an AttributeError would be replaced by one that says
    nothing.
    """
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    hint = (hints or {}).get(name, "")
    homes = (one for one in _PUBLIC if one != module and name in import_module(one).__all__)
    if not hint and (home := next(homes, "")):
        hint = f"from {home} import {name}"
    error = no_attribute(f"module {module!r}", name, names, hint)
    if _is_imported_from(sys._getframe(2)) and f"{module}.{name}" not in sys.modules:
        return ImportError(str(error), name=module)
    return error


_PUBLIC = ("cadre", "cadre.tool", "cadre.client", "cadre.testing", "cadre.events", "cadre.protocol")


def _is_imported_from(frame: Any) -> bool:
    """Return True if the frame is at a `from … import`."""
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def explained(
    hints: Mapping[str, str] | None = None, resources: Mapping[str, Mapping[str, str]] | None = None
) -> Callable[[C], C]:
    """Have the public methods of a class refuse what they do not take with a list of what they do, and the class itself
    name its attributes where one is asked for that it does not have.

    Options in a TypedDict (`**options: Unpack[Options]`) count as parameters, in signatures too, which `help` and
    editors show. `hints` are words by the names of attributes and options that other libraries have; `resources` are
    such words for methods that other libraries have below a name which is a method here (`client.runs.create`).
    """

    def decorate(cls: C) -> C:
        for name in dir(cls):
            member = inspect.getattr_static(cls, name)
            if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
                setattr(cls, name, _explaining(member, cls.__name__, name, hints or {}))
        for name, below in (resources or {}).items():
            # What a function is given as attributes its bound methods have; their own type takes none.
            for other, ours in below.items():
                setattr(getattr(cls, name), other, _refusing(f"{cls.__name__}.{name}", other, ours))

        def missing(self: object, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_attribute(cls.__name__, name, dir(self), (hints or {}).get(name, ""))

        cls.__getattr__ = missing  # type: ignore[attr-defined]
        if isinstance(cls, Explaining):
            cls._hints = hints or {}  # type: ignore[attr-defined]
        return cls

    return decorate


def _refusing(what: str, name: str, hint: str) -> Callable[..., Any]:
    """Return a function that refuses to be called, with the word for what it would do."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AttributeError(f"{what} has no attribute {name!r}: write {hint}")

    return refuse


def explained_function(function: F, **hints: str) -> F:
    """Have a function refuse what it does not take with a list of what it does; `hints` as of `explained`."""
    return _explaining(function, "", function.__name__, hints)


def _explaining(function: F, owner: str, name: str, hints: Mapping[str, str]) -> F:
    signature = _with_options(function)
    what = f"{owner}.{name}".strip(".") if name != "__init__" else owner
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    bound = len(signature.parameters) - len(parameters)
    known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    takes_any = len(known) < len(parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for one in () if takes_any else kwargs:
            if one not in known:
                raise unknown_option(what, one, known, hints.get(one, ""))
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as misfit:
                raise _misfit(what, parameters, args[bound:], kwargs, str(misfit), hints) from error
            raise

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _misfit(
    what: str,
    parameters: Sequence[inspect.Parameter],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    misfit: str,
    hints: Mapping[str, str],
) -> UnknownOption:
    """Return the error of a call that does not fit; a word of another library comes first."""
    known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    foreign = next((one for one in kwargs if one not in known and (one in hints or nearest(one, known))), None)
    if foreign is not None:
        return unknown_option(what, foreign, known, hints.get(foreign, ""))
    bare = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = [name for name in known if name not in bare]
    if len(args) > len(bare) and rest:
        misfit += f": only {', '.join(bare) or 'none'} stands without its name; write {rest[0]}={args[-1]!r}"
    return UnknownOption(f"{what}: {misfit}: it takes {', '.join(known) or 'none'}")


def _with_options(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with the options of a TypedDict as parameters."""
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    last = parameters[-1] if parameters else None
    if last is None or last.kind is not last.VAR_KEYWORD:
        return signature
    options = _options_of(last.annotation, function)
    if options is None:
        return signature
    there = {one.name for one in parameters}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in options.__annotations__.items()
        if name not in there
    ]
    return signature.replace(parameters=[*parameters[:-1], *more])


def _options_of(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return the TypedDict in an `Unpack`; None for anything else."""
    if isinstance(annotation, str):
        annotation = eval(annotation, inspect.unwrap(function).__globals__)  # its own hint, as text
    found = (*get_args(annotation), None)[0]
    return found if is_typeddict(found) else None
