"""`@tool`: makes a typed, documented function callable by a model, and refuses what a model could not use."""

import asyncio
import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from cadre.errors import CadreError, TerminalError, ToolDefinitionError
from cadre.options import Explaining, explained, unknown_option
from cadre.protocol.cards import WITH_DESTINATION, CallMeaning, Does, ToolCard
from cadre.protocol.messages import ErrorInfo, Unfinished
from cadre.protocol.policy import PLAN_TOOLS
from cadre.protocol.tagged import for_tool
from cadre.spec.durations import seconds_of
from cadre.spec.names import MOST, NAME
from cadre.spec.policy import check_policy, names_in, names_in_sentence
from cadre.spec.policy_file import check_action
from cadre.spec.schema_form import typed
from cadre.structs import as_written, misfit_of
from cadre.tools.context import ToolContext
from cadre.tools.files import File
from cadre.tools.json_types import JsonType, Unfit, loaded
from cadre.tools.signature import Signature, read_signature
from cadre.tools.thread import start_thread

P = ParamSpec("P")
R = TypeVar("R")

_TRIES = "the model that reads a ToolError decides whether it tries again"

_FOREIGN_OPTIONS = {
    "autoretry_for": _TRIES,
    "bind": "a parameter with the hint ToolContext has the call's context",
    "default_retry_delay": _TRIES,
    "args_schema": "the function's hints are its schema",
    "inputs": "the function's hints are its schema",
    "input_schema": "the function's hints are its schema",
    "is_enabled": "an agent's tools=[…] name what it may call",
    "name_override": "name=…",
    "description_override": "description=…",
    "output_schema": "the function's return hint is its schema",
    "output_type": "the function's return hint is its schema",
    "parameters": "the function's hints are its schema",
    "queue": "`cadre tools` serves it; concurrency=N bounds calls at once",
    "rate_limit": "concurrency=N bounds calls at once",
    "retry_policy": _TRIES,
    "return_direct": "an agent answers itself",
    "start_to_close_timeout": "timeout=…",
    "time_limit": "timeout=…",
    "tags": "labels={'name': 'value'}",
    "title": "name=…",
    "requires_approval": "approval='always'",
    "needs_approval": "approval='always'",
    "max_retries": _TRIES,
    "retries": _TRIES,
    "strict": "types are strict in any case",
    "readonly": "read_only=True",
    "annotations": "read_only=True, idempotent=True",
}
"""Options of other libraries' tools, each with what does the same here."""

RESERVED = frozenset({"final_answer", PLAN_TOOLS})
"""Names that an agent's model is offered already."""


class InvalidArguments(TerminalError):
    """A model's arguments do not fit the tool. The text names the argument; the model reads it."""


@explained({"code": "the text alone is read", "retryable": "the model decides whether it tries again"})
class ToolError(CadreError):
    """Raised by a tool that failed. The model reads this text alone, so say what it may do instead.

    Args:
        text: What the model reads.

    Examples:
        >>> def price(article: str) -> float:
        ...     raise ToolError(f"no article {article!r}: search for it first")
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)


class CallInterrupted(TerminalError):
    """A tool lost sight of its work: it may be done or not. The model reads that; the call is not repeated."""


class CallPaused(CadreError):
    """A tool cannot answer yet: the call goes on later, from what this says."""

    def __init__(self, unfinished: Unfinished) -> None:
        super().__init__(unfinished.question or f"goes on in {unfinished.seconds:g} s")
        self.unfinished = unfinished


class FailedAs(CadreError):
    """A call failed, and the model reads exactly this of it."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class ToolOptions(TypedDict, total=False):
    """The options of `@tool(...)`; all have defaults."""

    name: str
    """The tool's name for the model; by default that of the function."""
    description: str
    """The description for the model; by default the docstring's text."""
    read_only: bool
    """The tool changes nothing: after a crash it simply runs again."""
    idempotent: bool
    """Two runs with one `ToolContext.call_id` have the effect of one: after a crash the tool runs again."""
    timeout: float | timedelta | None
    """Seconds that a call may take."""
    concurrency: int | None
    """Calls that one process works on at once; by default as many as `CADRE_CONCURRENCY`."""
    serial: bool
    """A run sends its calls of serial tools one after another, in the order in which its model asks for them."""
    approval: str
    """The approval that a call needs: `never`, `always` or `when: <expression over the parameters>`; by
    default the agent decides that."""
    approval_text: str
    """The sentence by which a person is asked for approval: `Refund {amount} € for {order}`; by default the name and
    the arguments."""
    does: Does
    """The kind of its calls, for the rules of policies: `pay`, `send`, `delete` …"""
    to: str | list[str]
    """The parameters that say whom a call concerns or where it goes; [] where that is always the same."""
    what: str | list[str]
    """The parameters that say what a call is about."""
    text: str | list[str]
    """The parameters that hold content."""
    amount: str
    """The parameter that is a sum of money, or another number that adds up."""
    private: bool
    """Its results are private."""
    trusted: str | list[str]
    """The fields of its result that no stranger chooses (`recipient`, `customer.email`); `all` for the whole."""
    labels: dict[str, str]
    version: str


def _listed(function: Callable[[], Any]) -> Any:
    """Calls the function, and reads the iterator that it returns in the same thread."""
    outcome = function()
    return list(outcome) if isinstance(outcome, Iterator) else outcome


@explained(
    {
        "ainvoke": "call(arguments, context)",
        "apply_async": "an agent calls it; here write name(arguments)",
        "args_schema": "input_schema",
        "as_tool": "it is one: give it to an agent by tools=[…]",
        "delay": "an agent calls it; here write name(arguments)",
        "fn": "calling the tool calls the function",
        "forward": "@tool on a function, which is called itself",
        "from_function": "tool(function)",
        "func": "calling the tool calls the function",
        "invoke": "call(arguments, context)",
        "parameters": "input_schema",
        "run": "call(arguments, context)",
        "to_openai": "card",
    }
)
class Tool(Generic[P, R], metaclass=Explaining):
    """A function and the card that describes it to models. Calling the tool calls the function."""

    __name__: str

    promises_output = True
    """True if its output schema is its own return hint, to which results are held."""

    def __init__(
        self, function: Callable[P, R], card: ToolCard, signature: Signature, concurrency: int | None = None
    ) -> None:
        functools.update_wrapper(self, function)
        self.card = card
        self.concurrency = concurrency
        self._function = function
        self._parameters = signature.parameters
        self._context = signature.context
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def name(self) -> str:
        """The name by which models call it."""
        return self.card.name

    @property
    def description(self) -> str:
        """Return what models read of it."""
        return self.card.description

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self.card.input_schema

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the result; None where its hint says nothing."""
        return self.card.output_schema

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None: as long as it likes."""
        return self.card.timeout

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert JSON values to the function's keyword arguments, as its hints say.

        Types are strict: "3" is no integer, though 3.0 is, as in JSON Schema. Raises InvalidArguments, which names
        the first wrong argument.
        """
        return self._checked(arguments, [])

    def _checked(self, arguments: dict[str, Any], files: list[File]) -> dict[str, Any]:
        """Convert the arguments, and appends the files among them to `files`: their content is not fetched yet."""
        arguments = for_tool(arguments)
        for name in arguments:
            if name not in self._parameters:
                known = ", ".join(self._parameters) or "none"
                raise InvalidArguments(f"there is no argument {name!r}: {self.name} takes {known}")
        values: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in arguments:
                values[name] = self._converted(name, parameter.kind, arguments[name], files)
            elif name in self.card.input_schema.get("required", ()):
                raise InvalidArguments(f"argument {name!r} is missing")
            elif parameter.default is not inspect.Parameter.empty:
                values[name] = copy.deepcopy(parameter.default)
        return values

    def _converted(self, name: str, kind: JsonType, value: Any, files: list[File]) -> Any:
        try:
            return loaded(kind, value, files)
        except Unfit as error:
            raise InvalidArguments(f"argument {name + error.place!r}: {error}") from error

    async def call(self, arguments: dict[str, Any], context: ToolContext | None = None) -> Any:
        """Validate the arguments and run the function; a plain one in a thread, so that it does not block.

        `context` is what a parameter of the type ToolContext takes; in a test `ToolContext(run="r1")`, or none.
        Raises InvalidArguments, and what the function raises.
        """
        context = ToolContext() if context is None else context
        files: list[File] = []
        values = self._checked(arguments, files)
        try:
            for file in files:
                await context.fetch(file)
        except TerminalError as error:
            raise InvalidArguments(str(error)) from error
        if self._context is not None:
            values[self._context] = context
        bound: Callable[[], Any] = functools.partial(_listed, functools.partial(self._function, **values))
        try:
            if self.is_async:
                outcome = bound()
            else:
                context.thread = start_thread(bound, f"tool {self.name}")
                await asyncio.wait({context.thread})
                outcome = context.thread.result()
            outcome = await outcome if inspect.isawaitable(outcome) else outcome
            if isinstance(outcome, AsyncIterator):
                return [item async for item in outcome]
            return list(outcome) if isinstance(outcome, Iterator) else outcome
        except (SystemExit, KeyboardInterrupt) as error:
            # A tool must not end the process that hosts it.
            raise RuntimeError(f"the tool tried to end its process: {error!r}") from error


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool, plain (`@tool`) or with options (`@tool(idempotent=True)`).

    The description and those of the parameters come from the docstring (Google, NumPy or Sphinx style), the schemas
    from the hints; `Annotated[int, msgspec.Meta(ge=1, description="…")]` says more. docs/tools.md lists the options.

    Args:
        function: The function, or bound method, to decorate.
        options: `read_only`, `idempotent`, `approval`, `timeout`, `name`, `description` and others, by their names.

    Returns:
        A `cadre.tool.Tool`, called like its function.

    Raises:
        ToolDefinitionError: A model could not call the function; the text names file and line.

    Examples:
        >>> @tool(read_only=True)
        ... def count_words(text: str) -> int:
        ...     '''Count the words of a text.'''
        ...     return len(text.split())
        >>> count_words("to be or not to be")
        6
        >>> count_words.input_schema["required"]
        ['text']
    """
    if function is None:
        return lambda decorated: _define(decorated, options)
    return _define(function, options)


def _define(function: Callable[..., Any], options: ToolOptions) -> Tool[..., Any]:
    if isinstance(function, str):
        raise ToolDefinitionError(f"@tool takes its options by name: @tool(name={function!r})")
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        raise ToolDefinitionError(
            f"@tool decorates functions and bound methods, not {type(function).__name__} {function!r}"
        )
    code = function.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}: tool {function.__name__}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(f"{where}: a generator has no single result: return a list")
    options = check_options(options, function.__name__, where)
    signature = read_signature(function, where)
    card = make_card(
        ToolCard(
            name=function.__name__,
            description=signature.description,
            input_schema=signature.input_schema,
            output_schema=signature.output_schema,
        ),
        options,
        where,
    )
    return Tool(function, card, signature, options.get("concurrency"))


def make_card(plain: ToolCard, options: ToolOptions, where: str) -> ToolCard:
    """The `plain` card of a function with the options applied.

    Raises ToolDefinitionError when a model could not use the tool.
    """
    parameters = list(plain.input_schema.get("properties", ()))
    _check_approval(options.get("approval"), parameters, where)
    _check_approval_text(options.get("approval_text", ""), parameters, where)
    description = options.get("description", plain.description).strip()
    if not description:
        raise ToolDefinitionError(f"{where}: write a docstring: it is what the model knows about the tool")
    action = _action_of(options, plain.action, where)
    if options.get("read_only", plain.read_only) and action.does not in (None, "read", "visit"):
        raise ToolDefinitionError(f"{where}: read_only=True, and does={action.does!r} has an effect: leave one out")
    try:
        check_action(action, parameters)
    except ValueError as error:
        raise ToolDefinitionError(f"{where}: {error}") from error
    fields: dict[str, Any] = {key: value for key, value in options.items() if key not in _NOT_IN_CARDS}
    fields["action"] = action
    schemas = {
        "input_schema": typed(plain.input_schema),
        "output_schema": plain.output_schema and typed(plain.output_schema),
    }
    return msgspec.structs.replace(plain, **fields | schemas | {"description": description})


_NOT_IN_CARDS = {"concurrency", *CallMeaning.__struct_fields__}
"""Options that are no fields of a card of the same name."""


def _action_of(options: ToolOptions, plain: CallMeaning, where: str) -> CallMeaning:
    """Return what the options say that a call does, where they leave it open as `plain` says."""
    given: dict[str, Any] = {key: value for key, value in options.items() if key in CallMeaning.__struct_fields__}
    for key in ("to", "what", "text", "trusted"):
        if isinstance(given.get(key), str):
            given[key] = [given[key]]
    if given.get("does") in WITH_DESTINATION and "to" not in given and not plain.to:
        raise ToolDefinitionError(
            f"{where}: does={given['does']!r} needs to=: name the parameters that say where it goes;"
            " to=[] where that is always the same"
        )
    return msgspec.structs.replace(plain, **given)


def check_options(options: ToolOptions, name: str, where: str) -> ToolOptions:
    """The options, converted to their types, of the tool with this default name. Raises ToolDefinitionError."""
    known = ToolOptions.__annotations__
    for unknown in sorted(set(options) - {*known}):
        problem = unknown_option("@tool", unknown, known, _FOREIGN_OPTIONS.get(unknown, ""))
        raise ToolDefinitionError(f"{where}: {problem}")
    given = as_written(dict(options))
    try:
        if isinstance(given.get("timeout"), str):
            given["timeout"] = seconds_of(given["timeout"])
        options = msgspec.convert(given, ToolOptions)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        word = "; write 'always'" if given.get(misfit.place) is True and misfit.place == "approval" else ""
        raise ToolDefinitionError(f"{where}: @tool option {misfit.place}: {misfit.lower}{word}") from error
    except ValueError as error:
        raise ToolDefinitionError(f"{where}: @tool option timeout: {error}") from error
    name = options.get("name", name)
    if not NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{where}: name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (@tool(name=…) sets another)"
        )
    if name in RESERVED:
        raise ToolDefinitionError(f"{where}: {name!r} is a function of every agent: choose another name")
    concurrency = options.get("concurrency")
    if concurrency is not None and concurrency < 1:
        raise ToolDefinitionError(f"{where}: concurrency={concurrency}: give 1 or more, or leave it out")
    timeout: Any = options.get("timeout")  # a number by now
    if timeout is not None and not 0 < timeout <= MOST:
        raise ToolDefinitionError(f"{where}: timeout={timeout:g}: give seconds above 0, or leave it out")
    return options


def _check_approval(policy: str | None, parameters: list[str], where: str) -> None:
    if policy is None:
        return
    try:
        check_policy(policy)
    except ValueError as error:
        raise ToolDefinitionError(f"{where}: approval={error}") from error
    unknown = sorted(names_in(policy) - set(parameters))
    if unknown:
        raise ToolDefinitionError(
            f"{where}: approval={policy!r} asks about {', '.join(unknown)}, which the tool does not take:"
            f" its parameters are {', '.join(parameters) or 'none'}"
        )


def _check_approval_text(text: str, parameters: list[str], where: str) -> None:
    if not text:
        return
    try:
        unknown = sorted(names_in_sentence(text) - {*parameters})
    except ValueError as error:
        raise ToolDefinitionError(f"{where}: approval_text: {error}", code="approval-text-invalid") from error
    if unknown:
        raise ToolDefinitionError(
            f"{where}: approval_text={text!r} names {', '.join(unknown)}, which the tool does not take:"
            f" its parameters are {', '.join(parameters) or 'none'}",
            code="approval-text-unknown-name",
        )
