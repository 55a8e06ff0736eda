"""Find the models that the agents of a folder use, and check that each answers as its agents will ask it."""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from cadre.adapters.models.probing.endpoint import ProbedEndpoint, ProbeFailed
from cadre.adapters.models.probing.probes import ask_plainly, ask_under_schema, call_tool, told_context
from cadre.adapters.models.probing.report import Probe
from cadre.adapters.models.profiles import profile_of
from cadre.deploy.team_file import read_team
from cadre.service.tested_models import report_of, with_tested_calls
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.model import ModelSpec
from cadre.spec.names import TEAM_FILE

_CHECK_SECONDS = 30.0
"""The most that one request of a check may take."""


class UsedModel(msgspec.Struct, frozen=True):
    """A model, and how some agent asks it."""

    model: ModelSpec
    """With its URL and its name."""
    asks: frozenset[str]
    """What is asked of it, of `tools` and `json_schema`."""
    untested: bool = False
    """Some agent has `calls: auto`, and nothing is known of the model."""


def used_models(folder: Path, settings: ModelSettings) -> list[UsedModel]:
    """The models of the team in this folder, and the one of the environment, as far as they have URL and name.

    Raises SpecError for a file of the team that is wrong.
    """
    found: dict[tuple[str, str], UsedModel] = {}
    for used in _of_team(folder, settings):
        if used.model.url and used.model.name:
            key = used.model.url.rstrip("/"), used.model.name
            known = found.get(key, used)
            asks, untested = known.asks | used.asks, known.untested or used.untested
            found[key] = UsedModel(known.model, asks, untested)
    if settings.url and settings.name:
        own = UsedModel(ModelSpec(url=settings.url, name=settings.name), frozenset({"tools"}))
        found.setdefault((settings.url.rstrip("/"), settings.name), own)
    return list(found.values())


def _of_team(folder: Path, settings: ModelSettings) -> Iterable[UsedModel]:
    if not (folder / TEAM_FILE).is_file():
        return
    for file in read_team(folder).agents.values():
        written = read_agent(file)
        spec = with_tested_calls(written, settings)
        for model, as_written in zip(_models(spec), _models(written), strict=True):
            asks = facts_of(msgspec.structs.replace(spec, model=model)).capabilities
            own = msgspec.structs.replace(
                model, url=model.url or settings.url, name=model.name or settings.name
            )
            untested = as_written.calls == "auto" and report_of(own.url, own.name) is None
            yield UsedModel(own, asks, untested)


def _models(spec: AgentSpec) -> list[ModelSpec]:
    return [spec.model, *spec.model.fallbacks]


async def check_model(used: UsedModel) -> list[Probe]:
    """Asks the model as its agents do: by a call with a tool, and under a schema, or plainly. `no` is an answer that is
    none of the kind, `unknown` no answer, with the reason."""
    spec = used.model
    endpoint = ProbedEndpoint(spec, _CHECK_SECONDS)
    wanted = spec.tool_choice or profile_of(spec, spec.url, spec.name).tool_choice
    choice = wanted if isinstance(wanted, str) else "required"
    questions: dict[str, Callable[[], Awaitable[Probe]]] = {
        "context": lambda: _context(endpoint, spec),
    }
    if "tools" in used.asks:
        questions["tools"] = lambda: call_tool(endpoint, choice, stream=spec.stream)
    if "json_schema" in used.asks:
        questions["json_schema"] = lambda: ask_under_schema(endpoint, stream=spec.stream)
    if not used.asks:
        questions["answer"] = lambda: ask_plainly(endpoint, stream=spec.stream)
    found = []
    try:
        for name, question in questions.items():
            try:
                found.append(await question())
            except ProbeFailed as failure:
                # Not every endpoint has a list of models.
                if name != "context":
                    found.append(Probe(name, "unknown", str(failure)))
    finally:
        await endpoint.close()
    return found


async def _context(endpoint: ProbedEndpoint, spec: ModelSpec) -> Probe:
    size = await told_context(endpoint, spec.name)
    if size is None or size >= spec.context:
        return Probe("context", "yes")
    detail = f"it takes {size} tokens, and model.context says {spec.context}: write context: {size}"
    return Probe("context", "no", detail)
