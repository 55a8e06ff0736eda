"""Choose the model for a call, and build its request: one chat completion, in the terms of the OpenAI API.

The agent's first model is asked, or after its failure the fallbacks in their order. A run stays with the model that
it came to for some minutes: an endpoint that is out would otherwise cost each step all its tries. Then the first
model is asked again. The order goes round, so each model is tried once for one call.
"""

from typing import Any, Literal

import msgspec

from cadre.journal import events as ev
from cadre.journal.run import ModelChoice, Run
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec

ChatMessage = dict[str, Any]
"""One message of the OpenAI chat format. One of the model has with it the `items` that its endpoint gave for it, and
`items_of`: the id of that endpoint and its model."""


class ModelRequest(msgspec.Struct, kw_only=True):
    """One chat completion, in the terms of the OpenAI API."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    tool_choice: Literal["auto"] | None = None
    """In place of an agent's `required`."""
    stop: list[str] = []
    """Sequences that end the answer. None may stand in a text literal of what is asked for."""
    block: tuple[str, str] | None = None
    """The tags around the block of code that is asked for: what the model writes behind it is cut off."""
    schema: dict[str, Any] | None = None
    """JSON Schema that the answer must fit."""
    is_form_needed: bool = True
    """An endpoint that refuses the schema is not asked without it; False: the messages hold it as well."""
    json_object: bool = False
    """The answer must be some JSON object, for endpoints that hold it to no schema."""
    max_tokens: int | None = None
    """Of the answer, if it must be shorter than the agent allows."""
    native_tools: bool = True
    """True if the tools that the endpoint runs are offered too."""
    fallback: int = 0
    """The index of the model that is asked: 0 is the agent's first, n the nth of its fallbacks."""
    raw: dict[str, Any] | None = None
    """The body as another program wrote it: it is sent unchanged, under the agent's own model, and the answer comes
    back whole (`ModelReply.raw`). `messages` are those in it; all else here does not count."""
    api: Literal["chat", "responses"] = "chat"
    """Of `raw`: the API that its form is of."""
    learned: dict[str, dict[str, Any]] = {}
    """By endpoint and model, the keys of `cadre.spec.model.Profile` that refusals have taught the run."""


_OF_THE_MODEL = frozenset({"message", "function_call", "reasoning"})


def native_calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of tools that the endpoint has run."""
    return [item for item in items if item["type"] not in _OF_THE_MODEL]


def without_items(message: ChatMessage) -> ChatMessage:
    """Return a copy of the message as any endpoint takes it."""
    return {key: value for key, value in message.items() if key not in ("items", "items_of")}


FIRST_AGAIN_SECONDS = 300.0
"""The time that a run stays with a fallback before a new call goes to the first model again."""


def asked_model(run: Run) -> ModelSpec:
    """The model that the run asks at this moment."""
    assert run.spec is not None
    return model_at(run.spec.model, run.choice.fallback if run.choice is not None else 0)


def model_at(model: ModelSpec, fallback: int) -> ModelSpec:
    """The model itself for 0, else the nth of its fallbacks, as far as it has them."""
    return model.fallbacks[min(fallback, len(model.fallbacks)) - 1] if fallback and model.fallbacks else model


def spec_as_asked(run: Run) -> AgentSpec:
    """The agent's spec, with the model that is asked at this moment in the place of the first."""
    assert run.spec is not None
    asked = asked_model(run)
    return run.spec if asked is run.spec.model else msgspec.structs.replace(run.spec, model=asked)


def fallback_of_call(run: Run, at: float, attempt: int) -> int:
    """Return which model the call that begins now goes to: 0 is the first one. `at` is in Unix seconds."""
    if run.choice is None or (attempt == 1 and at - run.choice.at >= FIRST_AGAIN_SECONDS):
        return 0
    return run.choice.fallback


def made_to(run: Run, called: ev.ModelCalled, fallback: int, reason: str = "") -> ev.ModelCalled:
    """The call, made to that model; `reason` is why the one before is not asked again."""
    if not fallback and not reason:
        return called
    name = model_at(run.spec.model, fallback).name if run.spec is not None else ""
    return msgspec.structs.replace(called, fallback=fallback, model=name, reason=reason)


def next_fallback(run: Run) -> int | None:
    """The model to ask when the one that is asked has failed; None when all have been asked."""
    assert run.spec is not None
    choice = run.choice or ModelChoice()
    following = (choice.fallback + 1) % (1 + len(run.spec.model.fallbacks))
    return None if following == choice.first else following


def tries(run: Run) -> int:
    """Return how often the call in flight was made to the model that is asked now."""
    assert run.model is not None
    return run.model.attempt - (run.choice.tries_before if run.choice is not None else 0)


def choose(run: Run, called: ev.ModelCalled, at: float) -> None:
    """Take a model call into `run.choice`; another model has its own tries."""
    if run.choice is None and not called.fallback:
        return
    was = run.choice or ModelChoice()
    begins, switched = called.attempt == 1, called.fallback != was.fallback
    run.choice = ModelChoice(
        fallback=called.fallback,
        at=at if switched else was.at,
        first=called.fallback if begins else was.first,
        tries_before=0 if begins else called.attempt - 1 if switched else was.tries_before,
    )
    if switched:
        run.failures, run.failing_since = 0, None
