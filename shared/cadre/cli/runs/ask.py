"""Ask a person at the terminal about held calls, one after the other, while their run is followed; and send the
decision."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cadre.cli.run_view.screen import RunTree, Screen
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import json_object, print_json
from cadre.cli.terminal.output import print_text
from cadre.client.errors import ClientError, InvalidRequest
from cadre.errors import CommandFailed, ExitCode
from cadre.views.rows import Row, run_key
from cadre.views.words import brief

if TYPE_CHECKING:
    from cadre.client.client import AsyncClient

_SETTLE_SECONDS = 0.3
"""Pause before a question: when past events are replayed, a decision may follow its request at once."""

_CHOICES = "[a]pprove, [r]eject WHY, [c]orrect JSON, [l]ater? "


class InputLines:
    """Lines of standard input, read by a thread that may be left blocked when the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._from_terminal = sys.stdin.isatty()
        self.ended = False
        threading.Thread(target=self._read, args=(sys.stdin.fileno(),), name="stdin", daemon=True).start()

    async def next(self) -> str | None:
        """Wait for a line; returns None at the end of the input."""
        line = await self._queue.get()
        self.ended = line is None
        return line

    def discard_typed(self) -> None:
        """Drop what was typed before a question: it is no answer to it."""
        while self._from_terminal and not self._queue.empty():
            self._queue.get_nowait()

    def _read(self, descriptor: int) -> None:
        # Not sys.stdin: a thread that waits in it holds a lock that the interpreter needs at exit.
        rest = b""
        while data := os.read(descriptor, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._put(line.decode(errors="replace"))
        if rest:
            self._put(rest.decode(errors="replace"))
        self._put(None)

    def _put(self, line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


class Asker:
    """Asks a person about each call of a run that waits for approval. Use as an async context manager."""

    def __init__(self, client: AsyncClient, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._waiting: dict[str, tuple[str, Row]] = {}
        """The rows of calls that are still to be asked about, each with the agent's name, by call."""
        self._news = asyncio.Event()
        self._question: asyncio.Task[None] | None = None
        self._asked = ""
        self._answered = False
        """The question has its answer, which is on its way."""

    async def __aenter__(self) -> Asker:
        self._lines = InputLines()
        self._task = asyncio.create_task(self._ask_all(), name="asker")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._task, self._question):
            if task is not None and not task.done():
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def hear(self, tree: RunTree, rows: Sequence[Row]) -> None:
        """Take rows that have changed: remembers the calls to ask about, and drops those that need no decision any
        more."""
        for row in rows:
            if row.kind != "call":
                continue
            call = row.key.partition(":")[2]
            if row.state == "held":
                self._waiting[call] = (tree.rows[run_key(row.run)].name, row)
                self._news.set()
            elif call in self._waiting:
                self._drop(call)

    def _drop(self, call: str) -> None:
        self._waiting.pop(call, None)
        if call == self._asked and self._question is not None and not self._answered:
            self._question.cancel()

    async def _ask_all(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            if not self._waiting:
                self._news.clear()
                continue
            self._asked, (agent, row) = next(iter(self._waiting.items()))
            self._answered = False
            with self._screen.paused():
                self._question = asyncio.create_task(self._ask(self._asked, agent, row))
                await asyncio.wait([self._question])
                if self._question.cancelled():
                    click.echo("(decided elsewhere)", err=True)
                else:
                    self._question.result()
            self._waiting.pop(self._asked, None)
            if self._lines.ended:
                self._screen.note("no more input: held calls wait on")
                return

    async def _ask(self, call: str, agent: str, row: Row) -> None:
        self._lines.discard_typed()
        wants = f"wants {row.name}{row.brief}  ({brief(row.remark, 100)})"
        if row.is_question:
            wants = f"asks: {row.remark}"
        print_text(f"{agent} {wants}", err=True)
        while True:
            click.echo(_CHOICES, err=True, nl=False)
            line = await self._lines.next()
            if line is None:
                click.echo("", err=True)
                return
            try:
                content = decision_of(line)
                if content is None:
                    click.echo(f"it waits on: cadre approve {call}", err=True)
                else:
                    await self._send(call, content)
            except (click.UsageError, ClientError) as error:
                print_text(f"cadre: {error.message}", err=True)
                if isinstance(error, ClientError) and not isinstance(error, InvalidRequest):
                    return
                self._answered = False
                continue
            return

    async def _send(self, call: str, content: dict[str, Any]) -> None:
        self._answered = True
        answer = await self._client.request("POST", f"{PATH}/{call}", json={**content, "by": login_name()})
        print_text(f"{answer['verdict']} by {answer['by']}", err=True)


def decision_of(line: str) -> dict[str, Any] | None:
    """Return the body of the decision that a line stands for; None when the call is to wait on. Raises UsageError."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    match word.lower():
        case "a" | "approve":
            return {"verdict": "approved", "feedback": rest}
        case "r" | "reject":
            return {"verdict": "rejected", "feedback": rest}
        case "c" | "correct":
            return {"verdict": "corrected", "arguments": json_object("what follows the c", rest)}
        case "l" | "later":
            return None
        case _:
            raise click.UsageError("type a, r and why, c and the arguments as JSON, or l")


def should_ask(wanted: bool | None) -> bool:
    """Return whether to ask for decisions: as the option says, else whenever stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty() if wanted is None else wanted


PATH = "/v1/approvals"
_MAX_NAMED = 5


def call_id(gateway: Gateway, reference: str) -> str:
    """Id of the held call that an id, a beginning of one, or its run stands for.

    Raises CommandFailed: NOT_FOUND, or USAGE when several calls of the run wait.
    """
    identity = gateway.run_id(reference)
    known: dict[str, Any] | None = None
    try:
        known = gateway.get(f"{PATH}/{identity}")
    except CommandFailed as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
    if known is not None and known["state"] == "pending":
        return identity
    waiting = [call["call"] for call in gateway.get(PATH, run=identity, limit=_MAX_NAMED + 1)["approvals"]]
    if len(waiting) == 1:
        return str(waiting[0])
    if waiting:
        some = ", ".join(waiting[:_MAX_NAMED]) + (", …" if len(waiting) > _MAX_NAMED else "")
        raise CommandFailed(f"several calls of {identity} wait; name one: {some}", ExitCode.USAGE)
    if known is not None:
        return identity
    raise CommandFailed(f"no call of {identity} waits for a person: `cadre approvals` lists them", ExitCode.NOT_FOUND)


def decide(reference: str, content: dict[str, Any], output: str) -> int:
    """Post the decision on a call and print what came of it; return the exit code."""
    with Gateway() as gateway:
        call = call_id(gateway, reference)
        return print_decision(gateway.post(f"{PATH}/{call}", {**content, "by": login_name()}), output)


def print_decision(answer: dict[str, Any], output: str) -> int:
    """Print the gateway's answer to a decision; returns the exit code."""
    if output == "json":
        print_json(answer)
        return ExitCode.OK
    print_text(f"{answer['call']} {answer['verdict']}" + (f" by {answer['by']}" if answer["by"] else ""))
    if answer.get("at") is None:
        click.echo("cadre: no agent has taken it up yet; it is kept and will count", err=True)
    return ExitCode.OK


def login_name() -> str:
    """Return the login name of the person at the terminal; "" if it is unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
