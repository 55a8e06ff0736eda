"""Bodies of requests, JSON and forms: what they may hold, one clear line about what is wrong with them, and the memory
that all of them share; and the answer that is a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints
from urllib.parse import quote

import msgspec
from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from cadre.errors import SpecError
from cadre.protocol.messages import CallEdit, MessageMode, Verdict
from cadre.protocol.usage import Budget
from cadre.spec.answer_schema import check_schema
from cadre.spec.durations import Length, checked_seconds
from cadre.spec.names import check_name
from cadre.structs import choices_at, misfit_of
from cadre.tools.files import UNKNOWN_MEDIA_TYPE
from cadre_gateway.requests.problems import Problem, invalid

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Room for a file in base64 of the greatest size that is allowed by default."""

MAX_TASK_BYTES = 2 * 1024 * 1024
"""The largest task, its inputs included: agents read and write it whole, again and again."""

MAX_MESSAGE_CHARS = 32_000
"""The longest message to a run."""

MAX_PAYLOAD_BYTES = 64 * 1024
"""The most that a signal may bring."""

B = TypeVar("B", bound=msgspec.Struct)


_MAX_NAME_CHARS = 200
_MAX_COUNT = 10**12
_MAX_OPERATIONS = 200

_LEAST_SECONDS = 0.001

Count = Annotated[int, msgspec.Meta(ge=1, le=_MAX_COUNT)]

Labels = Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=16)]

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")


class BudgetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget that a run and all runs below it share; a key left out sets no bound."""

    tokens: Count | None = None
    """Input and output tokens."""
    cost: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Counted in the currency of the price table."""
    steps: Count | None = None
    depth: Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)] | None = None
    """Levels of delegation below the run."""
    calls: Count | None = None
    """Calls that code makes."""
    stored_mb: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Megabytes stored for code."""

    def as_budget(self) -> Budget | None:
        """Return the budget as tasks carry it; None when it sets no bound."""
        budget = Budget(**msgspec.structs.asdict(self))
        return budget if budget != Budget() else None


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs."""

    agent: str
    task: str
    inputs: dict[str, Any] = {}
    images: list[str] = []
    """`data:` URLs with base64, `https:` URLs, or `blob:<sha256>` references."""
    files: dict[str, str] = {}
    """Files of the workspace to begin with, by path: `data:` URLs with base64, or `blob:<sha256>` references."""
    max_steps: Count | None = None
    deadline: Length | None = None
    """The time from now after which the run ends, with what it has found: seconds, or a text such as `90s` or `10m`."""
    budget: BudgetBody | None = None
    session: str | None = None
    user: str | None = None
    """The person that it works for: whose memories its agents may share."""
    labels: Labels = {}
    """Words of the caller's own, by which the run is found again."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the answer of this run, in place of the agent's own."""
    reset: bool = False
    """true: start the session afresh; else the run goes on with the memory of the session's last run of this agent."""
    stream: bool = False
    return_full_result: bool = False

    def __post_init__(self) -> None:
        check_length("deadline", self.deadline)
        wrong = next((name for name in self.labels if not _LABEL.fullmatch(name)), None)
        if wrong is not None:
            raise ValueError(
                f"labels: {wrong!r}: a name has 1 to 64 of the letters a-z, A-Z, digits, '.', '_', '/' and '-',"
                " the first a letter or digit"
            )


def check_length(key: str, length: Length | None) -> None:
    """Raise ValueError, which names `key`, for an invalid length of time: not above 0, or longer than ten years."""
    try:
        after(key, length, 0.0)
    except SpecError as error:
        raise ValueError(str(error)) from error


def after(key: str, length: Length | None, now: float) -> float | None:
    """Return the time in Unix seconds after a checked length of time from now; None without one."""
    return now + checked_seconds(key, length, _LEAST_SECONDS) if length is not None else None


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{id}/cancel; it may be left out."""

    reason: str = ""
    now: bool = False
    """End the run at once: what it has done is not made up for first."""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/runs/{id}/messages."""

    text: str
    mode: MessageMode = "append"
    """`append`: read with the next model call; `next`: before calls that have not begun; `interrupt`: at once."""
    by: str = ""
    """The sender; the header `Cadre-User` takes precedence."""


class EditBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PATCH /v1/runs/{id}/queue and /plan."""

    version: Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
    """The version that the edit is based on."""
    operations: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=_MAX_OPERATIONS)]
    """Changes, in order; what they may be is up to the agent's kind."""
    by: str = ""
    """The editor; the header `Cadre-User` takes precedence."""


class RulingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/approvals/{call}."""

    verdict: Verdict
    feedback: str = ""
    """The reason that the model reads when the call was rejected or corrected."""
    tool: str | None = None
    """The tool or team member to call instead, with `corrected`."""
    arguments: dict[str, Any] | None = None
    """With `corrected`: these take the place of the call's own of the same names; of another `tool` they are all."""
    replace: bool = False
    """With `corrected`: `arguments` are all arguments, none of the call's own stays."""
    only: list[int] | None = None
    """With `approved`, of a question that proposes calls: the numbers of those that are made, from 1."""
    edits: list[CallEdit] = []
    """With `approved`, of a question that proposes calls: calls that are changed, dropped or added first."""
    know: list[str] = []
    """With `approved` or `corrected`: arguments whose values the run's policies know from here on."""
    by: str = ""
    """The person who decides; the header `Cadre-User` takes precedence."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A checked RulingBody."""

    verdict: Verdict
    feedback: str
    tool: str | None
    arguments: dict[str, Any] | None
    replace: bool
    by: str
    only: list[int] | None = None
    edits: list[CallEdit] = []
    know: list[str] = []

    def arguments_of(self, name: str, own: dict[str, Any]) -> dict[str, Any] | None:
        """Return all arguments of the corrected call of the tool `name`, whose own are given; None leaves them as they
        are."""
        if self.arguments is None or self.replace or self.tool not in (None, name):
            return self.arguments
        return {**own, **self.arguments}


async def read(request: Request, file_bytes: int | None = None, form_bytes: int = 0) -> bytes:
    """Return the whole body, which may be a file of `file_bytes` in a form of `form_bytes`, else MAX_BODY_BYTES. Raises
    a 413 problem, and a 503 one when other bodies take all the memory that there is for them."""
    limit = MAX_BODY_BYTES if file_bytes is None else file_bytes + form_bytes
    too_large = _too_large_body() if file_bytes is None else too_large_file(file_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    share = request.app.state.body_memory.share()
    chunks = []
    async for chunk in request.stream():
        if share.bytes + len(chunk) > limit:
            raise too_large
        share.add(len(chunk))
        chunks.append(chunk)
    return CountedBody.of(chunks, share)


def parse(data: bytes, kind: type[B]) -> B:
    """Return the body as such a struct.

    Raises a 400 problem for what is not JSON, a 422 problem that names the field for what does not fit.
    """
    try:
        with _json_errors("a JSON object"):
            return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        if misfit.unknown:
            known = ", ".join(_within(kind, misfit.place).__struct_fields__)
            where = f" in {misfit.place}" if misfit.place else ""
            field = f"{misfit.place}.{misfit.unknown}".lstrip(".")
            text = f"unknown key {misfit.unknown!r}{where}; known keys: {known}"
            raise Problem(422, "invalid-request", text, field=field) from error
        more = {"field": misfit.place} if misfit.place else {}
        text = f"{error}{choices_at(kind, misfit.place)}"
        raise Problem(422, "invalid-request", text, **more) from error


@contextlib.contextmanager
def _json_errors(what: str) -> Iterator[None]:
    """Raise a 400 problem in place of what reading JSON raises; `what` the body must be."""
    try:
        yield
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise invalid(f"the body must be {what}: {error}", status=400) from error
    except UnicodeDecodeError as error:
        raise invalid(f"the body must be JSON in UTF-8: {error}", status=400) from error
    except RecursionError as error:
        raise invalid("the body is nested too deeply: send less than 900 levels", status=400) from error


def edit(data: bytes) -> EditBody:
    """Return the body of an edit, checked. Raises a 400, 413 or 422 problem."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise Problem(413, "too-large", f"an edit may have {MAX_PAYLOAD_BYTES} bytes: send it in parts")
    return parse(data, EditBody)


def message(data: bytes) -> MessageBody:
    """Return the body of a message, checked. Raises a 400, 413 or 422 problem."""
    found = parse(data, MessageBody)
    if not found.text.strip():
        raise invalid("text is empty: say what the run shall know")
    if len(found.text) > MAX_MESSAGE_CHARS:
        detail = f"a message may have {MAX_MESSAGE_CHARS} characters: put the rest into a file of the run"
        raise Problem(413, "too-large", detail)
    return found


def payload(data: bytes) -> Any:
    """Return the payload of a signal: any JSON value, null where there is no body. Raises a 400 or 413 problem."""
    if len(data) > MAX_PAYLOAD_BYTES:
        detail = f"a payload may have {MAX_PAYLOAD_BYTES} bytes: put the rest into a file of the run"
        raise Problem(413, "too-large", detail)
    with _json_errors("JSON"):
        return msgspec.json.decode(data) if data.strip() else None


def submission(data: bytes) -> Submission:
    """Return the body of a submission, checked. Raises a 400 or 422 problem."""
    return checked_submission(parse(data, Submission))


def checked_submission(found: Submission) -> Submission:
    """Return the submission, if a run can be started with it. Raises a 413 or 422 problem."""
    if not found.task.strip():
        raise invalid("task is empty: say what the agent shall do")
    _check_size(found)
    if found.output_schema is not None:
        _check_output_schema(found.output_schema)
    if found.session is not None:
        try:
            check_name("session", found.session)
        except SpecError as error:
            raise invalid(str(error)) from error
    elif found.reset:
        raise invalid("reset=true starts a session afresh: name it in `session`, or leave `reset` out")
    if found.user is not None and not (0 < len(found.user.strip()) <= _MAX_NAME_CHARS and found.user.isprintable()):
        raise invalid(f"user takes 1 to {_MAX_NAME_CHARS} printable characters, or left out")
    return found


def _check_output_schema(schema: dict[str, Any]) -> None:
    """Raise a 422 problem for what no answer could be held to."""
    try:
        check_schema(schema)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(
            422, "invalid-request", f"output_schema is no JSON Schema: {reason}", field="output_schema"
        ) from error


def _check_size(found: Submission) -> None:
    """Raise a 413 problem for a task that would hold its agent up."""
    size = len(found.task.encode()) + len(msgspec.json.encode(found.inputs))
    if size > MAX_TASK_BYTES:
        raise Problem(
            413,
            "too-large",
            f"task and inputs have {size} bytes, over the limit of {MAX_TASK_BYTES}: put what is large into"
            " `files`, and let the agent read it",
        )


def ruling(data: bytes, user: str | None) -> Ruling:
    """Return the body of a decision, checked; `user` decides, else the person that it names. Raises a 400 or 422
    problem."""
    found = parse(data, RulingBody)
    verdict = found.verdict
    changes = found.tool is not None or found.arguments is not None
    if (changes or found.replace) and verdict != "corrected":
        raise invalid('tool, arguments and replace are what `"verdict": "corrected"` changes; leave them out')
    if verdict == "corrected" and not changes:
        raise invalid("a correction changes something: give arguments, tool, or both")
    if (found.edits or found.only is not None) and (verdict != "approved" or (found.edits and found.only)):
        raise invalid('edits, or only, come with `"verdict": "approved"`; leave the other out')
    if found.know and verdict == "rejected":
        raise invalid('know comes with `"verdict": "approved"` or `"corrected"`; leave it out')
    by = (user or found.by).strip()
    if len(by) > _MAX_NAME_CHARS or not by.isprintable():
        raise invalid(f"who decides (Cadre-User, by) takes at most {_MAX_NAME_CHARS} printable characters")
    return Ruling(
        verdict="corrected" if found.edits else verdict,
        feedback=found.feedback,
        tool=found.tool,
        arguments=found.arguments,
        replace=found.replace,
        by=by,
        only=found.only,
        edits=found.edits,
        know=found.know,
    )


def _within(kind: type[msgspec.Struct], field: str | None) -> type[msgspec.Struct]:
    """Return the struct that a field of `kind` holds; `kind` itself without a field."""
    options = get_args(get_type_hints(kind)[field]) if field else ()
    return next((one for one in options if hasattr(one, "__struct_fields__")), kind)


def too_large_file(limit: int) -> Problem:
    """Return the 413 problem of a file that is larger than the limit, in bytes."""
    return Problem(413, "too-large", f"a file may have {limit} bytes, which CADRE_FILE_BYTES sets")


def _too_large_body() -> Problem:
    detail = (
        f"a body may have {MAX_BODY_BYTES} bytes; send large images as https: URLs or blob: references, large files one"
        " by one by PUT to the run's files"
    )
    return Problem(413, "too-large", detail)


FREE_BYTES = 64 * 1024
"""So much of each body always has room."""

_MOST_BYTES = 128 * 1024 * 1024
_SHARE = 8
"""A body exists in several forms while it is read, decoded and sent on, and the process needs room besides."""

CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files in which Linux keeps a container's memory limit, in the second version of control groups and the first."""


def room_for_bodies(asked: int) -> int:
    """Return how many bytes bodies may take: `asked`, or where that is 0 as much as the memory of the container has
    room for."""
    if asked:
        return asked
    for file in CONTAINER_LIMITS:
        if file.is_file() and (text := file.read_text().strip()).isdecimal():
            return max(1, min(_MOST_BYTES, int(text) // _SHARE))
    return _MOST_BYTES


class BodyMemory:
    """The memory that large bodies share; one of them always has room, be it larger than all."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0

    def share(self) -> BodyShare:
        """Return what one body takes, nothing at first."""
        return BodyShare(self)

    def change(self, more: int, own: int) -> None:
        """Add bytes, below 0 takes some away, for a body that has its `own` already. Raises a 503 problem."""
        total = self._held_bytes + more
        if more > 0 and total > self._limit_bytes and own + more > FREE_BYTES and self._held_bytes > own:
            raise Problem(
                503,
                "busy",
                f"other requests bring so much that this one has no room ({self._limit_bytes} bytes,"
                " CADRE_HTTP_BODY_BYTES): try again",
            )
        self._held_bytes = total


class BodyShare:
    """The bytes of one body; they are given back when the body is not referenced any more."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.bytes = 0

    def add(self, more: int) -> None:
        """Take more bytes. Raises a 503 problem."""
        self._memory.change(more, self.bytes)
        self.bytes += more

    def __del__(self) -> None:
        self._memory.change(-self.bytes, self.bytes)


class CountedBody(bytes):
    """A body that has its share of the memory for as long as it lives."""

    share: BodyShare

    @classmethod
    def of(cls, chunks: Iterable[bytes], share: BodyShare) -> CountedBody:
        """Return the body of these chunks."""
        body = cls(b"".join(chunks))
        body.share = share
        return body


FORM_BYTES = 64 * 1024
"""The most that a form may have in addition to its file."""


_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""Escapes in the names of files, as browsers and HTTP clients write them."""


class FormField(NamedTuple):
    """One field of a form."""

    data: bytes
    file_name: str | None
    """None for a field that is no file."""
    media_type: str

    @property
    def text(self) -> str:
        """Return the value of a field that is no file."""
        return self.data.decode(errors="replace")


def fields_of(data: bytes, content_type: str) -> dict[str, FormField]:
    """Return the fields of the form by name, of two of one name the last. Raise a 400 problem for another body."""
    about = Message()
    about["content-type"] = content_type
    boundary = about.get_param("boundary")
    if about.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise invalid("send the file as a form: multipart/form-data with a boundary", status=400)
    found = {}
    # Each part begins behind a line with the boundary; the last one is followed by the boundary and `--`.
    _, *parts = (b"\r\n" + data).split(b"\r\n--" + boundary.encode())
    if not parts or not parts[-1].startswith(b"--"):
        raise invalid("the form breaks off: its last boundary is missing", status=400)
    for part in parts[:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        headers = Message()
        for line in head.decode(errors="replace").split("\r\n"):
            name, _, value = line.partition(":")
            if name.strip():
                headers[name.strip()] = value.strip()
        field = headers.get_param("name", header="content-disposition")
        if not isinstance(field, str):
            raise invalid("a part of the form has no name", status=400)
        file_name = headers.get_filename()
        for escape, sign in _ESCAPES.items():
            file_name = file_name.replace(escape, sign) if file_name is not None else None
        found[field] = FormField(content, file_name, headers.get_content_type())
    return found


MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,127}")
_PIECE_BYTES = 256 * 1024


def download(data: bytes, name: str, media_type: str) -> Response:
    """Return the bytes as a file, which no browser shows as a page of this gateway."""
    plain = "".join(c for c in name if c.isprintable() and c not in '/\\"')[:_MAX_NAME_CHARS] or "file"
    ascii_name = plain.encode("ascii", "replace").decode().replace("?", "_").replace("%", "_")
    headers = {
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(plain, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Length": str(len(data)),
    }
    kind = media_type if MEDIA_TYPE.fullmatch(media_type) else UNKNOWN_MEDIA_TYPE
    return StreamingResponse(_pieces(data), headers=headers, media_type=kind)


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]
