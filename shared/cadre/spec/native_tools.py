"""What a model's `api` and `native_tools` may ask for: tools that the endpoint runs by itself."""

from typing import Any

from cadre.errors import SpecError
from cadre.spec.model import ModelSpec

_RUN_BY_THE_CLIENT = {
    "function": "a function is no native tool: serve it with `cadre tools` and name it in tools",
    "custom": "the endpoint does not run it: serve a tool with `cadre tools` and name it in tools",
    "computer": "the endpoint does not run it, and Cadre has no computer to show it",
    "computer_use_preview": "the endpoint does not run it, and Cadre has no computer to show it",
    "local_shell": "the endpoint does not run it: serve a tool that does with `cadre tools`",
    "apply_patch": "the endpoint does not run it: serve a tool that does with `cadre tools`",
}
"""Types of tools that wait for whoever made the request, and what to do instead."""


def check_api(key: str, model: ModelSpec, agent: str = "") -> None:
    """Raises SpecError for what the model's API does not have, and for a native tool that the endpoint does not run;
    `key` is where the section stands."""
    if model.api == "responses" and model.seed is not None:
        raise SpecError(
            "the Responses API has none: leave it out, or take api: chat", key=f"{key}.seed", agent=agent
        )
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
