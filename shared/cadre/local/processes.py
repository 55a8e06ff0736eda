"""Start and stop the processes of one `cadre up`, and find the Python files that each depends on."""

import ast
import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from cadre.adapters import local_stack
from cadre.adapters.nats.streams.store_watch import REFUSES
from cadre.deploy.team_components import tool_service_names, unused_name
from cadre.deploy.team_file import TeamSpec
from cadre.local import nats_server
from cadre.local.fork_server import ForkServer
from cadre.local.nats_server import StackUsers
from cadre.local.service_check import is_alive, isolation_tier, lack_of, readiness
from cadre.local.supervise import ManagedProcess, ProcessSpec, until_ready
from cadre.service.extras import check_extras
from cadre.service.other_processes import can_close_other_processes
from cadre.settings import (
    SYNC_ALWAYS,
    child_environment,
    interpreter_environment,
    read_model_settings,
    read_nats_sync,
    read_secret,
    read_settings,
    read_tracing_settings,
    without_secrets,
)
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.program import program_of

T = TypeVar("T")

SCRIPTED_BANNER = (
    "Scripted model: canned replies, not an AI. For a real one set CADRE_MODEL_URL, CADRE_MODEL_KEY and CADRE_MODEL."
)
START_SECONDS = 300.0
_KILL_SECONDS = 5.0
"""Seconds after its drain time when a process is killed."""

_LOOK_SECONDS = 1.0
"""Seconds until a service that is new is looked after as well."""

MAX_LOG_BYTES = 20 * 1024 * 1024
"""Bytes of a log file above which the next start begins a new one."""

MIN_FREE_BYTES = 64 * 1024 * 1024
"""Bytes that the disk must have left for a NATS that refuses writes to be started again."""


@dataclass
class Stack:
    """NATS, the gateway and a team's services on one machine. Nothing runs before `start`."""

    data: Path
    team: TeamSpec | None
    ports: local_stack.Ports
    on_line: Callable[[str, str], None]
    """Called with (name, line) for everything that a process writes."""
    users: StackUsers | None = None
    """The NATS users that the services are; None: anybody may do anything."""
    start_seconds: float = START_SECONDS
    """Seconds that a group of services may take to be ready."""
    _groups: list[list[ManagedProcess]] = field(default_factory=list)
    """Groups in the order of their start, each of which needs those before it; they end in reverse order."""
    _running: dict[asyncio.Task[None], ManagedProcess] = field(default_factory=dict)
    _left_out: list[str] = field(default_factory=list)
    """Agents that can do nothing on this machine."""
    _started: bool = False
    _forks: ForkServer | None = None
    notes: list[str] = field(default_factory=list)
    """Remarks for the user, once all is ready."""

    def __post_init__(self) -> None:
        self.gateway = f"http://127.0.0.1:{self.ports.gateway}"
        self.nats = f"nats://127.0.0.1:{self.ports.nats}"
        self.drain = read_settings().drain_seconds
        self.sync = read_nats_sync()
        self.closes_processes = self.users is not None and can_close_other_processes()
        self.model = read_model_settings().url
        self.is_scripted = not self.model and self.team is not None and self.team.script is not None
        if sys.platform == "linux":
            environment = {**interpreter_environment(), "PYTHONUNBUFFERED": "1"}
            self._forks = ForkServer(self._modules(), environment)

    def check_packages(self) -> None:
        """Raise CommandFailed when a package is missing that one of its services needs."""
        check_extras("up", self._service_kinds())

    async def start(self) -> None:
        """Start everything and return when all is ready. Raises CommandFailed."""
        if self._forks is not None:
            await self._forks.begin()
        isolated = asyncio.create_task(self._leave_out_isolated())
        try:
            if self.users is not None:
                await asyncio.to_thread(self.users.create_keys, self.team)
            await self._launch([self._nats()])
            if self.users is not None:
                await self.users.provision(self.nats)
            if self.is_scripted:
                await self._launch([self._scripted_model()])
            await isolated
        finally:
            isolated.cancel()
        await self._launch(self._tracer(), self.services())
        self._started = True
        self._write_state()
        if self.users is not None and not self.closes_processes:
            self.notes.append("without Landlock in this kernel tools can find the keys of other services")

    async def _leave_out_isolated(self) -> None:
        """Leave out the agents that can do nothing on a machine without isolation, if any others are left then."""
        if self.team is None or not self.team.pools:
            return
        tier, why = await isolation_tier()
        others = {name: file for name, file in self.team.agents.items() if name not in self.team.isolated}
        wanted = self.team.demo.agent if self.team.demo is not None else next(iter(others), None)
        if not tier and wanted in others:
            self.notes.append(f"without {', '.join(self.team.isolated)}: their code cannot be run here: {why}")
            self._left_out = self.team.isolated
            self.team = self.without_left_out(self.team)

    async def alive_during(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work; raises the CommandFailed of a service that cannot be kept alive meanwhile."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                # The work may start and stop services: those of the moment are looked after.
                lives = [task, *self._running]
                await asyncio.wait(lives, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for life in [life for life in self._running if life.done()]:
                    life.result()
                    del self._running[life]
            return await task
        finally:
            # The work unwinds before the stack does.
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """End the services within their drain time, then what they need: the tracer, which exports what they have
        journaled, and NATS last."""
        for group in reversed(self._groups):
            await self._end(group, self.drain + _KILL_SECONDS)
        if self._forks is not None:
            await self._forks.stop()

    def kill(self) -> None:
        """End all processes at once."""
        for child in self._running.values():
            child.kill()

    # --- changes while it runs

    @property
    def children(self) -> list[ManagedProcess]:
        """Return the processes that run."""
        return list(self._running.values())

    async def add(self, service: ProcessSpec) -> ManagedProcess:
        """Start one more service and return when it is ready. Raises CommandFailed; then it does not run."""
        child = ManagedProcess(service, self.on_line, self._restarted, self._forks)
        life = asyncio.create_task(child.keep_alive())
        ready = asyncio.create_task(until_ready([child], self.start_seconds, self.on_line))
        try:
            await asyncio.wait([life, ready], return_when=asyncio.FIRST_COMPLETED)
            await (life if life.done() else ready)
        except BaseException:
            ready.cancel()
            child.kill()
            await asyncio.gather(life, ready, return_exceptions=True)
            raise
        self._running[life] = child
        self._groups[-1].append(child)
        self._write_state()
        return child

    async def remove(self, child: ManagedProcess) -> None:
        """End a service within its drain time."""
        await self._end([child], self.drain + _KILL_SECONDS)
        for group in self._groups:
            if child in group:
                group.remove(child)
        self._running = {life: one for life, one in self._running.items() if one is not child}
        self._write_state()

    def without_left_out(self, team: TeamSpec) -> TeamSpec:
        """Return the team without the agents that are left out on this machine."""
        agents = {name: file for name, file in team.agents.items() if name not in self._left_out}
        pools = [] if self._left_out else team.pools
        return msgspec.structs.replace(team, agents=agents, pools=pools)

    # --- life

    async def _launch(self, *groups: Sequence[ProcessSpec]) -> None:
        """Start them all at once; they end group by group, the last one first."""
        started = [
            [ManagedProcess(service, self.on_line, self._restarted, self._forks) for service in group]
            for group in groups
        ]
        self._groups += started
        children = [child for group in started for child in group]
        for child in children:
            self._running[asyncio.create_task(child.keep_alive())] = child
        await self.alive_during(until_ready(children, self.start_seconds, self.on_line))

    async def _end(self, children: Sequence[ManagedProcess], within: float) -> None:
        lives = [life for life, child in self._running.items() if child in children]
        if not lives:
            return
        for child in children:
            child.stop()
        _, slow = await asyncio.wait(lives, timeout=within)
        for life in slow:
            self.on_line(self._running[life].service.name, "did not end within its drain time: killed")
            self._running[life].kill()
        await asyncio.gather(*lives, return_exceptions=True)

    def _restarted(self) -> None:
        if self._started:
            self._write_state()

    def _write_state(self) -> None:
        pids = {child.service.name: child.pid for child in self._running.values() if child.pid is not None}
        running = local_stack.StackState(
            gateway=self.gateway,
            nats=self.nats,
            pids=pids,
            sync=self.sync,
            model=self.model if self.is_scripted else "",
        )
        local_stack.write_state(self.data, running)

    # --- which processes

    def _service_kinds(self) -> Iterator[str]:
        """Return the kinds of the services that may need packages of an extra."""
        yield "gateway"
        if self.is_scripted:
            yield "scripted-model"
        if self.team is not None and self.team.pools:
            yield "sandbox"
        if self.team is not None and self.team.needs_memory:
            yield "memory"
        if read_tracing_settings().endpoint:
            yield "tracer"

    def _modules(self) -> list[str]:
        """Return the modules of the services that are started most, whose imports the fork server makes."""
        modules = ["cadre_gateway"]
        if self.is_scripted:
            modules.append("cadre_scripted_model")
        if self.team is not None:
            modules += ["cadre_agent", "cadre_tools", *["cadre_sandbox"] * bool(self.team.pools)]
        return modules

    def _nats(self) -> ProcessSpec:
        server = nats_server.server_binary()
        config = self.data / "nats.conf"
        users = self.users.server_file if self.users is not None else None
        nats_server.write_config(config, self.data / "nats", self.ports.nats, self.sync, users)

        async def ready() -> str | None:
            info = await nats_server.server_info("127.0.0.1", self.ports.nats)
            return None if info is not None and info.get("jetstream") else "does not answer"

        async def alive() -> bool:
            await self._restart_refusing_nats()
            return await nats_server.server_info("127.0.0.1", self.ports.nats) is not None

        return self._service("nats", [str(server), "-c", str(config)], {}, ready, alive)

    async def _restart_refusing_nats(self) -> None:
        """Start NATS again when it refuses writes although its disk has room: after a full disk it does so until
        then."""
        unready = await readiness(self.ports.gateway)
        if unready is None or unready.code != REFUSES:
            return
        free = shutil.disk_usage(self.data).free
        if free < MIN_FREE_BYTES:
            self.on_line("nats", f"refuses writes, and its disk has {free // 2**20} MiB left: make space")
            return
        self.on_line("nats", "refuses writes although its disk has space: starting it again")
        for child in self.children:
            if child.service.name == "nats":
                child.restart()

    def _scripted_model(self) -> ProcessSpec:
        self.model = f"http://127.0.0.1:{self.ports.model}/v1"
        return self._script_at("model", self.ports.model)

    def trial_of_script(self) -> ProcessSpec:
        """Return the scripted model at another port, to see whether its script holds."""
        return self._script_at("model-trial", nats_server.free_port(0, "a trial", "nothing"))

    def _script_at(self, name: str, port: int) -> ProcessSpec:
        assert self.team is not None
        script = self.team.script
        assert script is not None
        argv = ["--script", str(script), "--port", str(port)]
        return replace(self._python(name, "cadre_scripted_model", argv, "", port), files=lambda: (script,))

    def _tracer(self) -> list[ProcessSpec]:
        """Return the tracer; [] where no receiver of traces is configured."""
        wanted = bool(read_tracing_settings().endpoint)
        return [self._python("tracer", "cadre_tracer", [], "tracer")] if wanted else []

    def services(self) -> list[ProcessSpec]:
        """Return the gateway and the services of the team as it is now, each with its own port."""
        kept, port = {"CADRE_INDEX_URL": local_stack.index_url(self.data)}, self.ports.gateway
        services = [self._python("gateway", "cadre_gateway", [], "gateway", port, kept)]
        if self.team is None:
            return services
        for entry, role in zip(self.team.tools, tool_service_names(self.team.tools), strict=True):
            name = Path(entry.partition(":")[0]).stem if "/" in entry else entry
            name = self._unused(name + "-tools" * (Path(entry) in self.team.agents.values()), services)
            sources = partial(source_files, entry, Path.cwd())
            alone = ["--alone"] if self.closes_processes else []
            service = self._python(name, "cadre_tools", [entry, *alone], f"tools-{role}")
            environment = without_secrets(service.environment, *self.team.key_variables)
            services.append(replace(service, environment=environment, files=sources))
        for pool in self.team.pools:
            name = self._unused("sandbox" if pool == "default" else f"sandbox-{pool}", services)
            services.append(self._python(name, "cadre_sandbox", ["--pool", pool], f"sandbox-{pool}"))
        for pool, file in self.team.programs.items():
            name = self._unused(pool, services)
            service = self._python(name, "cadre_tools", [str(file)], f"sandbox-{pool}")
            services.append(replace(service, files=partial(files_of_program, file)))
        if self.team.needs_memory:
            directory = {"CADRE_MEMORY_DIRECTORY": str(self.data / "memory")}
            services.append(
                self._python(self._unused("memory", services), "cadre_memory", [], "memory", more=directory)
            )
        for name, file in self.team.agents.items():
            name, user = self._unused(name, services), f"agent-{name}"
            sources = partial(files_of_agent, file)
            services.append(replace(self._python(name, "cadre_agent", [str(file)], user), files=sources))
        return services

    @staticmethod
    def _unused(name: str, services: Sequence[ProcessSpec]) -> str:
        """Return the name, with a number if another process has it: it names a log file."""
        taken = {"nats", "model", "tracer", *(service.name for service in services)}
        return unused_name(name, taken)

    def _python(
        self,
        name: str,
        module: str,
        argv: Sequence[str],
        user: str,
        port: int | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> ProcessSpec:
        """Return a service of Cadre, run by this Python; `user` is its NATS user, if any; `more` goes to its
        environment."""
        port = port or nats_server.free_port(0, name, "nothing")
        environment = {"CADRE_PORT": str(port), "PYTHONUNBUFFERED": "1", **more}
        key = self.users.key(user) if self.users is not None and user else None
        if key is not None:
            environment["CADRE_NATS_CREDENTIALS"] = key.path
        service = self._service(
            name,
            [sys.executable, "-m", module, *argv],
            environment,
            partial(lack_of, port),
            partial(is_alive, port),
        )
        return replace(service, module=module, descriptors=key.descriptors if key is not None else ())

    def _service(
        self,
        name: str,
        argv: Sequence[str],
        environment: dict[str, str],
        ready: Callable[[], Awaitable[str | None]],
        alive: Callable[[], Awaitable[bool]],
    ) -> ProcessSpec:
        log = local_stack.logs_folder(self.data) / f"{name}.log"
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        shared = {
            "CADRE_NATS_URL": self.nats,
            "CADRE_GATEWAY_URL": self.gateway,
            "CADRE_HOST": "127.0.0.1",
        }
        if self.is_scripted:
            # The key is not a secret: an OpenAI client refuses to do without one.
            shared |= {
                "CADRE_MODEL_URL": self.model,
                "CADRE_MODEL": local_stack.SCRIPTED_NAME,
                "CADRE_MODEL_KEY": "scripted",
            }
        return ProcessSpec(name, argv, child_environment(**shared, **environment), ready, log, alive=alive)


def advice(stack: Stack) -> list[str]:
    """Return what a user of this stack should know about its disk and its model, a line each."""
    lines = []
    if stack.sync != SYNC_ALWAYS:
        interval = stack.sync
        lines.append(f"CADRE_NATS_SYNC={interval}: a power cut may take what was acknowledged in the last {interval}.")
    if stack.is_scripted:
        lines.append(SCRIPTED_BANNER)
    elif not stack.model:
        lines.append(
            "No model is set: agents whose files name no model.url and model.name need CADRE_MODEL_URL,"
            " CADRE_MODEL_KEY and CADRE_MODEL."
        )
    elif not read_secret("CADRE_MODEL_KEY"):
        lines.append(f"CADRE_MODEL_KEY is not set; {stack.model} may refuse to answer without a key.")
    return lines


def files_of_program(file: Path) -> list[Path]:
    """Return the file of an agent that is a program, and the files of the program."""
    main = program_of(read_agent(file)).main
    source, _, name = main.rpartition(":")
    entry = f"{file.parent / source}:{name}" if source.endswith(".py") else main
    return [*files_of_agent(file), *source_files(entry, file.parent)]


def source_files(entry: str, folder: Path) -> list[Path]:
    """Return the files of `path/to/file.py` or `package.module`, perhaps with `:NAME` behind it, and all of those in a
    folder of skills; a module's name is looked for in the folder. Installed packages are left out, and so is what can
    only be found by running the code."""
    source = entry.partition(":")[0]
    if "/" in source and Path(source).is_dir():
        return sorted(file.resolve() for file in Path(source).rglob("*") if file.is_file())
    if source.endswith(".py") or "/" in source:
        path = Path(source).resolve()
        root, found = path.parent, [path]
    else:
        root, found = folder.resolve(), list(_files_of(folder.resolve(), source))
    for file in found:  # it grows
        found += [one for one in _imported_by(file, root) if one not in found]
    return list(dict.fromkeys(found))


def _imported_by(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            for alias in node.names:
                yield from _files_of(start, f"{node.module}.{alias.name}" if node.module else alias.name)


def _files_of(root: Path, module: str) -> Iterator[Path]:
    """Yield the files that importing this module from the root would run, its packages among them."""
    place = root
    for part in module.split("."):
        place /= part
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file
