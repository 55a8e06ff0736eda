"""Assemble a gateway from its parts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter

from cadre.adapters.addresses import is_loopback
from cadre.adapters.nats.audit import NatsAudit
from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.dead_letters import NatsDeadLetters
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.memory import NatsMemory
from cadre.adapters.nats.metrics import lag_samples
from cadre.adapters.nats.object_store import NatsSnapshots
from cadre.adapters.nats.queues.left_queues import NatsLeftQueues
from cadre.adapters.nats.reading.history import History, NatsArchive, watch_deltas
from cadre.adapters.nats.reading.tail import Decoded, LiveTail, Tail, stream_states
from cadre.adapters.nats.registry import retire
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.rollouts import NatsRollouts, NatsSlots
from cadre.adapters.nats.sessions import NatsSessions
from cadre.adapters.nats.streams.fenced_value import NatsStartClaims
from cadre.adapters.nats.streams.store_watch import NatsStorage
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.adapters.oidc import OidcProvider, OidcSettings
from cadre.api.access import SignInWays
from cadre.automation.standing_budget import BudgetState
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import RunIndexUnavailable, SettingError, SetupError
from cadre.protocol.access import ApiKey
from cadre.protocol.kept import CONVERSATIONS, FILES, KeptConversation, KeptFile
from cadre.service.platform import Platform
from cadre.settings import (
    AccessSettings,
    TracingSettings,
    read,
    read_tracing_settings,
)
from cadre_gateway import SENDER
from cadre_gateway.access.api_keys import ApiKeys
from cadre_gateway.access.audit import AuditTrail
from cadre_gateway.access.gate import Access, RateLimits
from cadre_gateway.access.makers import Makers
from cadre_gateway.access.oidc_sessions import SessionRenewal, SigningKeys
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.automation.background import Automation, automation_of
from cadre_gateway.automation.scheduler import RunStarter
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.doors.open_doors import described, listening_doors, open_doors, routers_of, rules_with
from cadre_gateway.doors.sender import RunService
from cadre_gateway.gateway import GatewayService
from cadre_gateway.index.database.settings import IndexSettings, open_database
from cadre_gateway.index.run_index import RunIndex, ends_of_readers
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.projector import IndexRebuilder, LedgerFeed, LedgerSnapshots, Projector
from cadre_gateway.reading.directory import LiveContracts
from cadre_gateway.reading.left_queues import LeftQueues
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.body import BodyMemory
from cadre_gateway.retention import Janitor
from cadre_gateway.rollouts.editor import RevisionContracts, RolloutEditor
from cadre_gateway.rollouts.keeper import RolloutKeeper
from cadre_gateway.routes import (
    access,
    app,
    dead_letters,
    definitions,
    directory,
    files,
    memory,
    runs,
    steering,
    time_travel,
    tracing,
)
from cadre_gateway.routes import directory as index_routes
from cadre_gateway.starting.admission import Admission, Capacity, KeyedRuns, StandingBudgets
from cadre_gateway.starting.fork import Forker
from cadre_gateway.starting.submit import Sessions, Submitter
from cadre_gateway.starting.workspaces import FileCarrier, Workspaces
from cadre_gateway.steering.approvals import ApprovalDecisions, Approvals, HeldCalls
from cadre_gateway.steering.run_end import Eraser, RunEnd
from cadre_gateway.steering.steer import RecordSender, Steering
from cadre_gateway.streaming.event_stream import EventStreams
from cadre_gateway.streaming.follow import LiveFeeds
from cadre_gateway.transfer.export import RunExporter
from cadre_gateway.transfer.import_run import RunImporter

if TYPE_CHECKING:
    from cadre.adapters.otlp import LiveSpans

log = logging.getLogger("cadre.gateway")

_DAY_SECONDS = 86_400


async def start(options: GatewayOptions, platform: Platform) -> GatewayService:
    """Open the index and begin to read the journals from where it ends."""
    nc, topology, blobs = platform.nc, platform.topology, platform.blobs
    tracing_settings = read_tracing_settings()
    states = await retry(lambda: stream_states(nc, topology), pauses=EVERY_SECOND, log=log)
    streams, ends = [one.created for one in states], [one.end for one in states]
    ledger_snapshots = LedgerSnapshots(NatsSnapshots(nc, topology), topology, streams)
    ledger = await retry(ledger_snapshots.load, pauses=EVERY_SECOND, log=log)
    index = RunIndex(open_database(options.index), streams)
    with contextlib.suppress(RunIndexUnavailable):  # the gateway tries again, and says why: only lists need it
        await index.open()
    erasure = NatsErasure(nc, topology, blobs, platform.clock)
    queues = _left_queues(platform)
    janitor = _janitor(platform, index, erasure, queues, lambda: tail.read_on())
    projector = Projector(index, janitor)
    new_tail = partial(Tail, nc, topology, blobs, SENDER)
    tail = new_tail(projector.on_entry, projector.on_lifecycle)
    lookup = RunLookup(index, History(nc, topology, blobs), platform.journal, erasure, platform.shards)
    feeds = LiveFeeds(LiveTail(nc, topology, blobs, LedgerFeed(ledger, lookup.history).on_entry))
    tail.decoded = feeds.tail.decoded = Decoded()
    live_spans = _live_spans(platform, tracing_settings) if tracing_settings.endpoint else None
    reach = CallerReach(lookup, NatsMemory(nc, topology))
    door, access_routers, to_provider = _access(options, platform, reach)
    routers, automation, runs_service = _routers(
        platform, ledger, janitor, tail, feeds, tracing_settings, door, options
    )
    rebuilder = IndexRebuilder(new_tail, index, tail, platform.clock)
    keeper, rollout_router = _rollouts(platform, index)
    routers += [index_routes.index_router(rebuilder), rollout_router, directory.queue_router(queues)]
    application = app.build(
        [*routers, *access_routers], feeds, nc, live_spans, door, to_provider, described(open_doors())
    )
    application.state.body_memory = options.bodies
    application.state.meters = platform.meters
    gateway = GatewayService(
        app=application,
        platform=platform,
        index=index,
        janitor=janitor,
        ledger=ledger,
        ledger_snapshots=ledger_snapshots,
        tail=tail,
        feeds=feeds,
        rebuilder=rebuilder,
        automation=automation,
        doors=listening_doors(open_doors(), runs_service, door, platform),
        keeper=keeper,
        live_spans=live_spans,
    )
    feeds.tail.start(ledger.positions, ends)
    tail.start(index.positions, held=not index.is_open)
    index.begin_reading(lambda: tail.positions, ends_of_readers(ends), tail.go_on)
    gateway.start()
    _warn_of_strangers(options.access, platform.settings.host)
    return gateway


def _left_queues(platform: Platform) -> LeftQueues:
    stored = NatsLeftQueues(platform.nc, platform.topology)
    return LeftQueues(stored, platform.registry, platform.clock, partial(_retire, platform))


def _janitor(
    platform: Platform,
    index: RunIndex,
    erasure: NatsErasure,
    queues: LeftQueues,
    read_on: Callable[[], Awaitable[None]],
) -> Janitor:
    registry = platform.registry
    return Janitor(
        index,
        erasure,
        platform.clock,
        keep=platform.settings.keep_days * _DAY_SECONDS,
        read_on=read_on,
        in_use=lambda: {ref for one in registry.reachable() for ref in (one.prompts, one.spec)},
        sweep_queues=queues.sweep,
    )


async def _retire(platform: Platform, service: ServiceKey) -> None:
    nc, topology, settings = platform.nc, platform.topology, platform.settings
    await retire(nc, topology, service, platform.clock.now(), settings.away_days)


def _rollouts(platform: Platform, index: RunIndex) -> tuple[RolloutKeeper, APIRouter]:
    """Return what keeps the queues of revisions, and the routes by which people share runs among them."""
    stored, slots = NatsRollouts(platform.nc, platform.topology), NatsSlots(platform.nc, platform.topology)
    keeper = RolloutKeeper(stored, slots, platform.registry, index, platform.clock)
    contracts = RevisionContracts(platform.registry, LiveContracts(platform.blobs))
    editor = RolloutEditor(stored, slots, index, platform.clock, keeper, contracts)
    return keeper, directory.rollout_router(editor)


def _warn_of_strangers(access: AccessSettings, host: str) -> None:
    if not access.ways() and not is_loopback(host):
        log.warning(
            "the gateway listens on %s without authentication: anyone who reaches it may start, read and erase runs;"
            " let only trusted machines reach it, or put a proxy that asks in front (docs/security.md)",
            host,
        )


def _access(
    options: GatewayOptions, platform: Platform, reach: CallerReach
) -> tuple[Access, list[APIRouter], APIRouter | None]:
    """Return what the gate knows, the routes of keys and sign-ins, and those to a provider and back."""
    settings, oidc = options.access, options.oidc
    nc, topology, clock = platform.nc, platform.topology, platform.clock
    ways = settings.ways()
    definitions = NatsDefinitions(nc, topology, "key", ApiKey)
    keys = ApiKeys(definitions, clock, settings.admin_key, accepted=ways != {"oidc"})
    trail = AuditTrail(NatsAudit(nc, topology), clock, platform.settings.instance_name())
    limits, hosts = RateLimits(settings.key_rate), frozenset(settings.hosts())
    door = Access(keys if ways else None, reach, trail, limits, rules_with(open_doors()), hosts)
    sign_in_ways, to_provider = SignInWays(keys="keys" in ways), None
    if "oidc" in ways and oidc is not None:
        # Its packages are an extra: no other gateway needs them.
        from cadre_gateway.access.oidc_tokens import ProviderTokens
        from cadre_gateway.access.sign_in import ConsoleSignIn

        provider = OidcProvider(oidc)
        tokens = ProviderTokens(oidc, SigningKeys(provider))
        keys.renewal = SessionRenewal(definitions, provider, tokens, oidc.client_id, clock)
        door = replace(door, tokens=tokens, public_url=oidc.public_url)
        if oidc.client_id:
            to_provider = access.provider_router(ConsoleSignIn(oidc, provider, tokens, keys), door)
            sign_in_ways.provider, sign_in_ways.login = oidc.shown_name, access.LOGIN
    return door, [access.router(keys, door), access.sign_in_router(sign_in_ways)], to_provider


def _routers(  # noqa: PLR0913 - what all routes share
    platform: Platform,
    ledger: UsageLedger,
    janitor: Janitor,
    tail: Tail,
    feeds: LiveFeeds,
    tracing_settings: TracingSettings,
    door: Access,
    options: GatewayOptions,
) -> tuple[list[APIRouter], Automation, RunService]:
    """Give each route the parts that it uses; the order is that of the API's description."""
    nc, topology, registry = platform.nc, platform.topology, platform.registry
    bus, blobs, journal, clock = platform.bus, platform.blobs, platform.journal, platform.clock
    reach, trace_url = door.reach, read_console_settings().trace_url
    lookup, history, turns = reach.lookup, reach.lookup.history, NatsSessions(nc, topology)
    index = lookup.index
    file_index, live = NatsFileIndex(nc, topology), LiveContracts(blobs)
    raw = NatsArchive(nc, topology, blobs, history)
    capacity = Capacity(NatsStorage(nc, topology, platform.settings.max_bytes))
    held_calls, sender = HeldCalls(journal), RecordSender(registry, feeds, bus, journal)
    run_end = RunEnd(lookup, feeds, sender, clock)
    file_bytes, lags = platform.settings.file_bytes, partial(lag_samples, nc, topology)
    workspaces = Workspaces(file_index, blobs, file_bytes)
    carrier = FileCarrier(file_index, history, lookup.erasure)
    budgets_left = StandingBudgets(NatsDefinitions(nc, topology, "budget", BudgetState), ledger, clock)
    keyed = KeyedRuns(lookup, NatsStartClaims(nc, topology))
    admission = Admission(lookup, registry, capacity, budgets_left, door.limits, keyed, bus, tracing_settings)
    sessions = Sessions(turns, lookup, journal, history, clock)
    streams = EventStreams(lookup, feeds, partial(watch_deltas, nc, topology))
    submitter = Submitter(admission, sessions, workspaces, carrier, blobs, clock, live)
    decisions = ApprovalDecisions(held_calls, sender, clock)
    steer = Steering(lookup, journal, sender, clock)
    eraser = Eraser(lookup, run_end, feeds, registry, janitor)
    starter = RunStarter(submitter, keyed, lookup, run_end, Makers(door.keys, door.tokens))
    automation = automation_of(platform, starter, history, budgets_left, options.secret)
    routers = [
        runs.router(reach, submitter, lookup, run_end, streams, registry, clock, trace_url),
        directory.router(registry, live, index, lags, partial(_retire, platform)),
        directory.statistics_router(ledger, clock),
        steering.approvals_router(Approvals(index, registry, held_calls), decisions),
        steering.router(steer),
        dead_letters.router(NatsDeadLetters(nc, topology), journal, blobs),
        time_travel.router(lookup, raw, Forker(lookup, admission, carrier, clock), blobs),
        time_travel.archive_router(
            eraser,
            RunExporter(lookup, raw, file_index, blobs),
            RunImporter(lookup, capacity, tail, raw, file_index, blobs, clock, file_bytes),
        ),
        files.router(lookup, workspaces),
        memory.router(reach, reach.memory, clock),
        definitions.of_schedules(automation.schedules),
        definitions.of_triggers(automation.triggers),
        definitions.router(automation.notices),
        definitions.router(automation.budgets),
        tracing.router(lookup, clock, content=tracing_settings.content),
    ]
    begun = (reach, lookup, history, feeds, streams.watch_deltas, turns, submitter, decisions, steer, run_end)
    kept = _kept(platform)
    runs_service = RunService(*begun, eraser, registry, live, clock, automation.pushes, options.cards, *kept)
    return [*routers, *routers_of(open_doors(), runs_service, platform.meters)], automation, runs_service


def _kept(platform: Platform) -> tuple[NatsDefinitions[KeptFile], NatsDefinitions[KeptConversation]]:
    """Return where the files and the conversations of clients are."""
    nc, topology = platform.nc, platform.topology
    return (
        NatsDefinitions(nc, topology, FILES, KeptFile),
        NatsDefinitions(nc, topology, CONVERSATIONS, KeptConversation),
    )


def _live_spans(platform: Platform, settings: TracingSettings) -> LiveSpans:
    try:
        from cadre.adapters.otlp import LiveSpans
    except ModuleNotFoundError as error:
        raise SetupError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set and the Python module {error.name!r} is not installed: install"
            " 'cadre-agents[tracing]', or unset it"
        ) from error
    return LiveSpans(settings, "gateway", platform.settings.instance_name())


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for links from the console: `CADRE_<FIELD>`."""

    trace_url: str = ""
    """The URL of a trace for people, with `{trace_id}` in it; "" for no link."""

    def __post_init__(self) -> None:
        url = self.trace_url
        if url and not (url.startswith(("http://", "https://")) and "{trace_id}" in url):
            raise SettingError(
                f"CADRE_TRACE_URL is {url!r}: write an address that begins with http:// or https:// and"
                " has {trace_id} in it"
            )


def read_console_settings() -> ConsoleSettings:
    """Return the settings from the environment. Raises SettingError."""
    return read(ConsoleSettings, "CADRE_")


@dataclass(frozen=True)
class GatewayOptions:
    """Options of a gateway in addition to the settings of its deployment."""

    access: AccessSettings
    oidc: OidcSettings | None
    """None without sign-in by a provider."""
    index: IndexSettings
    bodies: BodyMemory
    """That of the whole process."""
    cards: CardSettings
    secret: Callable[[str], str]
    """Finds the secret of this name, which triggers and notices name; "" without one."""
