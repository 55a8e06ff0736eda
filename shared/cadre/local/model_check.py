"""The models that the agents of a folder ask, and whether one answers as its agents will ask it."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from cadre.adapters.models.probing.endpoint import ProbedEndpoint, ProbeFailed
from cadre.adapters.models.probing.probes import ask_under_schema, call_tool
from cadre.adapters.models.probing.report import Probe
from cadre.local.local_stack import TEAM_FILE
from cadre.local.team_file import read_team
from cadre.local.tested_models import with_tested_calls
from cadre.settings import ModelSettings
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import declaration_of
from cadre.spec.model import ModelSpec

_CHECK_SECONDS = 30.0
"""The most that one request of a check may take."""


class UsedModel(msgspec.Struct, frozen=True):
    """A model, and how some agent asks it."""

    model: ModelSpec
    """With its URL and its name."""
    tools: bool
    """Native tool calls are asked for."""
    schema: bool
    """Answers are held to a JSON Schema."""


def used_models(folder: Path, settings: ModelSettings) -> list[UsedModel]:
    """The models of the team in this folder, and the one of the environment, as far as they have URL and name.

    Raises SpecError for a file of the team that is wrong.
    """
    found: dict[tuple[str, str], UsedModel] = {}
    for used in (*_of_team(folder, settings), UsedModel(ModelSpec(), tools=False, schema=False)):
        own = used.model
        model = msgspec.structs.replace(own, url=own.url or settings.url, name=own.name or settings.name)
        if not model.url or not model.name:
            continue
        key = model.url.rstrip("/"), model.name
        known = found.get(key, UsedModel(model, tools=False, schema=False))
        found[key] = UsedModel(known.model, known.tools or used.tools, known.schema or used.schema)
    return [
        one if one.tools or one.schema else UsedModel(one.model, tools=True, schema=False)
        for one in found.values()
    ]


def _of_team(folder: Path, settings: ModelSettings) -> Iterable[UsedModel]:
    if not (folder / TEAM_FILE).is_file():
        return
    for file in read_team(folder).agents.values():
        spec = with_tested_calls(read_agent(file), settings)
        for model in (spec.model, *spec.model.fallbacks):
            asks = declaration_of(spec.kind).capabilities(msgspec.structs.replace(spec, model=model))
            yield UsedModel(model, tools="tools" in asks, schema="json_schema" in asks)


async def check_model(used: UsedModel) -> list[Probe]:
    """Asks the model as its agents do: by a call with a tool, and under a schema. `no` is an answer that is none of
    the kind, `unknown` no answer, with the reason."""
    spec = used.model
    endpoint = ProbedEndpoint(spec, _CHECK_SECONDS)
    found = []
    try:
        if used.tools:
            choice = spec.tool_choice if isinstance(spec.tool_choice, str) else "required"
            try:
                found.append(await call_tool(endpoint, choice, stream=spec.stream))
            except ProbeFailed as failure:
                found.append(Probe("tools", "unknown", str(failure)))
        if used.schema:
            try:
                found.append(await ask_under_schema(endpoint, stream=spec.stream))
            except ProbeFailed as failure:
                found.append(Probe("json_schema", "unknown", str(failure)))
    finally:
        await endpoint.close()
    return found
