"""The end of a command: the exit code of a run, and the line and exit code of an error."""

import codecs
import errno
from typing import Any

import click

from cadre.client.errors import ClientError
from cadre.errors import BusUnavailable, CadreError, CommandFailed, ExitCode, SetupError
from cadre.protocol.codes import ErrorCode

_OF_STATE = {
    "success": ExitCode.OK,
    "error": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
    "max_steps_error": ExitCode.LIMIT,
}
_LIMITS: tuple[ErrorCode, ...] = ("deadline", "budget")


def exit_code(run: dict[str, Any]) -> ExitCode:
    """Return the exit code that says how a run ended; `run` is the gateway's account of it."""
    if (run.get("error") or {}).get("code") in _LIMITS:
        return ExitCode.LIMIT
    return _OF_STATE.get(run["state"], ExitCode.FAILED)


def error_line(error: Exception) -> tuple[str, int]:
    """Return what to say about an error in one line, and the exit code that goes with it."""
    match error:
        case CommandFailed():
            return error.message, error.code
        case ClientError():
            from cadre.cli.terminal.gateway import exit_code_of

            return error.message, exit_code_of(error)
        case click.NoSuchOption(ctx=click.Context() as context):
            known = ", ".join(
                max(option.opts, key=len)
                for option in context.command.params
                if isinstance(option, click.Option) and not option.hidden
            )
            return (
                f"unknown option {error.option_name} of `{context.command_path}`; known options: {known}",
                ExitCode.USAGE,
            )
        case click.UsageError():
            hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
            return error.format_message().rstrip(".") + hint, ExitCode.USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case BusUnavailable():
            return str(error), ExitCode.UNREACHABLE
        case SetupError():
            return str(error), ExitCode.USAGE
        case CadreError():
            return str(error), ExitCode.FAILED
        case UnicodeEncodeError() if codecs.lookup(error.encoding).name != "utf-8":
            return (
                f"the output has characters that {error.encoding} lacks: set PYTHONIOENCODING=utf-8",
                ExitCode.FAILED,
            )
        case OSError(errno=errno.ENOSPC):
            return "the output cannot be written: no space left on the device", ExitCode.FAILED
        case _:
            name = type(error).__name__
            return f"{name}: {error} (a defect; CADRE_DEBUG=1 shows where)", ExitCode.FAILED
