"""The client as commands use it: answers as the gateway's JSON, runs by references, failures with exit codes."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from cadre.client.blocking import Blocking, blocking, blocking_iterator
from cadre.client.errors import ClientError, InvalidRequest, NotFound, TimedOut, Unreachable
from cadre.client.transport import Transport
from cadre.errors import CommandFailed, ExitCode, SettingError

if TYPE_CHECKING:
    from cadre.client.sync_client import RunHandle

LAST = "@last"
_MAX_PAGES, _PAGE_SIZE = 20, 200

WHOLE_ID = re.compile(r"[0-9a-f]{31}[0-9a-z](_[0-9_]+)?")
"""The form of a whole id: of a root run, of a run below it, or of a call."""


def exit_code_of(error: ClientError) -> ExitCode:
    """Return the exit code of a command that ends with this error."""
    match error:
        case InvalidRequest():
            return ExitCode.USAGE
        case NotFound():
            return ExitCode.NOT_FOUND
        case Unreachable():
            return ExitCode.UNREACHABLE
        case TimedOut():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED


@contextlib.contextmanager
def command_errors() -> Iterator[None]:
    """Turn what the client raises into CommandFailed."""
    try:
        yield
    except ClientError as error:
        raise CommandFailed(error.message, exit_code_of(error)) from error
    except SettingError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error


class Gateway(Blocking[Transport]):
    """The gateway, for commands that ask and answer. Use as a context manager."""

    _request = blocking(Transport.request)
    _pages = blocking_iterator(Transport.pages)
    _fetch = blocking(Transport.fetch)
    _close = blocking(Transport.close)

    def __init__(self, url: str | None = None) -> None:
        with command_errors():
            super().__init__(Transport(url), asyncio.Runner())

    @property
    def url(self) -> str:
        """Return the gateway's URL."""
        return self._target.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._loop.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Get a JSON object. Raises CommandFailed: NOT_FOUND, UNREACHABLE, or what else the gateway refused."""
        with command_errors():
            return self._request("GET", path, params=params)

    def items(self, path: str, key: str, cursor: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages of a list, which stand under `key`; raises as `get`.

        `cursor` is the parameter that asks for the page behind the one before.
        """
        with command_errors():
            yield from self._pages(path, key, cursor, params)

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Post a JSON object; raises as `get`."""
        with command_errors():
            return self._request("POST", path, json=content)

    def put(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Put a JSON object; raises as `get`."""
        with command_errors():
            return self._request("PUT", path, json=content)

    def delete(self, path: str, **params: Any) -> dict[str, Any]:
        """Delete, however long that takes; raises as `get`."""
        with command_errors():
            return self._request("DELETE", path, params=params)

    def download(self, path: str, target: BinaryIO) -> bool:
        """Write the body of an answer to `target`; returns whether there was any. Raises as `get`."""
        with command_errors():
            return self._fetch(path, target)

    def send(self, method: str, path: str, source: BinaryIO, media_type: str) -> dict[str, Any]:
        """Send all of `source`, however long the answer takes; raises as `get`."""
        with command_errors():
            return self._request(method, path, file=source, headers={"Content-Type": media_type})

    def run_id(self, reference: str) -> str:
        """Return the id that `@last`, a unique beginning of an id, or an id stands for.

        A child run is named `<beginning of the root's id>_<step>_<index>…`, and so is a call. Raises CommandFailed
        NOT_FOUND, or USAGE when several runs, or too many to look through, may be meant.
        """
        if reference == LAST:
            runs = self.get("/v1/runs", limit=1)["runs"]
            if not runs:
                raise CommandFailed("there are no runs yet: start one with `cadre run AGENT TASK`", ExitCode.NOT_FOUND)
            return str(runs[0]["id"])
        if not reference or not all(c.isalnum() or c in "_-" for c in reference):
            raise CommandFailed(f"{reference!r} is not a run id, a beginning of one, or {LAST}", ExitCode.USAGE)
        root, mark, rest = reference.partition("_")
        # The root of a call is a run; the call itself is not.
        if self._is_run(reference) or (mark and self._is_run(root)):
            return reference
        found = [] if WHOLE_ID.fullmatch(root) else list(self._ids_beginning_with(root))
        return self._unique(root, found) + mark + rest

    def ended_runs(self, agent: str, last: int) -> list[str]:
        """Return the ids of the last root runs of the agent that have ended, the newest first. Raises CommandFailed."""
        ended = (
            str(one["id"])
            for one in self.items("/v1/runs", "runs", "before", agent=agent)
            if one["ended_at"] is not None
        )
        if not (runs := list(itertools.islice(ended, last))):
            raise CommandFailed(
                f"{agent} has no root run that has ended: `cadre runs` lists them; what it did as a member is in"
                " the runs of its managers",
                ExitCode.NOT_FOUND,
            )
        return runs

    def _is_run(self, identity: str) -> bool:
        try:
            self.get(f"/v1/runs/{identity}")
        except CommandFailed as failure:
            if failure.code is not ExitCode.NOT_FOUND:
                raise
            return False
        return True

    def _ids_beginning_with(self, root: str) -> Iterator[str]:
        before = None
        for _ in range(_MAX_PAGES):
            page = self.get("/v1/runs", limit=_PAGE_SIZE, before=before)
            yield from (str(run["id"]) for run in page["runs"] if str(run["id"]).startswith(root))
            before = page.get("next")
            if before is None:
                return
        raise CommandFailed(
            f"only the newest {_MAX_PAGES * _PAGE_SIZE:,} runs were looked through for {root!r}: write the whole id",
            ExitCode.USAGE,
        )

    @staticmethod
    def _unique(root: str, found: list[str]) -> str:
        if not found:
            raise CommandFailed(f"no run's id is or begins with {root!r}: `cadre runs` lists them", ExitCode.NOT_FOUND)
        if len(found) > 1:
            some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise CommandFailed(f"{root!r} is the beginning of several run ids: {some}", ExitCode.USAGE)
        return found[0]


@contextlib.contextmanager
def run_handle(reference: str) -> Iterator["RunHandle"]:
    """Yield the client's handle of the run that `reference` stands for. Raises CommandFailed, also for what the client
    raises in the block."""
    from cadre.client.sync_client import Client  # the client's weight is not the help's

    with Gateway() as gateway:
        identity = gateway.run_id(reference)
    with command_errors(), Client(gateway.url) as client:
        yield client.attach(identity)
