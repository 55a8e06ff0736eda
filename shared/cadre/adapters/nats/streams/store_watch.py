"""Watch the NATS store: whether it is still the one that a service began with, whether it stores what it is sent,
and how full it is for a tree."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import nats.errors
from nats.aio.client import Client

from cadre.adapters.nats.connection.keys import may_write_probes
from cadre.adapters.nats.connection.silence import silence_of
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import STORE_REMEDY, Lack, existing, server_lack, stream_names
from cadre.errors import BusFull, BusUnavailable, CadreError, NotPermitted
from cadre.protocol.topology import Topology
from cadre.settings import Settings

log = logging.getLogger("cadre.nats")

CHECK_SECONDS = 10.0
"""Seconds between two checks while the connection holds; after a lost one the next check is at once."""

REFUSES = "store-refuses"
"""The code of a store that has failed: its server is to be restarted once there is space."""

FULL = "store-full"
"""The code of a store that has reached a limit of the server: it goes on once there is room."""

_LOOK_SECONDS = 0.5
_ASK_SECONDS = 2.0
"""Seconds between two signs of life of JetStream that are asked for."""
_PROBE_TTL = "1s"
_OBJECT_CHUNK_BYTES = 128 * 1024

State = Literal["lost", "refuses", "full", "silent", "small"]
"""The troubles of a store, as the metric names them."""

_SILENT = {
    "requests": ("jetstream-silent", "requests to its API"),
    "publishes": ("publishes-silent", "messages that streams are to store"),
    "pulls": ("pulls-silent", "the pulls of consumers"),
}

_STATES: dict[str, State] = {
    "store-lost": "lost",
    REFUSES: "refuses",
    "max-payload": "small",
    "jetstream-off": "silent",
    **{code: "silent" for code, _ in _SILENT.values()},
}


class StoreWatch:
    """Compares a deployment's streams with those that were there at first, by the time at which each was made; asks
    JetStream for a sign of life every other second, and writes to a shard now and then."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology
        self._created: dict[str, str] = {}
        self._reconnects = nc.stats["reconnects"]
        self._lost: str | None = None
        self._refuses: Lack | None = None
        self._full: Lack | None = None
        self._lack: Lack | None = None
        self._mute: str | None = None
        """A stream that has not answered, though JetStream does."""
        self._shard = 0

    async def start(self) -> asyncio.Task[None]:
        """Remember the streams as they are now, then watches until the task is cancelled. Raises BusUnavailable."""
        for name in stream_names(self._topology):
            if (info := await jetstream.stream_info(self._nc, name)) is not None:
                self._created[name] = info["created"]
        return asyncio.create_task(self._watch(), name="store")

    def lost(self) -> str | None:
        """Say what happened when this is not the store that the service began with."""
        return self._lost

    def is_silent(self) -> bool:
        """Return whether a request to JetStream would now wait for its answer in vain."""
        silent = silence_of(self._nc).now()
        return silent is not None and silent.what == "requests"

    def trouble(self) -> Lack | None:
        """Return what keeps the store from being used, and what to do; None when nothing does. A full store can be
        used: it is read from, and runs are removed from it.
        """
        if self._nc.stats["reconnects"] != self._reconnects:
            text = "the connection to NATS is back: its store is being checked"
            return self._silent() or Lack("store-unchecked", text)
        if self._lost is not None:
            return Lack("store-lost", self._lost)
        return self._lack or self._refuses or self._silent()

    def full(self) -> Lack | None:
        """Say which limit the store has reached, and what to do; None when there is room."""
        return self._full

    def states(self) -> dict[State, bool]:
        """Return whether each of the troubles is there."""
        trouble = self.trouble()
        state = _STATES.get(trouble.code) if trouble is not None else None
        return {one: one == state for one in get_args(State)} | {
            "lost": self._lost is not None,
            "refuses": self._refuses is not None,
            "full": self._full is not None,
        }

    def _silent(self) -> Lack | None:
        """Say what JetStream does not answer, though its server is there."""
        silent = silence_of(self._nc).now()
        if silent is None:
            if self._mute is None or not self._nc.is_connected:
                return None
            code, what, seconds = "jetstream-silent", f"requests about stream {self._mute}", ""
        else:
            (code, what), seconds = _SILENT[silent.what], f" for {silent.seconds:.0f} s"
            what += f" ({silent.place})" if silent.place else ""
        return Lack(
            code,
            f"NATS is connected, but its JetStream has not answered {what}{seconds}: nothing is lost; if it stays so,"
            " restart the NATS server",
        )

    async def check(self) -> None:
        """Look once at every stream, then writes to one shard; the next check writes to the next one, or to the same
        one as long as that refuses. Raises BusUnavailable."""
        reconnects = self._nc.stats["reconnects"]
        try:
            self._lack = await server_lack(self._nc)
            if self._lack is not None:
                self._reconnects = reconnects
                return
            self._lost, full = await self._look()
            self._reconnects = reconnects
            if self._lost is None and may_write_probes(self._nc):
                found = await refusal(self._nc, self._topology, [self._shard])
                self._refuses = found if found is not None and found.code == REFUSES else None
                full = found if found is not None and found.code == FULL else full
                if found is None:
                    self._shard = (self._shard + 1) % self._topology.shards
            self._full = full
        except NotPermitted as error:
            self._reconnects = reconnects
            self._lack = Lack("not-permitted", str(error))

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._check_now_and_then(), name="store check")
            tasks.create_task(self._ask_now_and_then(), name="store sign of life")
            tasks.create_task(self._tell(), name="store log")

    async def _check_now_and_then(self) -> None:
        while True:
            # A server that does not answer is not a lost store: what was known stays known.
            with contextlib.suppress(BusUnavailable):
                await self.check()
            for _ in range(round(CHECK_SECONDS / _LOOK_SECONDS)):
                await asyncio.sleep(_LOOK_SECONDS)
                if self._nc.is_connected and self._nc.stats["reconnects"] != self._reconnects:
                    break

    async def _ask_now_and_then(self) -> None:
        """Ask for one stream after the other, and again for one that does not answer."""
        turns = itertools.count(1)
        name = stream_names(self._topology)[0]
        while True:
            await asyncio.sleep(_ASK_SECONDS)
            if not self._nc.is_connected:
                self._mute = None
                continue
            try:
                await jetstream.api(self._nc, f"STREAM.INFO.{name}")
            except BusUnavailable as error:
                if isinstance(error.__cause__, nats.errors.TimeoutError):
                    self._mute = name
                continue
            except NotPermitted:
                pass  # the check says so
            names = stream_names(self._topology)
            self._mute, name = None, names[next(turns) % len(names)]

    async def _tell(self) -> None:
        """Log each trouble once, and its end. A standstill is one trouble, however it is noticed."""
        told: Lack | None = None
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            trouble = self.trouble() if self._nc.is_connected else None
            if trouble is not None and (trouble.code == "store-unchecked" or _is_same(trouble, told)):
                continue
            if trouble is not None:
                log.error("%s: %s", trouble.code, trouble.text)
            elif told is not None:
                log.warning("%s is over", told.code)
            told = trouble

    async def _look(self) -> tuple[str | None, Lack | None]:
        """Look at every stream; return why this is not the store of the start, and which stream is full."""
        shards = {self._topology.stream(shard) for shard in range(self._topology.shards)}
        full: Lack | None = None
        for name in {**self._created, **dict.fromkeys(shards)}:
            info = await jetstream.stream_info(self._nc, name)
            if info is None:
                text = f"the NATS store was lost or is another one: it has no stream {name}. {STORE_REMEDY}"
                return text, None
            before = self._created.setdefault(name, info["created"])
            if (now := info["created"]) != before and name in shards:
                text = (
                    f"the NATS store is another one than at the start: its stream {name} was made {now}, not"
                    f" {before}. {STORE_REMEDY}"
                )
                return text, None
            full = full or _full_stream(info)
        return None, await _full_account(self._nc) or full


def _is_same(trouble: Lack, told: Lack | None) -> bool:
    return told is not None and (
        trouble.code == told.code or "silent" == _STATES.get(trouble.code) == _STATES.get(told.code)
    )


async def _full_account(nc: Client) -> Lack | None:
    """Report that the account has almost no room left: a small message, such as the probe, may still fit."""
    info = await jetstream.ask(nc, "asking how much room there is", "INFO")
    for one in account_usages(info):
        if one.limit - one.used < one.limit // 100:
            return _full(one.where, f"it holds {one.used:,} of {one.limit:,} bytes")
    return None


def _full_stream(info: dict[str, Any]) -> Lack | None:
    """Report that a stream has reached its own limit, if it then refuses new messages."""
    config, state = info["config"], info["state"]
    name, most_bytes, most = config["name"], config.get("max_bytes", -1), config.get("max_msgs", -1)
    if config["discard"] != "new":
        return None
    chunk = _OBJECT_CHUNK_BYTES if name.startswith("OBJ_") else 0
    if most_bytes > 0 and most_bytes - state["bytes"] < max(min(chunk, most_bytes // 10), most_bytes // 100):
        holds = f"it holds {state['bytes']:,} bytes of its max_bytes={most_bytes:,}"
    elif 0 < most <= state["messages"]:
        holds = f"it holds {state['messages']:,} messages of its max_msgs={most:,}"
    else:
        return None
    return _full(name, holds)


def _full(where: str, holds: object) -> Lack:
    remedy = "Raise the limit, or remove runs (`cadre runs remove`): no restart is needed"
    return Lack(FULL, f"the NATS store is full: {where}: {holds}. {remedy}")


async def refusal(nc: Client, topology: Topology, shards: Iterable[int]) -> Lack | None:
    """Write a message that expires to each shard; report the shard that does not store it, and the remedy."""
    for shard in shards:
        headers = {jetstream.ROLLUP: "sub", jetstream.TTL: _PROBE_TTL}
        try:
            await jetstream.append(nc, topology.store_probe(shard), b"", headers=headers)
        except BusFull as error:
            return _full(topology.stream(shard), error)
        except CadreError as error:
            if not nc.is_connected:
                return None
            return Lack(
                REFUSES,
                f"the NATS store refuses writes: {topology.stream(shard)}: {error}. Is its disk full? Make space, then"
                " restart the NATS server: it may go on refusing until then",
            )
    return None


async def refusals(nc: Client, settings: Settings) -> list[str]:
    """Return `refusal` of the deployment as a list, as `provision.check` returns what is wrong with its streams."""
    topology = await existing(nc, settings)
    if topology is None:
        return []
    found = [await _full_account(nc)]
    infos = [await jetstream.stream_info(nc, name) for name in stream_names(topology)]
    found += [_full_stream(info) for info in infos if info is not None]
    if may_write_probes(nc):
        found.append(await refusal(nc, topology, range(topology.shards)))
    return [lack.text for lack in found if lack is not None]


_KNOWN_SECONDS = 1.0
"""Seconds that an answer of the server is taken for true."""


class StorageUsage(NamedTuple):
    """The usage of one place, in bytes."""

    where: str
    used: int
    limit: int

    @property
    def share(self) -> float:
        """Return the part of the limit that is used."""
        return self.used / self.limit


class NatsStorage:
    """Asks the server how full it is, at most once a second for each shard."""

    def __init__(self, nc: Client, topology: Topology, max_bytes: int) -> None:
        self._nc = nc
        self._topology = topology
        self._max_bytes = max_bytes
        self._asking = asyncio.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    async def fullest(self, tree: str) -> StorageUsage | None:
        """Return the fullest place that the tree needs; None when nothing is limited. Raises BusUnavailable."""
        rooms = account_usages(await self._ask("INFO"))
        if self._max_bytes:
            stream = self._topology.stream_of(tree)
            used = (await self._ask(f"STREAM.INFO.{stream}"))["state"]["bytes"]
            rooms.append(StorageUsage(f"stream {stream}", used, self._max_bytes))
        return max(rooms, key=lambda room: room.share, default=None)

    async def _ask(self, what: str) -> dict[str, Any]:
        async with self._asking:
            at, answer = self._known.get(what, (float("-inf"), {}))
            if time.monotonic() - at > _KNOWN_SECONDS:
                answer = await jetstream.ask(self._nc, "asking how much room there is", what)
                self._known[what] = (time.monotonic(), answer)
        return answer


def account_usages(info: dict[str, Any]) -> list[StorageUsage]:
    """An account has one limit, or one for each number of copies; what is not positive is no limit."""
    tiers = info.get("tiers") or {"": info}
    return [
        StorageUsage(f"the NATS account{f' ({name})' if name else ''}", tier["storage"], tier["limits"]["max_storage"])
        for name, tier in tiers.items()
        if tier.get("limits", {}).get("max_storage", -1) > 0
    ]
