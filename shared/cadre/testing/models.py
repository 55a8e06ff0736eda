"""Models for tests: one that calls every tool once, one that plays a script, one that a function decides for, and
the scripted model as a process."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused, ModelUnavailable, SetupError
from cadre.journal.events import RequestedCall
from cadre.options import explained, explained_function
from cadre.ports import Model, ModelReply, OnText
from cadre.protocol.usage import Usage
from cadre.settings import child_environment
from cadre.spec.names import FINAL_ANSWER
from cadre.tools.example_values import example

Reply = ModelReply | RequestedCall | Sequence[RequestedCall] | str | Exception
"""A reply of a model in a test: text, a call, several calls at once, a whole `ModelReply`, or an error to be raised."""

AnyModel = Model | Iterable[Reply] | Callable[[ModelRequest], Reply | Awaitable[Reply]]
"""A model, or what stands for one: the replies of a script, or a function from a request to its reply."""


@explained_function
def call(name: str, given: Mapping[str, Any] | None = None, /, **arguments: Any) -> RequestedCall:
    """Return a call as a model's endpoint returns it: its arguments as a mapping or by their names."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"write the arguments by their names or as a mapping, not {given!r}")
    return RequestedCall(name, msgspec.json.encode({**(given or {}), **arguments}).decode())


@explained_function
def answer(value: Any) -> RequestedCall:
    """Return the call that ends the run of an agent that calls tools."""
    return call(FINAL_ANSWER, answer=value)


@explained({"calls": "team.requests has what the models were asked"})
class ScriptedModel:
    """Says one reply after the other, to any caller. Raises AssertionError when it is asked once more."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._replies = list(replies)
        self._said = 0

    @property
    def left(self) -> int:
        """Return how many replies are left to be asked for."""
        return len(self._replies) - self._said

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        if not self.left:
            last = request.messages[-1].get("content") if request.messages else None
            said = self._replies[-1] if self._replies else None
            hint = f"; a text ends no run: write answer({said!r})" if isinstance(said, str) else ""
            raise AssertionError(
                f"the script has {self._said} replies, and its model was asked once more{hint}; the last message:"
                f" {last!r}"
            )
        self._said += 1
        return await say(self._replies[self._said - 1], on_text)


class FunctionModel:
    """Says what the function returns for a request; it may be a coroutine."""

    def __init__(self, function: Callable[[ModelRequest], Reply | Awaitable[Reply]]) -> None:
        """Raise TypeError for a function that takes no request."""
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            raise TypeError(
                f"{function!r}: {error}: write a function of one argument, the request, such as"
                " lambda request: answer(request.messages[-1]['content'])"
            ) from error
        self._function = function

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        found = self._function(request)
        reply = await found if inspect.isawaitable(found) else found
        return await say(reply, on_text)


@explained(
    {
        "call_tools": "model=[call(name, …), answer(…)] says which tools are called",
        "custom_output_text": "model=[answer(…)] says what is answered",
        "custom_output_args": "model=[answer(…)] says what is answered",
    }
)
class TestModel:
    """Calls each tool and member once, with arguments that fit its schema, then answers with what they returned.

    After pydantic-ai's TestModel. It is for agents that call tools; one that writes code needs a script.
    """

    __test__ = False

    def __init__(self) -> None:
        """Take nothing: the replies follow from the requests."""

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.tools}
        if request.schema is not None and not offered:
            return await say(json.dumps(example(request.schema), ensure_ascii=False), on_text)
        asked = [one for message in request.messages for one in message.get("tool_calls") or []]
        called = {one["function"]["name"] for one in asked}
        due = [name for name in offered if name not in called and name != FINAL_ANSWER]
        if due:
            return await say([call(name, **_arguments(offered[name])) for name in due], on_text)
        results = [str(one["content"]) for one in request.messages if one.get("role") == "tool"]
        found = "; ".join(results) if results else "no tool was called"
        if FINAL_ANSWER not in offered:
            return await say(found, on_text)
        shape = offered[FINAL_ANSWER].get("properties", {}).get("answer", {})
        takes_text = shape.get("type", "string") == "string" and not shape.keys() & {"enum", "const", "$ref"}
        arguments = {"answer": found} if takes_text else _arguments(offered[FINAL_ANSWER])
        return await say(call(FINAL_ANSWER, **arguments), on_text)


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    found = example({"type": "object", **schema})
    return found if isinstance(found, dict) else {}


def model_of(given: AnyModel) -> Model:
    """Return the model that is meant. Raises TypeError for what stands for none."""
    if isinstance(given, type):
        raise TypeError(f"{given.__name__} is a class: write {given.__name__}()")
    if hasattr(given, "complete"):
        return cast(Model, given)
    if callable(given):
        return FunctionModel(given)
    if isinstance(given, Iterable) and not isinstance(given, str):
        return ScriptedModel(given)
    raise TypeError(f"{given!r} is no model: give a list of replies, a function, or an object with `complete`")


async def say(reply: Reply, on_text: OnText) -> ModelReply:
    """Return the reply in full, after its text was streamed. Raises the reply where it is an error of an endpoint,
    AssertionError where it is any other."""
    if isinstance(reply, ModelUnavailable | ModelRefused):
        raise reply
    if isinstance(reply, Exception):
        raise AssertionError(
            f"{reply!r} is no error of an endpoint: write ModelUnavailable(text) for one that is asked again,"
            " ModelRefused(text) for one that is not"
        ) from reply
    if isinstance(reply, str):
        reply = ModelReply(content=reply)
    elif isinstance(reply, RequestedCall):
        reply = ModelReply(calls=[reply])
    elif not isinstance(reply, ModelReply):
        reply = ModelReply(calls=list(reply))
    if reply.content:
        await on_text(reply.content)
    if reply.usage == Usage():
        reply = msgspec.structs.replace(reply, usage=Usage(input_tokens=10, output_tokens=1), model=reply.model)
    return reply


class ModelServer:
    """A running scripted model. `url` is its base URL, for `CADRE_MODEL_URL`, and ends in /v1."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._base = url.removesuffix("/v1")

    def journal(self) -> list[dict[str, Any]]:
        """The requests so far, each with the rule that answered it. Waits until none is open any more."""
        answer = httpx2.get(f"{self._base}/script/journal", params={"settled": 10}, timeout=15)
        answer.raise_for_status()
        lines: list[dict[str, Any]] = answer.json()
        return lines

    def reset(self) -> None:
        """Clear the journal and begin the script again."""
        httpx2.post(f"{self._base}/script/reset", timeout=15).raise_for_status()


@contextmanager
def running_model(*options: str | Path, **environment: str) -> Iterator[ModelServer]:
    """Start `cadre scripted-model` with these options on a free port, and stop it at the end.

    Raises SetupError when it does not start; it says why on standard error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "cadre_scripted_model", "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(**environment, CADRE_LOG_FORMAT="text"),  # it says on stdout where it is
    )
    assert process.stdout is not None
    with process.stdout as output:
        try:
            line = output.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SetupError(f"the scripted model did not start: it said {line!r}")
            yield ModelServer(found[0])
        finally:
            process.terminate()
            code = process.wait(timeout=10)
    if code:
        raise RuntimeError(f"the scripted model ended with exit code {code}")
