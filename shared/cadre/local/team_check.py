"""Check a team without starting it: each file, the cards of its tools, and what its agents expect of each other."""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cadre.adapters.tool_entries import load_entry
from cadre.automation.automation_file import read_automations
from cadre.automation.notice import NoticeSpec
from cadre.deploy.team_file import TeamSpec, named_files, read_team
from cadre.engine.contract import contract_problems
from cadre.errors import SetupError, SpecError
from cadre.local.python_team import is_module, write_team
from cadre.local.service_check import modules_lacking
from cadre.prompting.prompts import prompts_for
from cadre.protocol.cards import ToolCard
from cadre.protocol.code import INTERPRETER_TOOL
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import agent_body, read_agent
from cadre.spec.contract import ProblemLevel, TeamReach
from cadre.spec.kinds import facts_of
from cadre.spec.names import TEAM_FILE

_TIMEOUT_SECONDS = 60.0


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong in a file of a team."""

    level: ProblemLevel = "error"
    file: str
    path: str = ""
    """Place in the file; "" for the file as a whole."""
    text: str
    """The problem and its remedy."""


def check_files(path: Path) -> list[FileProblem]:
    """Return what is wrong with a team (its folder or file), or with one agent: within the team of its folder, where
    that names it. Nothing is started; the modules of tools are imported."""
    if is_module(path):
        return _of_module(path)
    file = (path / TEAM_FILE if path.is_dir() else path).resolve()
    named = named_files(file)[1:]
    wrong = [problem for one in named for problem in _unreadable(one)]
    if wrong:
        return wrong
    try:
        if named:
            return list(team_problems(read_team(file)))
        return _agent_problems(file)
    except SpecError as error:
        return [_from_error(error, file)]


def _of_module(module: Path) -> list[FileProblem]:
    """Return what is wrong with the team that a Python file defines; the place begins with the agent's file there."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = check_files(write_team(module, Path(folder)))
        except SpecError as error:
            return [FileProblem(file=str(module), text=error.explanation)]
        return [
            msgspec.structs.replace(one, file=str(module), path=f"{Path(one.file).stem}.{one.path}".rstrip("."))
            for one in found
        ]


def _agent_problems(file: Path) -> list[FileProblem]:
    """Of one agent: within the team of its folder, where that names it and can be read. Raises SpecError."""
    spec = read_agent(file)
    team_file = file.parent / TEAM_FILE
    if file in named_files(team_file)[1:]:
        with contextlib.suppress(SpecError):
            return [one for one in team_problems(read_team(team_file)) if one.file == str(file)]
    return [*_modules({file: spec}), *_prompts(spec, file), *_contract(spec, file, TeamReach(is_whole=False))]


def team_problems(team: TeamSpec) -> Iterator[FileProblem]:
    """Yield what does not hold between the files of a team, each of which can be read."""
    agents = {name: read_agent(file) for name, file in team.agents.items()}
    modules = read_tool_cards(team.tools)
    for index, module in enumerate(modules):
        if module.problem:
            path = f"spec.tools[{index}]"
            yield FileProblem(level="missing", file=str(team.file), path=path, text=module.problem)
    tools = {card.name: card for module in modules for card in module.cards}
    unknown = any(module.problem for module in modules)
    served = {one for spec in agents.values() for one in spec.tools if _is_served(one)} | {*MEMORY_TOOLS}
    reach = TeamReach(tools=tools, agents=agents, served=frozenset(served), is_whole=not unknown)
    yield from _modules({team.agents[name]: spec for name, spec in agents.items()})
    for name, spec in agents.items():
        yield from _prompts(spec, team.agents[name])
        yield from _contract(spec, team.agents[name], reach)
    for file in team.automations:
        for one in read_automations(file):
            if not isinstance(one, NoticeSpec) and one.agent not in agents:
                text = f"{one.name} names the agent {one.agent!r}; the team has {', '.join(agents)}"
                yield FileProblem(level="missing", file=str(file), path="spec.agent", text=text)


def _modules(agents: Mapping[Path, AgentSpec]) -> Iterator[FileProblem]:
    """Yield what their code may import and could not, in the sandbox of this machine."""
    needed = {file: facts_of(spec).modules for file, spec in agents.items()}
    if not (modules := {name for names in needed.values() for name in names}):
        return
    lacking = asyncio.run(modules_lacking(sorted({name.partition(".")[0] for name in modules})))
    for file, names in needed.items():
        for name in names:
            if name.partition(".")[0] in lacking:
                text = (
                    f"the code could not import {name} here: install it next to Cadre, or have CADRE_SANDBOX_PYTHON"
                    " name a Python that has it"
                )
                yield FileProblem(level="missing", file=str(file), path=f"spec.{agents[file].kind}.imports", text=text)


def _is_served(tool: str) -> bool:
    """Return whether a sandbox offers it; the sandbox starts when an agent names it."""
    return tool == INTERPRETER_TOOL or tool.startswith(f"{INTERPRETER_TOOL}_")


def _contract(spec: AgentSpec, file: Path, reach: TeamReach) -> Iterator[FileProblem]:
    for found in contract_problems(spec, reach):
        yield FileProblem(level=found.level, file=str(file), path=found.path, text=found.text)


def _prompts(spec: AgentSpec, file: Path) -> Iterator[FileProblem]:
    try:
        prompts_for(spec)
    except SetupError as error:
        yield FileProblem(file=str(file), path="spec.prompts", text=str(error))


def _unreadable(file: Path) -> Iterator[FileProblem]:
    try:
        read_agent(file)
    except SpecError as error:
        yield _from_error(error, file)


def _from_error(error: SpecError, file: Path) -> FileProblem:
    """Return the error of a reader, by its key in an agent's file."""
    *_, found_in = (file, *error.files)
    if str(found_in) != str(file):
        return FileProblem(file=str(file), text=f"{found_in}: {error.explanation}")
    if not error.key:
        return FileProblem(file=str(file), text=error.explanation)
    within = error.key.partition(".")[0] in agent_body().__struct_fields__
    return FileProblem(file=str(file), path=f"spec.{error.key}" if within else error.key, text=error.problem)


class ToolModule(msgspec.Struct, frozen=True):
    """The tools of one module or file, or why they are not known."""

    cards: list[ToolCard] = []
    problem: str = ""


def read_tool_cards(entries: Sequence[str]) -> list[ToolModule]:
    """Return the tools of each entry, as `load_entry` takes it. Nothing is served."""
    if not entries:
        return []
    command = [sys.executable, "-m", "cadre.local.team_check", *entries]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
        found = msgspec.json.decode(done.stdout, type=list[ToolModule])
    except subprocess.TimeoutExpired:
        problem = f"could not be imported within {_TIMEOUT_SECONDS:g} s"
    except msgspec.DecodeError:
        problem = f"could not be imported: the process ended with code {done.returncode}"
    else:
        return found
    return [ToolModule(problem=problem) for _ in entries]


def _module(entry: str) -> ToolModule:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return ToolModule([tool.card for tool in load_entry(entry)])
    except SetupError as error:
        return ToolModule(problem=str(error))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode([_module(entry) for entry in sys.argv[1:]]))
