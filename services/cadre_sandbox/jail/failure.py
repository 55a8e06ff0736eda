"""What went wrong in a block, as a model can use it: kind, message, the block's line."""

from dataclasses import dataclass
from types import TracebackType

from cadre_sandbox.jail.capture import cut
from cadre_sandbox.jail.refusal import NotAllowed

_MAX_MESSAGE_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class CodeFailure:
    """An error of the code: its type, its message, and the line of the block."""

    error: str
    message: str
    line: int | None = None
    source: str | None = None


def describe(error: BaseException, filename: str, code: str) -> CodeFailure:
    """The failure that the error means for the block in `filename`. May run the error's own `__str__`."""
    kind = type(error).__name__
    line = _line(error, filename)
    lines = code.splitlines()
    source = lines[line - 1].strip() if line and line <= len(lines) else None
    return CodeFailure(kind, cut(_message(error), _MAX_MESSAGE_CHARS), line, source)


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return _syntax(error)
    if isinstance(error, SystemExit):
        return "exit() does not end the task: call final_answer(value)"
    if isinstance(error, MemoryError):
        return str(error) or "the code wanted more memory than it may have"
    if isinstance(error, KeyError) and error.args:
        return f"there is no key {error.args[0]!r}"
    return str(error)


def _syntax(error: SyntaxError) -> str:
    message = f"{error.msg} (line {error.lineno})"
    if error.text and error.offset:
        text = error.text.rstrip("\n")
        message += f"\n{text}\n{' ' * (error.offset - 1)}^"
    return message


def _line(error: BaseException, filename: str) -> int | None:
    if isinstance(error, NotAllowed) and error.line:
        return error.line
    if isinstance(error, SyntaxError) and error.filename == filename:
        return error.lineno
    found = None
    trace: TracebackType | None = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == filename:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found
