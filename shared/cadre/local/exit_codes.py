"""How a command ends: its exit codes, and the one line that an error is."""

from __future__ import annotations

import codecs
import enum
import errno
from typing import Any

import click

from cadre.errors import BusUnavailable, CadreError, SetupError


class Code(enum.IntEnum):
    """Exit codes; documented in docs/cli.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 4
    UNREACHABLE = 5
    CANCELLED = 6
    LIMIT = 7
    TIMEOUT = 124
    DETACHED = 130


_OF_STATE = {
    "success": Code.OK,
    "error": Code.FAILED,
    "cancelled": Code.CANCELLED,
    "max_steps_error": Code.LIMIT,
}


class Failure(click.ClickException):
    """Ends the command with `code` and the line `cadre: <message>`."""

    def __init__(self, message: str, code: Code = Code.FAILED) -> None:
        super().__init__(message)
        self.code = code


_LIMITS = ("DeadlineExceeded", "BudgetExceeded")


def of_run(run: dict[str, Any]) -> Code:
    """The exit code that says how a run ended."""
    if (run.get("error") or {}).get("type") in _LIMITS:
        return Code.LIMIT
    return _OF_STATE.get(run["state"], Code.FAILED)


def explain(error: Exception) -> tuple[str, int]:
    """What to say about an error in one line, and the exit code that goes with it."""
    match error:
        case Failure():
            return error.message, error.code
        case click.UsageError():
            hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
            return error.format_message().rstrip(".") + hint, Code.USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case BusUnavailable():
            return str(error), Code.UNREACHABLE
        case SetupError():
            return str(error), Code.USAGE
        case CadreError():
            return str(error), Code.FAILED
        case UnicodeEncodeError() if codecs.lookup(error.encoding).name != "utf-8":
            return (
                f"the output has characters that {error.encoding} lacks: set PYTHONIOENCODING=utf-8",
                Code.FAILED,
            )
        case OSError(errno=errno.ENOSPC):
            return "the output cannot be written: no space left on the device", Code.FAILED
        case _:
            name = type(error).__name__
            return f"{name}: {error} (a defect; CADRE_DEBUG=1 shows where)", Code.FAILED
