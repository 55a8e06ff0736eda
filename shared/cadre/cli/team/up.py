"""`cadre up`: NATS and all services of a team on this machine, until Ctrl-C; `cadre check`: what is wrong with its
files; `cadre graph`: what an agent consists of."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cadre.adapters import local_stack
from cadre.cli.automation.definitions import add_file
from cadre.cli.run_view.screen import screen
from cadre.cli.runs.launch import print_outcome, watch
from cadre.cli.team.logs import LogPrinter
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import Duration, output_option, print_json
from cadre.cli.terminal.output import as_text, discard_output, print_status, printable
from cadre.deploy.team_file import Demo, TeamSpec, read_team
from cadre.engine.kind import deciding_kind
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.local.nats_server import StackUsers, choose_port
from cadre.local.processes import START_SECONDS, Stack, advice
from cadre.local.python_team import is_module, write_team
from cadre.local.reload import Reloader
from cadre.local.shipped_teams import DEMO, shipped_team
from cadre.local.team_check import FileProblem, check_files, team_problems
from cadre.settings import child_environment
from cadre.spec.agent_file import read_agent
from cadre.spec.names import TEAM_FILE

GATEWAY_PORT = 8080

_LAST_SECONDS = 5.0
"""The time after the second interrupt at which this process ends in any case."""


@click.command("up")
@click.argument("team", required=False, type=click.Path(path_type=Path))
@click.option("--demo", "shipped", is_flag=True, help="The team that Cadre ships.")
@click.option("--run", "runs_demo", is_flag=True, help="Run the team's demo task in a fresh folder, check it, stop.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the journals and logs.  [default: .cadre]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the gateway, 0 for a free one.  [default: 8080]")
@click.option(
    "--nats-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of NATS.  [default: the folder's last one, else a free one]",
)
@click.option("--secure", is_flag=True, help="Give every service its own NATS user, with the rights that it needs.")
@click.option("--reload", "reloads", is_flag=True, help="Restart the services whose files change.")
@click.option(
    "--wait",
    "start_seconds",
    type=Duration(1),
    default=f"{START_SECONDS:g}s",
    show_default=True,
    help="Time that its services may take to be ready.",
)
@click.option("--timeout", type=Duration(1), default="5m", show_default=True, help="Time for --run.")
def command(team: Path | None, shipped: bool, runs_demo: bool, timeout: float, reloads: bool, **places: Any) -> int:
    """Start NATS and the services of TEAM: a folder with a team.yaml, such a file, or a Python file with agents.

    Without TEAM, the team.yaml of this folder; without one, NATS and the gateway alone. Stops on Ctrl-C.
    """
    module = team if team is not None and is_module(team) else None
    found = _of_module(module, places["data"]) if module is not None and not shipped else _team(team, shipped)
    if reloads and (found is None or runs_demo or places["secure"]):
        raise click.UsageError("--reload needs a team, and goes neither with --run nor with --secure")
    if found is not None:
        _check(found)
    if not runs_demo:
        return _serve(found, reloads, module, **places)
    if found is None or found.demo is None:
        raise click.UsageError(f"--run needs a team whose {TEAM_FILE} has a demo: {{agent, task}}")
    return _demonstrate(found, timeout, **places)


def _check(team: TeamSpec) -> None:
    """Print the expectations of the team's agents that do not hold. Raises CommandFailed when the team cannot work that
    way; a missing service may be started separately."""
    problems = list(team_problems(team))
    print_problems(problems, err=True)
    if errors := sum(problem.level == "error" for problem in problems):
        raise CommandFailed(
            f"{team.file}: {errors} of these are errors, and nothing was started; `cadre check` lists them again",
            ExitCode.USAGE,
        )


def _serve(
    team: TeamSpec | None,
    reloads: bool,
    module: Path | None,
    data: Path | None,
    port: int | None,
    nats_port: int,
    **choices: Any,
) -> int:
    folder = data or local_stack.own_data()
    with local_stack.locked(folder):
        ports = (GATEWAY_PORT if port is None else port, nats_port)
        stack = _stack(folder, team, ports, LogPrinter(), **choices)
        return asyncio.run(_supervised(stack, _until_stopped(stack, reloads, module), ExitCode.OK))


def _demonstrate(
    team: TeamSpec, timeout: float, *, data: Path | None, port: int | None, nats_port: int, **choices: Any
) -> int:
    """Run the demo on a separate data folder, which is kept when the demo fails."""
    folder = data or Path(tempfile.mkdtemp(prefix="cadre-"))
    with local_stack.locked(folder):
        stack = _stack(folder, team, (port or 0, nats_port), lambda name, line: None, **choices)
        code = ExitCode.FAILED
        try:
            code = ExitCode(asyncio.run(_supervised(stack, run_demo(stack, team, timeout), ExitCode.DETACHED)))
        finally:
            if code is not ExitCode.OK:
                click.echo(f"cadre: the services' logs are in {local_stack.logs_folder(folder)}", err=True)
    if code is ExitCode.OK and data is None:
        shutil.rmtree(folder)
    return code


def _stack(
    data: Path,
    team: TeamSpec | None,
    ports: tuple[int, int],
    on_line: Any,
    *,
    secure: bool,
    start_seconds: float,
) -> Stack:
    known = local_stack.read_ports(data)
    gateway_port = choose_port(ports[0], known.gateway, "the gateway", "--port")
    nats_port = choose_port(ports[1], known.nats, "NATS", "--nats-port")
    model_port = choose_port(0, known.model, "the scripted model", "CADRE_MODEL_URL")
    found = local_stack.Ports(gateway=gateway_port, nats=nats_port, model=model_port)
    local_stack.write_ports(data, found)
    users = StackUsers(data.resolve()) if secure else None
    return Stack(data.resolve(), team, found, on_line, users, start_seconds)


def _of_module(module: Path, data: Path | None) -> TeamSpec:
    """Return the team of a Python file, whose files are written into the data folder."""
    return read_team(write_team(module, (data or local_stack.own_data()) / "python" / module.stem))


def _team(given: Path | None, shipped: bool) -> TeamSpec | None:
    if given is not None and shipped:
        raise click.UsageError("give a team or --demo, not both")
    if shipped:
        return read_team(shipped_team(DEMO))
    if given is not None:
        return read_team(given)
    return read_team(Path(TEAM_FILE)) if Path(TEAM_FILE).is_file() else None


async def _supervised(stack: Stack, work: Coroutine[Any, Any, int], interrupted: ExitCode) -> int:
    """Do the work until it ends or is interrupted; then stop the stack. A second interrupt kills it.

    Returns what the work returned, or `interrupted`.
    """
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupt(*_: object) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            loop.call_soon_threadsafe(task.cancel)
            loop.call_soon_threadsafe(print_status, "cadre: stopping; press Ctrl-C again to kill")
        else:
            stack.kill()
            # Even if this process hangs; on Linux its children die with it.
            last = threading.Timer(_LAST_SECONDS, os._exit, [ExitCode.DETACHED])
            last.daemon = True
            last.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not the loop's own handlers: they would wait while a write to a full pipe stands still.
        signal.signal(number, interrupt)
    code: int = interrupted
    try:
        code = await task
    except asyncio.CancelledError:
        if not interrupts:
            raise
    finally:
        await stack.stop()
    return ExitCode.DETACHED if interrupts > 1 else code


async def _until_stopped(stack: Stack, reloads: bool, module: Path | None) -> int:
    reloader = Reloader(stack, stack.team, module) if reloads and stack.team is not None else None
    await _start(stack)
    try:
        click.echo(f"gateway  {stack.gateway}\nnats     {stack.nats}")
    except OSError:
        discard_output()
    if stack.team is None:
        print_status(
            "cadre: no team; start agents in other terminals: `cadre agent FILE`"
            f" (elsewhere: CADRE_NATS_URL={stack.nats})"
        )
    else:
        print_status(f'cadre: ready; ask with: cadre run {stack.team.entry} "TASK"')
    if reloader is not None:
        await stack.alive_during(reloader.watch())
    await stack.alive_during(asyncio.Event().wait())
    return ExitCode.OK


_CHECK_SECONDS = 60.0


async def run_demo(stack: Stack, team: TeamSpec, timeout: float) -> int:
    """Start the stack, run the demo task, print the answer; returns the exit code that says whether it passed.

    Raises CommandFailed: TIMEOUT, or what kept the stack from starting.
    """
    assert team.demo is not None
    await _start(stack)
    if team.demo.program is not None:
        return await stack.alive_during(_program(team.demo.program, team.folder, stack.gateway, timeout))
    click.echo(f"cadre: {team.demo.agent}: {team.demo.task.strip()}", err=True)
    result = await stack.alive_during(_ask(stack.gateway, team.demo, timeout))
    code = print_outcome(result, "text")
    if code == ExitCode.OK and team.demo.check is not None:
        return await _check_answer(team.demo.check, team.folder, stack.data, as_text(result.get("output")))
    return code


async def _start(stack: Stack) -> None:
    """Start the stack and give it the team's automations; says before and after what its user should know.

    Raises CommandFailed.
    """
    stack.check_packages()
    for line in advice(stack):
        print_status(f"cadre: {line}")
    await stack.start()
    for line in stack.notes:
        print_status(f"cadre: {line}")
    if stack.team is not None and stack.team.automations:
        names = await asyncio.to_thread(_give_automations, stack.gateway, stack.team.automations)
        print_status(f"cadre: schedules, triggers, notices and budgets: {', '.join(names)}")


def _give_automations(url: str, files: list[Path]) -> list[str]:
    """Give the gateway a team's files; returns the names of what is in them."""
    with Gateway(url) as gateway:
        return [made["name"] for file in files for made in add_file(gateway, file)]


async def _ask(gateway: str, task: Demo, timeout: float) -> dict[str, Any]:
    from cadre.client.client import AsyncClient  # the client's weight is not the help's

    async with AsyncClient(gateway) as client:
        run = await client.start(task.agent, task.task)
        return await watch(client, run.id, screen(), timeout, ctrl_c="is the caller's")


async def _check_answer(command: str, folder: Path, data: Path, answer: str) -> int:
    """Run the check in the team's folder, its output on stderr; return its exit code."""
    file = data / "answer.txt"
    file.write_text(answer + "\n")
    words = [*_words(command), str(file)]
    return await _finished("demo.check", words, _CHECK_SECONDS, cwd=folder, stdout=sys.stderr)


async def _program(command: str, folder: Path, gateway: str, timeout: float) -> int:
    """Run the team's own program, which talks to the gateway as any other does."""
    environment = child_environment(CADRE_GATEWAY_URL=gateway)
    return await _finished("demo.program", _words(command), timeout, cwd=folder, env=environment)


def _words(command: str) -> list[str]:
    """Split a command line; a Python program in it is run by the Python that runs this."""
    words = shlex.split(command)
    if words[0].endswith(".py"):
        return [sys.executable, *words]
    return [sys.executable, *words[1:]] if words[0] in ("python", "python3") else words


async def _finished(what: str, words: list[str], seconds: float, **options: Any) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*words, **options)
    except OSError as error:
        click.echo(f"cadre: {what}: {words[0]} cannot be started: {error.strerror}", err=True)
        return ExitCode.FAILED
    try:
        async with asyncio.timeout(seconds):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        click.echo(f"cadre: {what} did not end within {seconds:g} s", err=True)
        return ExitCode.FAILED
    click.echo(f"cadre: {what} {'passed' if code == 0 else f'failed with exit code {code}'}", err=True)
    return ExitCode.OK if code == 0 else ExitCode.FAILED


_COLOURS = {"error": "red", "missing": "red", "warning": "yellow"}


@click.command("check")
@click.argument("team", type=click.Path(path_type=Path), default=".")
@output_option("text")
def check(team: Path, output: str) -> int:
    """Check TEAM: a folder with a team.yaml, such a file, or the file of one agent. Nothing is started.

    Exit code 1 for errors and for what is missing; warnings alone are no error.
    """
    found = check_files(team)
    if output == "json":
        print_json(msgspec.to_builtins(found))
    else:
        print_problems(found)
        counts = Counter(problem.level for problem in found)
        click.echo(", ".join(f"{level}: {count}" for level, count in counts.items()) or f"{team}: all is well")
    return ExitCode.FAILED if any(problem.level != "warning" for problem in found) else ExitCode.OK


def print_problems(problems: Sequence[FileProblem], *, err: bool = False) -> None:
    """Print each problem on a line: its level, file, place, and text."""
    for problem in problems:
        file = Path(problem.file)
        shown = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else problem.file
        where = f"{shown}: {problem.path}: " if problem.path else f"{shown}: "
        level = click.style(f"{problem.level:<7}", fg=_COLOURS[problem.level])
        click.echo(f"{level}  {printable(where + problem.text)}", err=err)


@click.command("graph")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def graph(file: Path) -> int:
    """Print what the agent in FILE consists of as a Mermaid diagram."""
    try:
        spec = read_agent(file)
    except SpecError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    for line in deciding_kind(spec).graph(spec):
        click.echo(line)
    return ExitCode.OK
