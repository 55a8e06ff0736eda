"""Ask services on this machine for their abilities, their health and their readiness, and each model that the agents
of a folder use whether it answers as they will ask it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import httpx2
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


class Shortage(NamedTuple):
    """The reason why a service is not ready."""

    code: str
    """As its readiness endpoint names it; "" without one."""
    text: str


_TIMEOUT_SECONDS = 60.0
_PROBE_SECONDS = 10.0


async def check_service(module: str, *options: str) -> tuple[int | None, str, str]:
    """Run the check of a service and return its exit code (None without an answer), stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--check", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return None, "", f"no answer within {_TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode(), errors.decode(errors="replace")


def reason(errors: str) -> str:
    """Return why a check failed: the last line of its stderr."""
    return (errors.strip().splitlines() or ["no reason given"])[-1].removeprefix("cadre: ")


async def isolation_tier() -> tuple[str, str]:
    """Return the tier in which agents' code would be isolated and "", or "" and why no tier is available."""
    code, output, errors = await check_service("cadre_sandbox")
    return (output.strip(), "") if code == 0 else ("", reason(errors))


async def modules_lacking(modules: Iterable[str]) -> set[str]:
    """Those of the modules that agents' code could not import on this machine; none where no code is run here."""
    code, output, _ = await check_service("cadre_sandbox", "--imports", ",".join(modules))
    return {line.removeprefix("lacks ") for line in output.splitlines()[1:]} if code == 0 else set()


async def lack_of(port: int) -> str | None:
    """Return what the service on this port lacks, in words; None when it is ready."""
    unready = await readiness(port)
    return unready.text if unready is not None else None


async def readiness(port: int) -> Shortage | None:
    """Return what the service on this port lacks, by its readiness endpoint; None when it is ready."""
    answer = await _probe(port, "/readyz")
    if answer is None:
        return Shortage("", "does not answer")
    if answer.is_success:
        return None
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Shortage("", str(answer.status_code))
    return Shortage(str(body.get("code") or ""), str(body.get("missing") or body.get("status")))


async def is_alive(port: int) -> bool:
    """Return whether the service on this port answers its liveness endpoint."""
    answer = await _probe(port, "/healthz")
    return answer is not None and answer.is_success


async def _probe(port: int, path: str) -> httpx2.Response | None:
    """Return what the service on this port answers; None: nothing, within the time of a probe."""
    try:
        # Plain HTTP: a TLS context would be made for each request, which reads all certificates of the system.
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=_PROBE_SECONDS) as client:
            return await client.get(f"http://127.0.0.1:{port}{path}")
    except httpx2.TransportError:
        return None


_CHECK_SECONDS = 30.0
"""The most that one request of a check may take."""


class UsedModel(msgspec.Struct, frozen=True):
    """A model, and how some agent asks it."""

    model: ModelSpec
    """With its URL and its name."""
    asks: frozenset[str]
    """The features that its agents use, of `tools` and `json_schema`."""
    untested: bool = False
    """Some agent has `calls: auto`, and nothing is known of the model."""


def used_models(folder: Path, settings: ModelSettings) -> list[UsedModel]:
    """Return the models of the team in this folder, and the one of the environment, as far as they have URL and name.

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
            own = msgspec.structs.replace(model, url=model.url or settings.url, name=model.name or settings.name)
            untested = as_written.calls == "auto" and report_of(own.url, own.name) is None
            yield UsedModel(own, asks, untested)


def _models(spec: AgentSpec) -> list[ModelSpec]:
    return [spec.model, *spec.model.fallbacks]


async def check_model(used: UsedModel) -> list[Probe]:
    """Ask the model as its agents do: by a call with a tool, and under a schema, or plainly. `no` is an answer of
    another kind, `unknown` no answer, with the reason."""
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
