"""Start a run, follow it on a screen, say which service it waits for, and how it ended. Ctrl-C cancels the run or
detaches from it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from cadre.cli.run_view.screen import RunTree, Screen, screen
from cadre.cli.runs.ask import Asker, should_ask
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.outcome import exit_code
from cadre.cli.terminal.output import as_text, print_text
from cadre.client.errors import ClientError
from cadre.client.transport import RUNS
from cadre.errors import CommandFailed, ExitCode
from cadre.views.words import error_text

if TYPE_CHECKING:
    from cadre.client.client import AsyncClient

_MAX_NAMED_FILES = 20
"""Files that one line names."""


async def launch(request: dict[str, Any], options: dict[str, Any], path: str = RUNS) -> int:
    """Post the request for a run to `path` and follow the run; return the exit code."""
    # The client's weight is not the help's.
    from cadre.client.client import AsyncClient
    from cadre.client.run_handle import AsyncRunHandle

    output = options["output"]
    async with AsyncClient() as client:
        started = await AsyncRunHandle.post(client, request, path)
        run = started.id
        note_later_files(started.later_files)
        if options["detach"]:
            print_json({"id": run}) if output == "json" else click.echo(run)
            return ExitCode.OK
        shown = screen()
        asker = Asker(client, shown) if should_ask(options["ask"]) else None
        try:
            result = await watch(client, run, shown, options["timeout"], asker=asker)
        except Detached:
            click.echo(f"cadre: left run {run} to itself: `cadre show {run} --follow` looks again", err=True)
            return ExitCode.DETACHED
        except CommandFailed as failure:
            if failure.code is ExitCode.TIMEOUT and output == "json":
                print_json(await client.request("GET", f"{RUNS}/{run}"))
            raise
    return print_outcome(result, output)


def note_later_files(later: list[str]) -> None:
    """Say what a fork's workspace lacks."""
    if later:
        more = f" and {len(later) - _MAX_NAMED_FILES} more" if len(later) > _MAX_NAMED_FILES else ""
        print_text(
            "cadre: the workspace as of that step is not kept whole; as they are now, or missing:"
            f" {', '.join(later[:_MAX_NAMED_FILES])}{more}",
            err=True,
        )


def print_outcome(result: dict[str, Any], output: str) -> int:
    """Print how the run ended and return the exit code that says the same."""
    code = exit_code(result)
    if output == "json":
        print_json(result)
    elif result.get("output") not in (None, ""):
        print_text(as_text(result["output"]))
    if code is not ExitCode.OK:
        reason = error_text(result.get("error")) or "no reason given"
        print_text(f"cadre: run {result['id']} ended as {result['state']}: {' '.join(reason.split())}", err=True)
    return code


CtrlC = Literal["cancels", "leaves", "is the caller's"]
"""The effect of the first Ctrl-C; a second one leaves in every case that is not the caller's."""


class Detached(Exception):
    """The user stopped following the run, which goes on."""


async def watch(
    client: AsyncClient,
    run: str,
    screen: Screen,
    timeout: float | None = None,
    *,
    ctrl_c: CtrlC = "cancels",
    asker: Asker | None = None,
) -> dict[str, Any]:
    """Show the run until it ends; return the gateway's summary of it with its output.

    After `timeout` seconds it goes on unfollowed. `asker` has a person decide on calls that wait for one.
    Raises CommandFailed (TIMEOUT), ClientError, Detached.
    """
    reading = asyncio.create_task(_read(client, run, screen, asker))
    with _interrupts(client, run, screen, reading, ctrl_c) as interrupted:
        try:
            async with asyncio.timeout(timeout):
                await reading
        except TimeoutError as error:
            raise CommandFailed(
                f"run {run} has not ended within {timeout:g} s and goes on: `cadre show {run} --follow` looks again,"
                f" `cadre cancel {run}` ends it; --deadline bounds a run",
                ExitCode.TIMEOUT,
            ) from error
        except asyncio.CancelledError:
            if None in interrupted:
                raise Detached from None
            raise
    return await client.request("GET", f"/v1/runs/{run}")


async def _read(client: AsyncClient, run: str, screen: Screen, asker: Asker | None) -> None:
    tree = RunTree()
    stalled = StalledRuns(client, run, screen)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(screen)
        looking = asyncio.create_task(stalled.look())
        stack.callback(looking.cancel)
        if asker is not None:
            await stack.enter_async_context(asker)
        async for event in client.attach(run).stream(view="rows"):
            stalled.hear()
            try:
                changed = tree.take(event.type, event.data)
            except msgspec.ValidationError as error:
                raise CommandFailed(
                    f"the gateway sends what this version cannot draw ({error}): upgrade this one; the run goes on"
                ) from error
            screen.show(tree, changed.lines)
            if asker is not None:
                asker.hear(tree, changed.rows)
    if tree.scripted:
        screen.note("the scripted model answered: canned replies, not an AI")


@contextlib.contextmanager
def _interrupts(
    client: AsyncClient, run: str, screen: Screen, reading: asyncio.Task[None], ctrl_c: CtrlC
) -> Iterator[list[asyncio.Task[None] | None]]:
    """Handle SIGINT inside this context.

    The list gets an item for each Ctrl-C: the task that cancels the run, or None.
    """
    seen: list[asyncio.Task[None] | None] = []
    if ctrl_c == "is the caller's":
        yield seen
        return

    def interrupt() -> None:
        if seen or ctrl_c == "leaves":
            seen.append(None)
            reading.cancel()
        else:
            screen.note("cancelling the run; press Ctrl-C again to leave it to itself")
            seen.append(asyncio.ensure_future(_cancel_or_note(client, run, screen)))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _cancel_or_note(client: AsyncClient, run: str, screen: Screen) -> None:
    try:
        await cancel(client, run, "Ctrl-C")
    except ClientError as failure:
        screen.note(f"the run could not be cancelled: {failure.message}")


async def cancel(client: AsyncClient, run: str, reason: str) -> None:
    """Ask the gateway to cancel the run."""
    await client.attach(run).cancel(reason)


_QUIET_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 30.0
"""The silence after which a run is looked at, and the longest pause between two looks at a silent run."""


class StalledRuns:
    """Looks at a run and those below it when they have been silent for a while; notes each lack once, as it begins."""

    def __init__(self, client: AsyncClient, run: str, screen: Screen) -> None:
        self._client = client
        self._run = run
        self._screen = screen
        self._heard_at = time.monotonic()
        self._noted: set[tuple[str, str]] = set()

    def hear(self) -> None:
        """Something has happened to the run."""
        self._heard_at = time.monotonic()

    async def look(self) -> None:
        """Look now and then, until it is cancelled."""
        pause = _QUIET_SECONDS
        while True:
            await asyncio.sleep(pause)
            if time.monotonic() - self._heard_at < _QUIET_SECONDS:
                pause = _QUIET_SECONDS
                continue
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)
            try:
                found = {*_lacks(await self._client.request("GET", f"/v1/runs/{self._run}"))}
            except ClientError:
                continue  # the reader of the events reports it
            for run, what in sorted(found - self._noted):
                self._screen.note(f"run {run} waits for {what}, which no service serves at the moment")
            self._noted = found


def _lacks(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (run, what no service offers) for the run and all below it."""
    what = run.get("waiting_for")
    # What a `waiting` run waits for its events tell anyway.
    own = [(str(run["id"]), str(what))] if what and run.get("state") != "waiting" else []
    return own + [lack for child in run.get("children") or [] for lack in _lacks(child)]
