"""`cadre up --run`: one task on a fresh stack, its answer checked by the team's own command; or the team's program."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from cadre.cli.automation.definitions import add_file
from cadre.cli.run_view.screen import screen
from cadre.cli.runs.launch import print_outcome
from cadre.cli.runs.watch import watch
from cadre.cli.terminal.answer import as_text, print_status
from cadre.cli.terminal.gateway import Gateway
from cadre.deploy.team_file import Demo, TeamSpec
from cadre.errors import ExitCode
from cadre.local.processes import Stack, advice
from cadre.settings import child_environment

_CHECK_SECONDS = 60.0


async def run_demo(stack: Stack, team: TeamSpec, timeout: float) -> int:
    """Starts the stack, runs the demo task, prints the answer; returns the exit code that says whether it passed.

    Raises CommandFailed: TIMEOUT, or what kept the stack from starting.
    """
    assert team.demo is not None
    await start(stack)
    if team.demo.program is not None:
        return await stack.alive_during(_program(team.demo.program, team.folder, stack.gateway, timeout))
    click.echo(f"cadre: {team.demo.agent}: {team.demo.task.strip()}", err=True)
    result = await stack.alive_during(_ask(stack.gateway, team.demo, timeout))
    code = print_outcome(result, "text")
    if code == ExitCode.OK and team.demo.check is not None:
        return await _check(team.demo.check, team.folder, stack.data, as_text(result.get("output")))
    return code


async def start(stack: Stack) -> None:
    """Starts the stack and gives it the team's automations; says before and after what its user should know.

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
    """Gives the gateway a team's files; returns the names of what is in them."""
    with Gateway(url) as gateway:
        return [made["name"] for file in files for made in add_file(gateway, file)]


async def _ask(gateway: str, task: Demo, timeout: float) -> dict[str, Any]:
    from cadre.client.client import AsyncClient  # the client's weight is not the help's

    async with AsyncClient(gateway) as client:
        run = await client.start(task.agent, task.task)
        return await watch(client, run.id, screen(), timeout, ctrl_c="is the caller's")


async def _check(command: str, folder: Path, data: Path, answer: str) -> int:
    """Runs the check in the team's folder, its output on stderr; returns its exit code."""
    file = data / "answer.txt"
    file.write_text(answer + "\n")
    words = [*_words(command), str(file)]
    return await _finished("demo.check", words, _CHECK_SECONDS, cwd=folder, stdout=sys.stderr)


async def _program(command: str, folder: Path, gateway: str, timeout: float) -> int:
    """Runs the team's own program, which talks to the gateway as any other does."""
    environment = child_environment(CADRE_GATEWAY_URL=gateway)
    return await _finished("demo.program", _words(command), timeout, cwd=folder, env=environment)


def _words(command: str) -> list[str]:
    """Splits a command line; a Python program in it is run by the Python that runs this."""
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
