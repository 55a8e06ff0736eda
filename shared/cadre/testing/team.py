"""A team in one process, for tests and notebooks: production's decisions and deliveries on streams in memory."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from cadre.delivery.workspace_store import WorkspaceStore
from cadre.errors import SetupError
from cadre.journal import events as ev
from cadre.ports import Model
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo, Task
from cadre.protocol.nats_users import GATEWAY_SENDER
from cadre.protocol.topology import task_id
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.model import with_calls
from cadre.testing.in_memory_deployment import MAX_FILE_BYTES, InMemoryDeployment, ModelAsked
from cadre.testing.in_memory_process import InMemoryProcess
from cadre.testing.in_memory_streams import GivenUp
from cadre.testing.models import AnyModel, ScriptModel, TestModel, model_of
from cadre.testing.team_run import TeamRun
from cadre.testing.team_world import TeamWorld
from cadre.tools.loading import AnyTool, load_tools


class TeamCall(NamedTuple):
    """A call of a tool, as the journals of a team tell of it."""

    agent: str
    run: str
    id: str
    tool: str
    arguments: dict[str, Any]
    output: Any
    """None while there is none."""
    error: ErrorInfo | None
    invocations: int
    """How often the tool was begun for this call: more than once only where a process was killed."""


class Team(TeamWorld):
    """Agents and tools in this process; use as an async context manager.

    `agents` are specs or paths of agent files; `tools` decorated functions, or modules as `cadre tools` takes them.
    `model` is asked by every agent: an object with `complete`, a list of replies, a function from a request to its
    reply, or a mapping of these by the agents' names; without it each tool is called once (`TestModel`).

    Decisions, deliveries and their guarantees are production's; no server, network or disk is needed. What is not
    here: the memory service, HTTP, traces. Whoever waits for a run need not wait for time: see `TeamRun.result`.
    `blobs` are contents by their references that are there from the beginning, and where new ones go; `prompts`, by
    agents' names, are in the place of those that their specs name.
    Raises SetupError, as services do, for what cannot work.
    """

    def __init__(
        self,
        agents: Iterable[AgentSpec | Path | str],
        tools: Iterable[AnyTool | Path | str] = (),
        model: AnyModel | Mapping[str, AnyModel] | None = None,
        *,
        blobs: dict[str, bytes] | None = None,
        prompts: Mapping[str, Prompts] | None = None,
    ) -> None:
        specs = [_native(one if isinstance(one, AgentSpec) else read_agent(Path(one))) for one in agents]
        given = [
            tool for one in tools for tool in (load_tools(str(one)) if isinstance(one, str | Path) else [one])
        ]
        change = asyncio.Event()
        deployment = InMemoryDeployment(
            {spec.name: spec for spec in specs},
            {tool.name: tool for tool in given},
            _models(specs, model),
            change.set,
        )
        super().__init__(deployment, change)
        if blobs is not None:
            self._deployment.blobs = blobs
        if prompts is not None:
            self._deployment.prompts = prompts
        self._outside = InMemoryProcess("test")
        self._ports = self._deployment.ports(self._outside)
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._deployment.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._deployment.close()

    # --- runs

    async def run(self, agent: str, task: str, **options: Any) -> Any:
        """Starts a run and returns its answer; `options` and errors are those of `start` and `TeamRun.result`."""
        run = await self.start(agent, task, **options)
        return await run.result()

    async def start(
        self,
        agent: str,
        task: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        **fields: Any,
    ) -> TeamRun:
        """Starts a run: `inputs` are values that the agent reads by name, `files` the first ones of its workspace.

        Further fields are those of `cadre.protocol.Task`: `budget`, `max_steps`, `deadline` (Unix seconds, counted
        from `now()`), `continues` (the id of the run whose conversation it goes on with) …
        Raises SetupError for an agent that the team does not have.
        """
        if agent not in self._deployment.agents:
            known = ", ".join(self._deployment.agents)
            raise SetupError(f"the team has no agent {agent!r}; it has {known}")
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
                inputs=dict(inputs or {}),
                has_files=bool(files),
                **fields,
            ),
            agent,
        )
        return TeamRun(self, id_, agent)

    # --- what there is to assert on

    @property
    def calls(self) -> list[TeamCall]:
        """All calls of tools so far, in the order in which the runs' journals hold them, run by run."""
        return [call for run in self.run_ids() for call in self._calls_of(run)]

    @property
    def requests(self) -> list[ModelAsked]:
        """What the models were asked so far, in the order of asking."""
        return self._deployment.requests

    @property
    def dead_letters(self) -> list[GivenUp]:
        """Messages that were given up."""
        return self._deployment.stream.dead

    def leftovers(self) -> list[str]:
        """What a test has most likely overlooked: messages that were given up, replies that nobody asked for."""
        dead = [f"dead letter {letter.message.subject}: {letter.reason}" for letter in self.dead_letters]
        scripts = {
            id(model): model for model in self._deployment.models.values() if isinstance(model, ScriptModel)
        }
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
        """Kills the process that stores the record of this number (from 1, counted over all of them), right behind
        it; with `process`, only if it is that one. Another one takes its place."""
        self._deployment.kill_at = _at(stores, process)

    def crash_before(self, stores: int, process: str = "") -> None:
        """The same right before it: what the process did for that record is lost with it."""
        self._deployment.kill_before = _at(stores, process)

    def kill(self, process: str) -> None:
        """Kills the process of an agent (by its name) or of the tools (`tools`) where it stands.

        Raises SetupError when there is none of the name.
        """
        self._deployment.kill(self._deployment.process(process))

    def _calls_of(self, run: str) -> list[TeamCall]:
        entries = self.journal(run)
        answers = {
            event.call: event for e in entries for event in e.events if isinstance(event, ev.ToolAnswered)
        }
        found = []
        for entry in entries:
            for event in entry.events:
                if isinstance(event, ev.ToolCalled):
                    answered = answers.get(event.call)
                    output, error = (
                        (answered.output, answered.error) if answered is not None else (None, None)
                    )
                    begun = self._deployment.invocations[event.call]
                    found.append(
                        TeamCall(
                            entry.agent, run, event.call, event.tool, event.arguments, output, error, begun
                        )
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


def _models(specs: Iterable[AgentSpec], given: AnyModel | Mapping[str, AnyModel] | None) -> dict[str, Model]:
    if isinstance(given, Mapping):
        missing = [spec.name for spec in specs if spec.name not in given and facts_of(spec).asks_model]
        if missing:
            raise SetupError(f"no model is given for {', '.join(missing)}: name one for each agent")
        return {spec.name: model_of(given.get(spec.name, TestModel())) for spec in specs}
    model = model_of(given) if given is not None else TestModel()
    return {spec.name: model for spec in specs}
