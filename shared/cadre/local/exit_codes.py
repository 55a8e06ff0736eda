"""The exit codes of Cadre's commands, and the error that carries one."""

import enum

from cadre.errors import CadreError


class ExitCode(enum.IntEnum):
    """What the exit code of a command says; documented in docs/cli.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 4
    UNREACHABLE = 5
    CANCELLED = 6
    LIMIT = 7
    TIMEOUT = 124
    DETACHED = 130


class CommandFailed(CadreError):
    """What was asked for cannot be done. A command ends with `code` and the line `cadre: <message>`."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
