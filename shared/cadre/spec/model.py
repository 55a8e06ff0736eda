"""Define the section `model` of an agent file: the model, its limits, and the tools that its endpoint runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cadre.errors import SpecError
from cadre.protocol.usage import Seconds
from cadre.spec.durations import WithLengths
from cadre.spec.names import Bound

CallForm = Literal["native", "schema", "text"]
"""The form in which an agent of kind `tool_calling` writes its calls: through the API's own tool calls, as JSON that a
schema holds it to (`response_format`), or as JSON that only the prompt asks for."""

StructuredForm = Literal["auto", "schema", "object", "prompt"]
"""The way to ask for JSON that is no call: held to its schema (`response_format: json_schema`), as any JSON object
(`json_object`), by the prompt alone, or the first of these that the endpoint does not refuse."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The amount of thinking before an answer, in the words of OpenAI's API; most endpoints know some of them."""


ModelApi = Literal["chat", "responses"]
"""The API of an endpoint that a model is asked through: `/chat/completions` or `/responses`."""

_RUN_BY_THE_CLIENT = {
    "function": "a function is no native tool: serve it with `cadre tools` and name it in tools",
    "custom": "the endpoint does not run it: serve a tool with `cadre tools` and name it in tools",
    "computer": "the endpoint does not run it, and Cadre has no computer to show it",
    "computer_use_preview": "the endpoint does not run it, and Cadre has no computer to show it",
    "local_shell": "the endpoint does not run it: serve a tool that does with `cadre tools`",
    "apply_patch": "the endpoint does not run it: serve a tool that does with `cadre tools`",
}
"""Types of tools that wait for the client of a request, and what to do instead."""


class Price(msgspec.Struct, metaclass=WithLengths, frozen=True, kw_only=True, omit_defaults=True):
    """The price of a million tokens, in any currency; prices and budgets of a deployment share one."""

    input: float
    output: float
    cached: float | None = None
    """Of input tokens that the endpoint had cached; None: as of any other."""


class NamedFunction(msgspec.Struct, metaclass=WithLengths, frozen=True):
    """The one function that each answer of a model must call: a tool, a team member, or `final_answer`."""

    function: str


MAX_ANSWER_CHARS = 4_000_000
"""Several times what any model can write."""


class ModelSpec(msgspec.Struct, metaclass=WithLengths, frozen=True, kw_only=True, omit_defaults=True):
    """The model that an agent uses, and how. Defaults come from the environment: `CADRE_MODEL_URL`,
    `CADRE_MODEL_KEY`, `CADRE_MODEL`.

    The keys are those of `model` in an agent file (docs/models.md).

    Examples:
        >>> model = ModelSpec(name="gpt-4o-mini", temperature=0.2, fallbacks=[ModelSpec(name="small-1")])
        >>> model.timeout
        120.0
    """

    name: str = ""
    url: str = ""
    api: ModelApi = "chat"
    """The API of the endpoint: `chat` is that of chat completions, which most have; `responses` the Responses API."""
    key_env: str = "CADRE_MODEL_KEY"
    """Name of the environment variable that holds the key; the key itself is never in a spec."""
    temperature: float | None = None
    max_tokens: int | None = None
    """The most tokens of one answer; None: what is kept free for it in the context."""
    token_limit: TokenLimit | None = None
    """The parameter that carries `max_tokens`: newer endpoints want the second name and refuse the first. None, here
    and with the other keys of a profile (`cadre.spec.model`): what is known of the endpoint."""
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    """Asks for the same answer to the same request, as far as the endpoint can."""
    context: int = 128_000
    """Input and output tokens of one call together; a longer history is summarized."""
    tool_choice: Literal["auto", "required"] | NamedFunction | None = None
    """The functions that the model must call, if any; one that is not live is not asked for."""
    calls: CallForm | Literal["auto"] = "native"
    """The form of calls; `auto` is decided when the agent starts, so the spec of a run never holds it."""
    structured: StructuredForm = "auto"
    """The form in which JSON is asked for, by the kinds of agents whose every answer is JSON."""
    native_tools: list[dict[str, Any]] = []
    """Tools that the endpoint itself runs, such as `{type: web_search}`: sent with each request as they stand."""
    parallel_tool_calls: bool | None = None
    """True if one answer may hold several calls; None leaves it to the endpoint."""
    parallel: int | None = None
    """Requests that one machine makes of this model at once; further ones wait. None is no bound."""
    stop: bool | None = None
    """Send stop sequences; false for models that refuse the parameter (answers are cut here in any case)."""
    strict: bool | None = None
    """Mark schemas `strict` where they fit the strict subset."""
    stream_usage: bool | None = None
    """Ask streams to tell what they use (`stream_options`)."""
    user_after_tool: bool | None = None
    """A message of the user may follow a tool's result; false: the model says a word between them."""
    reasoning_back: ReasoningBack | None = None
    """The condition for returning the reasoning of an answer to the model that gave it."""
    stream: bool = True
    vision: bool = True
    """Show the model the images that its tools return; false for a model that reads text only."""
    timeout: Seconds = 120.0
    """Seconds without a byte from the endpoint."""
    seconds: Seconds = 3600.0
    """Seconds until an answer is whole, however steadily it comes."""
    chars: int = MAX_ANSWER_CHARS
    """Characters of the text and of the arguments of one answer together."""
    retries: int = 10
    """Tries after a failure that is not a rate limit."""
    patience: Seconds = 3600.0
    """Seconds that a run goes on waiting through rate limits before it gives up."""
    price: Price | None = None
    """The price of its tokens; None looks it up in the price table (`CADRE_PRICES`)."""
    fallbacks: list[ModelSpec] = []
    """Models that are asked in this order when this one refuses a request or gives no answer at all."""
    extra_body: dict[str, Any] = {}
    """Further keys of each request, for what an endpoint has beyond OpenAI's API."""


def with_calls(model: ModelSpec, form_of: Callable[[ModelSpec], CallForm]) -> ModelSpec:
    """The model and its fallbacks, each `calls: auto` among them replaced by what `form_of` says of it."""
    fallbacks = [with_calls(one, form_of) for one in model.fallbacks]
    calls = form_of(model) if model.calls == "auto" else model.calls
    if calls == model.calls and fallbacks == model.fallbacks:
        return model
    return msgspec.structs.replace(model, calls=calls, fallbacks=fallbacks)


def check_url(key: str, url: str | None) -> None:
    """Raise SpecError unless it is the URL of an endpoint, or none."""
    if url and not url.startswith(("http://", "https://")):
        raise SpecError(f"{key} must begin with http:// or https://")


def check_urls(section: str, model: ModelSpec) -> None:
    """Raise SpecError for a URL of the model or of a fallback that is no endpoint's."""
    check_url(f"{section}.url", model.url)
    for index, fallback in enumerate(model.fallbacks):
        check_url(f"{section}.fallbacks[{index}].url", fallback.url)


def check_fallbacks(agent: str, model: ModelSpec) -> None:
    """Raise SpecError for a fallback that is not another model, or has its own fallbacks."""
    for index, fallback in enumerate(model.fallbacks):
        where = f"model.fallbacks[{index}]"
        if not fallback.name and not fallback.url:
            raise SpecError("name another model, or the url of another endpoint", key=where, agent=agent)
        if fallback.fallbacks:
            problem = "a fallback has no fallbacks: list them one after the other"
            raise SpecError(problem, key=f"{where}.fallbacks", agent=agent)


def model_bounds(model: ModelSpec, key: str = "model") -> list[Bound]:
    """Return the bounds of the section's numbers."""
    price = model.price
    return [
        *(
            bound
            for index, fallback in enumerate(model.fallbacks)
            for bound in model_bounds(fallback, f"{key}.fallbacks[{index}]")
        ),
        (f"{key}.timeout", model.timeout, 0.001),
        (f"{key}.seconds", model.seconds, 0.001),
        (f"{key}.chars", model.chars, 1),
        (f"{key}.context", model.context, 1_000),
        (f"{key}.max_tokens", model.max_tokens, 1),
        (f"{key}.parallel", model.parallel, 1),
        (f"{key}.retries", model.retries, 0),
        (f"{key}.patience", model.patience, 0),
        (f"{key}.price.input", price.input if price else None, 0),
        (f"{key}.price.output", price.output if price else None, 0),
        (f"{key}.price.cached", price.cached if price else None, 0),
    ]


def check_api(key: str, model: ModelSpec, agent: str = "") -> None:
    """Raise SpecError for what the model's API does not have, and for a native tool that the endpoint does not run;
    `key` is where the section stands."""
    if model.api == "responses" and model.seed is not None:
        raise SpecError("the Responses API has none: leave it out, or take api: chat", key=f"{key}.seed", agent=agent)
    for index, tool in enumerate(model.native_tools):
        problem = _problem(tool)
        if problem:
            raise SpecError(problem, key=f"{key}.native_tools[{index}]", agent=agent)
    for index, fallback in enumerate(model.fallbacks):
        check_api(f"{key}.fallbacks[{index}]", fallback, agent)


def _problem(tool: dict[str, Any]) -> str:
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        return "give it a type, such as web_search"
    if kind in _RUN_BY_THE_CLIENT:
        return f"{kind}: {_RUN_BY_THE_CLIENT[kind]}"
    if kind == "mcp" and tool.get("require_approval") != "never":
        return (
            "mcp: set require_approval: never: the endpoint cannot ask for approvals of its calls here;"
            " name the server's tools in tools to have them approved"
        )
    environment = tool.get("environment")
    if kind == "shell" and isinstance(environment, dict) and environment.get("type") == "local":
        return "shell: the endpoint does not run commands of a local environment: take a container"
    return ""


TokenLimit = Literal["max_tokens", "max_completion_tokens"]
"""Names of the parameter that bounds an answer."""

ReasoningBack = Literal["never", "received", "required", "signed", "verbatim"]
"""The condition for returning the reasoning of an answer to its model: never; where and as it was received; the same,
and a blank `reasoning_content` with each call that has none; the same as received, and a signature that stands in with
calls that have none; the same as received, and the content with the thoughts that are written into it."""

PROFILE_KEYS = (
    "token_limit",
    "tool_choice",
    "stop",
    "strict",
    "stream_usage",
    "user_after_tool",
    "reasoning_back",
)
"""Keys of a profile, which are keys of the section `model` too."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The form of requests to an endpoint; the defaults are what most endpoints take."""

    token_limit: TokenLimit | None = "max_tokens"
    """The parameter that bounds an answer; None: no bound is sent."""
    tool_choice: Literal["auto", "required"] = "auto"
    """`required`: the endpoint can be asked for a call in each answer. `auto` is never written into a request."""
    stop: bool = False
    """Stop sequences are sent."""
    strict: bool = True
    """A schema that fits the strict subset is marked `strict`."""
    stream_usage: bool = True
    """Streams are asked to tell what they use."""
    user_after_tool: bool = True
    """A message of the user may follow the result of a tool."""
    reasoning_back: ReasoningBack = "received"


def with_keys(profile: Profile, keys: dict[str, Any]) -> Profile:
    """Return the profile with these of its keys changed. Raises msgspec.ValidationError for a value that none takes."""
    return msgspec.convert({**msgspec.structs.asdict(profile), **keys}, Profile)
