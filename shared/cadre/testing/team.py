"""A team in one process, for tests and notebooks: production's decisions and deliveries on streams in memory; also
with a process killed behind each record in turn."""

import asyncio
import itertools
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack

import msgspec

from cadre.adapters.tool_entries import load_entry
from cadre.authoring import AgentDefinition, everybody, spec_of, tool_of
from cadre.client.errors import Conflict, InvalidRequest, NotFound
from cadre.client.run_options import StartOptions, start_body
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.deploy.team_file import read_team
from cadre.engine.model_request import ModelRequest
from cadre.errors import SetupError
from cadre.journal import events as ev
from cadre.journal.events import RequestedCall
from cadre.options import explained
from cadre.ports import Model, ModelReply, OnText
from cadre.prompting.prompts import Prompts
from cadre.protocol.files import decode_data_url
from cadre.protocol.messages import CallerTerms, ErrorInfo, Origin, Task
from cadre.protocol.nats_users import GATEWAY_SENDER
from cadre.protocol.topology import task_id
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.answer_schema import misfits
from cadre.spec.durations import checked_seconds
from cadre.spec.kinds import facts_of
from cadre.spec.model import with_calls
from cadre.testing.in_memory_deployment import MAX_FILE_BYTES, InMemoryDeployment, ModelAsked, TeamWorld
from cadre.testing.in_memory_process import InMemoryProcess
from cadre.testing.in_memory_streams import GivenUp
from cadre.testing.models import AnyModel, ScriptedModel, TestModel, model_of
from cadre.testing.team_run import ALL, TeamRun
from cadre.tools.loading import FILE_MODULE, AnyTool, load_tools, tools_of

if TYPE_CHECKING:
    from cadre.testing.blocking_team import BlockingTeam


class TeamCall(NamedTuple):
    """A call of a tool, as the journals of a team tell of it."""

    agent: str
    run: str
    id: str
    tool: str
    arguments: dict[str, Any]
    output: Any
    """None until there is an output."""
    error: ErrorInfo | None
    invocations: int
    """The number of times that the tool was begun for this call: more than once only where a process was killed."""


HINTS = {
    "agents": "the names of Team([…]) are those of its agents",
    "client": "with Team(…) as team: team.start(agent, task)",
    "advance": "team.skip(seconds)",
    "assert_called": "team.calls has each call",
    "auto_approve": "write approve='all'",
    "freeze_time": "the team's time stands still but for team.skip(seconds) and waits of runs",
    "messages": "team.requests",
    "run_sync": "with Team(…) as team: team.run(agent, task)",
}
"""Attributes of other libraries' test doubles, each with what does the same here."""


@explained(HINTS)
class Team(TeamWorld):
    """Agents and tools in this process, for tests: an async context manager, or a plain one whose methods block.

    Decisions and deliveries are those of production, without server, network, disk or model endpoint. The memory
    service, HTTP and traces are left out. Waiting for a run takes no time (`TeamRun.wait`).

    Args:
        agents: Agents that Python defines, with all agents below them, or paths of agent files.
        tools: Functions, modules, or paths and names of modules as `cadre tools` takes them. A path makes a second
            module, and warns.
        model: Answers every agent: an object with `complete`, a list of replies, a function from a request to its
            reply, or a mapping of these by the agents' names. By default an agent's test double, else each tool is
            called once (`TestModel`).
        approve: `"all"` approves every call that waits for a person.
        blobs: Contents by their references, to begin with and for new ones.
        prompts: Prompts by the agents' names, in place of those that their specs name.
        real_time: True: waits take their time.

    Raises:
        SetupError: Something cannot work, as at the start of a service.

    Examples:
        >>> from cadre import Agent
        >>> from cadre.testing import answer
        >>> writer = Agent("writer", instructions="Write reports.")
        >>> with Team([writer], model=[answer("six")]) as team:
        ...     team.run("writer", "How many words has 'to be or not to be'?")
        'six'
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        agents: Iterable[AgentDefinition | AgentSpec | Path | str],
        tools: Iterable[Callable[..., Any] | AnyTool | ModuleType | Path | str] = (),
        model: AnyModel | Mapping[str, AnyModel] | None = None,
        *,
        approve: Literal["all"] | None = None,
        blobs: dict[str, bytes] | None = None,
        prompts: Mapping[str, Prompts] | None = None,
        real_time: bool = False,
    ) -> None:
        defined, specs = _agents(agents)
        self._paths = [path for one in _listed("tools", tools) if (path := _path_of(one)) is not None]
        brought = [tool for agent in defined for tool in agent.tools]
        given = _by_name([*brought, *(tool for one in tools for tool in _tools(one))])
        if approve not in (None, ALL):
            raise SetupError(f"approve={approve!r}: write 'all', or leave it out")
        change = asyncio.Event()
        doubles = {agent.name: agent.model for agent in defined if agent.model is not None}
        deployment = InMemoryDeployment(
            {spec.name: spec for spec in specs}, given, _models(specs, model, doubles), change.set
        )
        super().__init__(deployment, change, real_time=real_time, approves=approve is not None)
        if blobs is not None:
            self._deployment.blobs = blobs
        if prompts is not None:
            self._deployment.prompts = prompts
        self._outside = InMemoryProcess("test")
        self._ports = self._deployment.ports(self._outside)
        self._numbers = itertools.count(1)
        self._output_types = {agent.name: agent.output_type for agent in defined}
        self._sessions: dict[tuple[str, str, str | None], TeamRun] = {}
        """The last run of each session, by agent, session and user."""
        self._blocking: BlockingTeam | None = None
        self._is_open = False
        self._warn_of_second_modules()

    @classmethod
    def from_file(
        cls, path: Path | str, model: AnyModel | Mapping[str, AnyModel] | None = None, **options: Any
    ) -> Self:
        """Make the team of a team file, or of the folder that holds it; further options are those of `Team`.

        Raises SpecError with the file, the key and what is expected there.
        """
        found = read_team(Path(path))
        tools = [tool for entry in found.tools for tool in load_entry(entry)]
        return cls([*found.agents.values()], tools, model, **options)

    async def __aenter__(self) -> Self:
        await self._deployment.start()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._deployment.close()
        self._warn_of_second_modules()

    def __enter__(self) -> "BlockingTeam":
        from cadre.testing.blocking_team import BlockingTeam

        self._blocking = BlockingTeam(self, asyncio.Runner())
        return self._blocking.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking.close()

    # --- runs

    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Start a run and return its answer; options and errors are those of `start` and `TeamRun.result`."""
        starting = self.start(agent, task, output_type=output_type, **options)

        async def run() -> Any:
            return await (await starting).result(timeout=timeout)

        return run()

    def start(
        self, agent: str, task: str, *, output_type: Any = None, **options: Unpack[StartOptions]
    ) -> Coroutine[Any, Any, TeamRun]:
        """Start a run as `AsyncClient.start` does, with the same options; `deadline` is seconds of the team's time from
        now.

        Raises NotFound for an agent that the team does not have, Conflict for a session whose last run goes on,
        InvalidRequest for inputs that the agent does not take, OSError for a file that cannot be read, RuntimeError for
        a team that is not open.
        """
        if not self._is_open:
            raise RuntimeError("open the team first: `with Team(…) as team:`, or `async with` where a loop runs")
        return self._start(agent, task, output_type, options)

    async def _start(self, agent: str, task: str, output_type: Any, options: StartOptions) -> TeamRun:
        body = start_body(agent, task, options, output_type)
        if agent not in self._deployment.agents:
            known = ", ".join(self._deployment.agents)
            raise NotFound(f"the team has no agent {agent!r}; it has {known}", 404, "unknown-agent")
        self._check(agent, body)
        session, user = body.get("session"), body.get("user")
        last = self._sessions.get((agent, session, user)) if session else None
        if last is not None and not last.is_over and not body.get("reset"):
            raise Conflict(
                f"session {session!r}: its last run {last.id} is still going: wait for it or cancel it, or start"
                " afresh (reset=True)",
                409,
                "session-busy",
            )
        continues = last if not body.get("reset") else None
        kept = {} if continues is None else continues.files
        after = body.get("deadline")
        if output_type is None:
            output_type = self._output_types.get(agent)
        run = await self.begin(
            agent,
            task,
            files=kept | {path: _content(url) for path, url in body.get("files", {}).items()},
            inputs=body.get("inputs", {}),
            images=body.get("images", []),
            max_steps=body.get("max_steps"),
            deadline=self.now() + checked_seconds("deadline", after, 0.001) if after is not None else None,
            budget=Budget(**body["budget"]) if body.get("budget") else None,
            session=session,
            continues=continues.id if continues is not None else None,
            origin=_origin(agent, session, user),
            labels=body.get("labels", {}),
            terms=CallerTerms(output_schema=body.get("output_schema")),
            output_type=output_type,
        )
        if session:
            self._sessions[agent, session, user] = run
        return run

    def attach(self, run: str) -> TeamRun:
        """A run of the team, such as one of a member, by an id of `run_ids`."""
        entries = self.journal(run)
        return TeamRun(self, run, entries[0].agent if entries else "")

    async def begin(
        self,
        agent: str,
        task: str,
        *,
        files: Mapping[str, bytes] | None = None,
        output_type: Any = None,
        **fields: Any,
    ) -> TeamRun:
        """Start a run by the fields of `cadre.protocol.Task`, with these files in its workspace."""
        id_ = f"run{next(self._numbers)}"
        for path, content in (files or {}).items():
            await self._workspace(id_).write(path, content)
        await self.send(
            Task(
                id=task_id(id_),
                tree=id_,
                run=id_,
                at=self.now(),
                agent=agent,
                task=task,
                has_files=bool(files),
                **fields,
            ),
            agent,
        )
        return TeamRun(self, id_, agent, output_type)

    def _check(self, agent: str, body: Mapping[str, Any]) -> None:
        """Raise InvalidRequest, as a gateway does, for a task that the agent would not take."""
        schema = self._deployment.agents[agent].input_schema
        if schema is not None and (wrong := misfits(schema, body.get("inputs", {}), "inputs")):
            raise InvalidRequest(f"agent {agent} does not take this: {'; '.join(wrong)}", 422, "invalid-request")
        if body.get("reset") and not body.get("session"):
            raise InvalidRequest("reset=True starts a session afresh: name it by session=", 422, "invalid-request")

    def _warn_of_second_modules(self) -> None:
        """Warn of tools' files that are loaded under another name as well."""
        for path in self._paths:
            for name, module in [*sys.modules.items()]:
                if name.startswith(FILE_MODULE) or getattr(module, "__file__", None) is None:
                    continue
                if Path(str(module.__file__)).resolve() == path:
                    self._paths.remove(path)
                    warnings.warn(
                        f"the tools of {path} are loaded a second time, next to module {name}: what a test patches in"
                        f" {name} they do not see; give the module itself: Team(…, [{name}])",
                        stacklevel=4,
                    )
                    break

    # --- what there is to assert on

    @property
    def calls(self) -> list[TeamCall]:
        """All calls of tools so far, in the order in which the runs' journals hold them, run by run."""
        return [call for run in self.run_ids() for call in self._calls_of(run)]

    @property
    def requests(self) -> list[ModelAsked]:
        """Return what the models were asked so far, in the order of asking."""
        return self._deployment.requests

    @property
    def dead_letters(self) -> list[GivenUp]:
        """Messages that were given up."""
        return self._deployment.stream.dead

    def leftovers(self) -> list[str]:
        """Return what a test has most likely overlooked: messages that were given up, replies that were not used."""
        dead = [f"dead letter {letter.message.subject}: {letter.reason}" for letter in self.dead_letters]
        scripts = {id(model): model for model in self._deployment.models.values() if isinstance(model, ScriptedModel)}
        unsaid = [script.left for script in scripts.values() if script.left]
        return [*dead, *(f"{count} replies of a script were never asked for" for count in unsaid)]

    # --- time and death

    @property
    def stores(self) -> int:
        """Records that the team's processes have stored so far: each is a place to die behind."""
        return self._deployment.stores

    @property
    def kills(self) -> list[str]:
        """Names of the processes that were killed, in order."""
        return self._deployment.kills

    def crash_after(self, stores: int, process: str = "") -> None:
        """Kill the process that stores the record of this number (from 1, counted over all of them), right behind
        it; with `process`, only if it is that one. Another one takes its place."""
        self._deployment.kill_at = _at(stores, process)

    def crash_before(self, stores: int, process: str = "") -> None:
        """The same right before it: what the process did for that record is lost with it."""
        self._deployment.kill_before = _at(stores, process)

    def kill(self, process: str) -> None:
        """Kill the process of an agent (by its name) or of the tools (`tools`) where it stands.

        Raises SetupError if no process has the name.
        """
        self._deployment.kill(self._deployment.process(process))

    def _calls_of(self, run: str) -> list[TeamCall]:
        entries = self.journal(run)
        answers = {event.call: event for e in entries for event in e.events if isinstance(event, ev.ToolAnswered)}
        found = []
        for entry in entries:
            for event in entry.events:
                if isinstance(event, ev.ToolCalled):
                    answered = answers.get(event.call)
                    output, error = (answered.output, answered.error) if answered is not None else (None, None)
                    begun = self._deployment.invocations[event.call]
                    found.append(
                        TeamCall(entry.agent, run, event.call, event.tool, event.arguments, output, error, begun)
                    )
        return found

    def _workspace(self, tree: str) -> WorkspaceStore:
        return WorkspaceStore(
            self._ports.files,
            self._ports.blobs,
            tree=tree,
            call=tree,
            by=GATEWAY_SENDER,
            most_bytes=MAX_FILE_BYTES,
        )


def _at(stores: int, process: str) -> Callable[[InMemoryProcess, int], bool]:
    return lambda one, number: number == stores and process in ("", one.name)


def _native(spec: AgentSpec) -> AgentSpec:
    """The agent with native calls where `model.calls: auto` would ask what is known of its endpoint."""
    return msgspec.structs.replace(spec, model=with_calls(spec.model, lambda _: "native"))


def _agents(given: Iterable[Any]) -> tuple[list[AgentDefinition], list[AgentSpec]]:
    """Return the agents that Python defines, those below them too, and the specs of all agents."""
    defined: list[AgentDefinition] = []
    specs: list[AgentSpec] = []
    for one in _listed("agents", given):
        if isinstance(one, AgentDefinition):
            defined.append(one)
        elif isinstance(one, AgentSpec):
            specs.append(spec_of(one))
        elif isinstance(one, Path | str):
            specs.append(read_agent(Path(one)))
        else:
            raise SetupError(f"Team takes agents and files of agents, not {type(one).__name__} {one!r}")
    every = everybody(defined)
    specs += [spec_of(one) for one in every.values()]
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SetupError(f"two agents of the team are named {twice[0]}: rename one")
    return [*every.values()], [_native(spec) for spec in specs]


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, str | Path | AgentDefinition | AgentSpec | Mapping) or not isinstance(given, Iterable):
        hint = "; Team.from_file reads a team file" if what == "agents" and isinstance(given, str | Path) else ""
        raise SetupError(f"write the {what} of Team as a list, not {given!r}{hint}")
    return [*given]


def _tools(given: Any) -> list[AnyTool]:
    """Return the tools of an entry. Raises SetupError for anything else."""
    if isinstance(given, str | Path):
        return load_tools(str(given))
    if isinstance(given, ModuleType):
        if found := tools_of(given):
            return found
        raise SetupError(f"module {given.__name__} has no tools: write @tool above a function")
    if callable(given):
        return [tool_of(given)]
    hint = "; a model's replies are Team(…, model=[…])" if isinstance(given, RequestedCall) else ""
    raise SetupError(f"{given!r} is no tool: give a function, a module with tools, or the path of one{hint}")


def _path_of(given: Any) -> Path | None:
    """Return the file of tools that are given by its path; None for anything else."""
    if isinstance(given, str | Path) and (file := str(given).partition(":")[0]).endswith(".py"):
        return Path(file).resolve()
    return None


def _by_name(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    found: dict[str, AnyTool] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise SetupError(f"two tools of the team are named {tool.name}: rename one by @tool(name=…)")
    return found


def _models(
    specs: Sequence[AgentSpec],
    given: AnyModel | Mapping[str, AnyModel] | None,
    doubles: Mapping[str, AnyModel],
) -> dict[str, Model]:
    if isinstance(given, Mapping):
        names = [spec.name for spec in specs]
        if unknown := sorted(set(given) - {*names}):
            raise SetupError(f"a model is given for {unknown[0]}, which is no agent of the team: {', '.join(names)}")
        asking = {spec.name for spec in specs if facts_of(spec).asks_model}
        own = {name: model_of(model) for name, model in {**doubles, **given}.items()}
        return {name: own.get(name, _Unmodelled(name) if name in asking else TestModel()) for name in names}
    if given is not None:
        return dict.fromkeys((spec.name for spec in specs), model_of(given))
    plain = TestModel()
    return {spec.name: model_of(doubles[spec.name]) if spec.name in doubles else plain for spec in specs}


class _Unmodelled:
    """ports.Model of an agent that no model was given for: a test need not say what it never asks."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        raise AssertionError(f"no model is given for {self._agent}, and it was asked: name one by the agent's name")


def _origin(agent: str, session: str | None, user: str | None) -> Origin | None:
    if session:
        return Origin(user=user, session=session, root=agent)
    return Origin(user=user) if user else None


def _content(url: str) -> bytes:
    found = decode_data_url(url)
    assert found is not None  # the client has made it
    return found.data


class CrashOutcome(NamedTuple):
    """The outcome of a scenario in which a process was killed."""

    after: int
    """The number of the record behind which, or before which, it died; 0 for the play without a death."""
    killed: str
    """The process, by its name."""
    value: Any
    """The value that the scenario returned."""
    team: Team
    """The team at its end, to be asserted on."""


async def crash_points(
    make: Callable[[], Team], play: Callable[[Team], Awaitable[Any]], *, before: bool = False
) -> AsyncIterator[CrashOutcome]:
    """Yield the outcome of `play` on a new team undisturbed, then one for each record that a process of it stored.

    async for outcome in crash_points(make_team, lambda team: team.run("clerk", "Pay the bill.")):
        assert outcome.value == "paid"
        assert len(paid) == 1

    With `before`, a process dies before each of the records instead of behind it.
    """
    async with make() as team:
        value = await play(team)
        records = team.stores
        yield CrashOutcome(0, "", value, team)
    for after in range(1, records + 1):
        async with make() as team:
            (team.crash_before if before else team.crash_after)(after)
            value = await play(team)
            yield CrashOutcome(after, ", ".join(team.kills), value, team)
