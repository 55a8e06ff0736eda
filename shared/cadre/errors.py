"""Every error that Cadre raises, grouped by what must be done about it.

CadreError
├── RetryableError          leave the record un-acked: the bus delivers it again
│   ├── BusUnavailable      NATS does not answer
│   │   └── BusFull         its storage limit is reached: nothing was stored
│   ├── MemoryUnavailable   no memory service answers, or its index does not
│   ├── RunIndexUnavailable the gateway's list of runs cannot be read or saved
│   │   └── RunIndexBuilding it does not have all runs yet
│   ├── ProviderUnavailable the OpenID Connect provider does not answer, or not as it must
│   └── OutcomeUnknown      an append or publish was sent, its answer was lost
├── TerminalError           trying again cannot help
│   ├── MemoryRefused       the memory service will never do this
│   ├── UnreadableMessage   malformed JSON, unknown type, wrong field
│   │   └── NewerSchema     written by a newer Cadre
│   ├── BlobMissing         a blob reference that the object store does not know
│   └── TooLarge            a payload over the limit of the bus
├── ClientError             what a client of the gateway raises (`cadre.client.errors`)
├── Fenced                  another writer was first: fold again, decide again
├── SetupError              the process cannot start as configured; its text says what to do
│   ├── SpecError           a wrong agent spec
│   │   ├── UnknownModel    it names a model that has no file
│   │   └── UnknownOption   a call names what there is not; a TypeError too
│   ├── PromptError         a wrong prompt file
│   ├── ToolDefinitionError a function that a model could not use as a tool
│   ├── SettingError        a wrong environment variable or option
│   ├── NotPermitted        the NATS user of this process has not the right
│   └── StreamDrift         a stream exists with other settings than this version needs
└── ModelError              a model endpoint's answer that is not an answer
    ├── ModelUnavailable    for now: wait and try again
    └── ModelRefused        for good: the request itself is wrong

What a *model* does wrong (bad arguments, unknown tool, no tool call) is no exception: it is an
observation that the model reads at its next step (`cadre.protocol.messages.ErrorInfo`).
"""

import enum
from collections.abc import Sequence
from typing import Literal


class CadreError(Exception):
    """The base of all errors that Cadre raises; its text says what to do.

    Examples:
        >>> from cadre import Agent
        >>> try:
        ...     Agent("writer", instructions="Write.", limits={"max_steps": 0})
        ... except CadreError as error:
        ...     print(type(error).__name__)
        SpecError
    """


class RetryableError(CadreError):
    """Nothing is wrong with the record: deliver it again later."""


class BusUnavailable(RetryableError):
    """NATS does not answer."""

    def __init__(self, doing: str, cause: object) -> None:
        super().__init__(f"NATS did not answer while {doing}: {cause}")


class BusFull(BusUnavailable):
    """The storage limit of NATS is reached: writes are refused until there is room."""

    def __init__(self, doing: str, cause: object) -> None:
        RetryableError.__init__(self, f"NATS has no room left for {doing}: {cause}")


class OutcomeUnknown(RetryableError):
    """An append or publish was sent, and its answer was lost."""

    def __init__(self, doing: str, cause: object) -> None:
        super().__init__(f"{doing} was sent but its answer never came: {cause}")


class MemoryUnavailable(RetryableError):
    """No memory service answers, or its index does not: nothing was stored, found or removed."""


class RunIndexUnavailable(RetryableError):
    """The database of the gateway's list of runs does not answer, or has no room."""


class RunIndexBuilding(RunIndexUnavailable):
    """The gateway reads the journals still: a list would lack runs."""


class ProviderUnavailable(RetryableError):
    """The OpenID Connect provider does not answer, or not as it must: the caller cannot be identified."""


class TerminalError(CadreError):
    """Trying again cannot help."""


class MemoryRefused(TerminalError):
    """The request is wrong; its text says what to change."""

    def __init__(self, message: str, *, not_found: bool = False) -> None:
        super().__init__(message)
        self.not_found = not_found


class UnreadableMessage(TerminalError):
    """The message has malformed JSON, an unknown type or a wrong field."""


class NewerSchema(UnreadableMessage):
    """The message was written by a newer Cadre."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"schema version {found} is newer than version {known}, the newest this service reads: upgrade it"
        )
        self.found, self.known = found, known


class NewerKind(NewerSchema):
    """Written by a replica that knows a kind of agent, or a version of it, that this service does not."""

    def __init__(self, kind: str, found: int, known: int) -> None:
        have = f"this service knows it up to version {known}" if known else "this service does not know it"
        UnreadableMessage.__init__(self, f"agent kind {kind!r}, version {found}: {have}: upgrade it")
        self.found, self.known = found, known


class BlobMissing(TerminalError):
    """The object store does not have the blob."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"{ref} is not in the object store: it was removed, or never uploaded")
        self.ref = ref


class TooLarge(TerminalError):
    """A payload is over its limit; sizes are in bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} has {size} bytes, over the limit of {limit}")
        self.size, self.limit = size, limit


class Fenced(CadreError):
    """Another writer was first: the subject's last message is not the one that was expected."""


class SetupError(CadreError):
    """The process cannot start as configured. The text says what to do.

    Attributes:
        problem: What is wrong, and what to write.
        key: The place of it, such as `spec.limits.steps`; empty if unknown, as the following ones.
        agent: The agent's name.
        files: The files that it stands in, the outermost first.

    Examples:
        >>> from cadre import Agent
        >>> try:
        ...     Agent("writer", instructions="Write.", limits={"max_steps": 0})
        ... except SetupError as error:
        ...     print(error.agent, error.key)
        writer limits.max_steps
    """

    def __init__(self, problem: str, *, key: str = "", agent: str = "", files: Sequence[object] = ()) -> None:
        self.problem, self.key, self.agent = problem, key, agent
        self.files = tuple(map(str, files))
        super().__init__(self._text())

    @property
    def explanation(self) -> str:
        """The error's text without the names of files."""
        agent = f"agent {self.agent}" if self.agent else ""
        return ": ".join(filter(None, (agent, self.key, self.problem)))

    def in_file(self, file: object) -> None:
        """Add the file that the error was found in."""
        self.files = (str(file), *self.files)
        self.args = (self._text(),)

    def of_agent(self, agent: str) -> None:
        """Add the agent that the error is about."""
        self.agent = agent
        self.args = (self._text(),)

    def _text(self) -> str:
        return ": ".join([*self.files, self.explanation])


class SpecError(SetupError):
    """An agent's spec is wrong."""


class KindError(SpecError):
    """A kind of agent cannot be added to this process; `code` says why."""

    def __init__(
        self, code: Literal["kinds-closed", "kinds-loading", "kind-declared", "kind-invalid"], problem: str
    ) -> None:
        super().__init__(problem)
        self.code = code


class UnknownModel(SpecError):
    """No file is that of the model `name`, which an agent's file names."""

    def __init__(self, name: str, remedy: str, *, key: str) -> None:
        super().__init__(f"there is no model {name!r}: {remedy}", key=key)
        self.name = name


class UnknownOption(SpecError, TypeError):
    """A call in Python names an option that there is not, or lacks one; the text lists those that there are."""


class PromptError(SetupError):
    """A prompt file is wrong."""


class ToolDefinitionError(SetupError):
    """A function cannot be a tool, because no model could use it, or no person could be asked for its calls as
    `approval_text` says: `code` has the latter's reasons."""

    def __init__(
        self, problem: str, *, code: Literal["", "approval-text-invalid", "approval-text-unknown-name"] = ""
    ) -> None:
        super().__init__(problem)
        self.code = code


class SettingError(SetupError):
    """An environment variable or option is wrong."""


class NotPermitted(SetupError):
    """The NATS user of this process lacks a right."""

    def __init__(self, subject: str, what: Literal["publish", "subscribe"] = "publish") -> None:
        super().__init__(
            f"the NATS user of this process may not {what} to {subject}: give it the key of its own service"
            " (CADRE_NATS_CREDENTIALS), or run `cadre auth init` again and have the server read it"
        )
        self.subject = subject


class NotSetUpYet(SetupError):
    """Another process has yet to set up what this one needs: its NATS user, a stream or a queue."""


class StreamDrift(SetupError):
    """A stream exists with other settings than this version needs."""


class ModelError(CadreError):
    """A model endpoint did not give an answer."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ModelUnavailable(ModelError):
    """Worth trying again. `retry_after` is in seconds, None when the endpoint named no time."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        rate_limited: bool = False,
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after
        self.rate_limited = rate_limited


class ModelRefused(ModelError):
    """The request, its key or its model name is wrong: the same call would fail again.

    `too_long`: the model's context has no room for it, and a shorter one may be answered. `context` and `tokens`
    are then the context and the size of the request, in tokens, as far as the endpoint has said them.
    `about_form`: the endpoint does not take the form in which JSON was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        too_long: bool = False,
        about_form: bool = False,
        context: int | None = None,
        tokens: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.too_long = too_long
        self.about_form = about_form
        self.context = context
        self.tokens = tokens


class ExitCode(enum.IntEnum):
    """The meaning of a command's exit code; documented in docs/cli.md."""

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
    """The command cannot do what it was asked to do. A command ends with `code` and the line `cadre: <message>`."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
