"""The findings of probing a model, and their consequences for the model's file."""

from typing import Any, Literal

import msgspec

from cadre.spec.model import CallForm, ModelApi
from cadre.spec.model_file import Capability

Verdict = Literal["yes", "no", "unknown"]

_CAPABILITIES: dict[Capability, tuple[str, ...]] = {
    "vision": ("images",),
    "streaming": ("streaming",),
    "tools": ("tools", "tool_choice: required"),
    "json_schema": ("json_schema",),
}
"""The capabilities that a model's file may declare, each with probes of which one suffices for it."""


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a model was asked for; `value` is a number that was found out by it, in tokens or dimensions."""

    name: str
    verdict: Verdict
    detail: str = ""
    value: int | None = None
    choice: str = ""
    """The one of several names that the endpoint takes."""


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of the probes for one model at one endpoint."""

    url: str
    model: str
    api: ModelApi = "chat"
    at: float = 0.0
    """The time of the probes, in Unix seconds."""
    probes: list[Probe] = []

    def can(self, *names: str) -> bool:
        """Return whether one of these probes says yes."""
        return any(probe.verdict == "yes" for probe in self.probes if probe.name in names)

    def lacks(self, *names: str) -> bool:
        """Return whether these probes were made and all say no."""
        made = [probe.verdict for probe in self.probes if probe.name in names]
        return bool(made) and all(verdict == "no" for verdict in made)

    @property
    def answers(self) -> bool:
        """Return whether the model gave any answer."""
        return self.can("streaming", "whole answers")

    @property
    def context(self) -> int | None:
        """Return the number of tokens that the model takes, as far as the endpoint reports it."""
        found = [probe.value for probe in self.probes if probe.name in ("models", "context")]
        return next((size for size in found if size is not None), None)

    @property
    def calls(self) -> CallForm:
        """Return how the model is to write its calls: native unless it cannot, and keeps to a schema."""
        return "schema" if self.lacks(*_CAPABILITIES["tools"]) and self.can("json_schema") else "native"

    def section(self) -> dict[str, Any]:
        """Return the keys of the model's file that follow from this."""
        capabilities = [one for one, probes in _CAPABILITIES.items() if self.can(*probes)]
        found: dict[str, Any] = {"url": self.url, "name": self.model}
        if self.api != "chat":
            found["api"] = self.api
        if self.context is not None:
            found["context"] = self.context
        found["capabilities"] = capabilities
        if self.can("tool_choice: required"):
            found["tool_choice"] = "required"
        elif self.can("tools") and self.lacks("tool_choice: required"):
            found["tool_choice"] = "auto"
        if self.can("stop"):
            found["stop"] = True
        if self.lacks("strict"):
            found["strict"] = False
        if self.lacks("user_after_tool"):
            found["user_after_tool"] = False
        back = next((probe.choice for probe in self.probes if probe.name == "reasoning_back"), "")
        if back not in ("", "received"):
            found["reasoning_back"] = back
        if self.lacks("json_schema") and self.can("json_object"):
            found["structured"] = "object"
        if any(probe.name == "token_limit" and probe.choice != "max_tokens" for probe in self.probes):
            found["token_limit"] = "max_completion_tokens"
        return found
