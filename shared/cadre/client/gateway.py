"""Talks to the gateway: finds it, reads its answers, and turns its errors into one line each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import httpx2

from cadre.local import local_stack
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.settings import gateway_url_given, read_settings

_CODES = {
    400: ExitCode.USAGE,
    404: ExitCode.NOT_FOUND,
    413: ExitCode.USAGE,
    422: ExitCode.USAGE,
    # What stands before a gateway says 502 and 504 of one that is away.
    502: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
    504: ExitCode.UNREACHABLE,
}

LAST = "@last"
_MAX_PAGES, _PAGE_SIZE = 20, 200

WHOLE_ID = re.compile(r"[0-9a-f]{32}(_[0-9_]+)?")
"""The form of a whole id: of a root run, of a run below it, or of a call."""

_LONG_TIMEOUT = httpx2.Timeout(600, connect=5)
"""Timeout in seconds for what may take the gateway long: ending a whole tree, moving a large file."""


def gateway_url(data: Path | None = None) -> str:
    """URL of the gateway: CADRE_GATEWAY_URL, else that of the `cadre up` of this folder, else the default address."""
    given = gateway_url_given()
    if given is None and (running := local_stack.read_state(data or local_stack.default_data())) is not None:
        given = running.gateway
    return (given or read_settings().gateway_url).rstrip("/")


def client_options(url: str) -> dict[str, Any]:
    """Options of an HTTP client; the environment's proxy is not used for this machine's own address.

    Raises CommandFailed for a URL that is none.
    """
    with connection_errors(url):
        local = httpx2.URL(url).host in ("127.0.0.1", "localhost", "::1")
    return {"base_url": url, "trust_env": not local, "timeout": httpx2.Timeout(30, connect=5)}


def connect(url: str) -> httpx2.AsyncClient:
    """An HTTP client of the gateway at `url`. Raises CommandFailed for a URL that is none."""
    return httpx2.AsyncClient(**client_options(url))


@contextlib.contextmanager
def connection_errors(url: str) -> Iterator[None]:
    """Turns the errors of a connection into one line that says what to do."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise CommandFailed(f"CADRE_GATEWAY_URL={url}: {error}", ExitCode.USAGE) from error
    except httpx2.TransportError as error:
        raise CommandFailed(
            f"no gateway answers at {url} ({type(error).__name__}): start one with `cadre up`,"
            " or set CADRE_GATEWAY_URL",
            ExitCode.UNREACHABLE,
        ) from error


def body(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of a good answer. Raises CommandFailed with the `detail` of a problem."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if response.is_success and isinstance(answer, dict):
        return answer
    detail = answer.get("detail") or answer.get("title") if isinstance(answer, dict) else None
    if detail is None:
        where = f"{response.request.method} {response.request.url}"
        detail = f"{where} answered {response.status_code}, which is not what Cadre's gateway says"
    raise CommandFailed(str(detail), _CODES.get(response.status_code, ExitCode.FAILED))


def _without_none(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that were given. An empty one was given, too: the gateway judges it."""
    return {key: value for key, value in params.items() if value is not None}


async def request_json(client: httpx2.AsyncClient, method: str, path: str, **options: Any) -> dict[str, Any]:
    """The JSON object that the gateway answers a request with; raises as `Gateway.get`."""
    with connection_errors(str(client.base_url)):
        return body(await client.request(method, path, **options))


class Gateway:
    """The gateway, for commands that ask and answer. Use as a context manager."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or gateway_url()

    def __enter__(self) -> Gateway:
        with connection_errors(self.url):
            self._client = httpx2.Client(**client_options(self.url))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Gets a JSON object. Raises CommandFailed: NOT_FOUND, UNREACHABLE, or what else the gateway refused."""
        return self._request("GET", path, params=_without_none(params))

    def pages(self, path: str, key: str, cursor: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yields the items of all pages of a list, which stand under `key`; raises as `get`.

        `cursor` is the parameter that asks for the page behind the one before.
        """
        last: object = None
        while True:
            page = self.get(path, **params, **{cursor: last})
            yield from page[key]
            last = page.get("next")
            if last is None:
                return

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Posts a JSON object; raises as `get`."""
        return self._request("POST", path, json=content)

    def delete(self, path: str, **params: Any) -> dict[str, Any]:
        """Deletes, however long that takes; raises as `get`."""
        return self._request("DELETE", path, params=_without_none(params), timeout=_LONG_TIMEOUT)

    def download(self, path: str, target: BinaryIO) -> bool:
        """Writes the body of an answer to `target`; returns whether there was any.

        Raises CommandFailed, also when the body was cut off.
        """
        started = False
        try:
            with connection_errors(self.url), self._client.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    body(response)
                for piece in response.iter_bytes():
                    started = True
                    target.write(piece)
        except CommandFailed as failure:
            if started:
                raise CommandFailed(
                    "the gateway broke off in the middle: try again", ExitCode.UNREACHABLE
                ) from failure
            raise
        return started

    def upload(self, path: str, source: BinaryIO) -> dict[str, Any]:
        """Posts all of `source`, however long the answer takes; raises as `get`."""
        headers = {"Content-Type": "application/gzip"}
        return self._request("POST", path, content=source, headers=headers, timeout=_LONG_TIMEOUT)

    def put(self, path: str, source: BinaryIO, media_type: str) -> dict[str, Any]:
        """Puts all of `source` as a file; raises as `get`."""
        headers = {"Content-Type": media_type}
        return self._request("PUT", path, content=source, headers=headers, timeout=_LONG_TIMEOUT)

    def run_id(self, reference: str) -> str:
        """The id that `@last`, a unique beginning of an id, or an id stands for.

        A child run is named `<beginning of the root's id>_<step>_<index>…`, and so is a call. Raises CommandFailed
        NOT_FOUND, or USAGE when several runs, or too many to look through, may be meant.
        """
        if reference == LAST:
            runs = self.get("/v1/runs", limit=1)["runs"]
            if not runs:
                raise CommandFailed(
                    "there are no runs yet: start one with `cadre run AGENT TASK`", ExitCode.NOT_FOUND
                )
            return str(runs[0]["id"])
        if not reference or not all(c.isalnum() or c in "_-" for c in reference):
            raise CommandFailed(
                f"{reference!r} is not a run id, a beginning of one, or {LAST}", ExitCode.USAGE
            )
        root, mark, rest = reference.partition("_")
        # The root of a call is a run, the call is none.
        if self._is_run(reference) or (mark and self._is_run(root)):
            return reference
        found = [] if WHOLE_ID.fullmatch(root) else list(self._ids_beginning_with(root))
        return self._unique(root, found) + mark + rest

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with connection_errors(self.url):
            return body(self._client.request(method, path, **options))

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
            raise CommandFailed(
                f"no run's id is or begins with {root!r}: `cadre runs` lists them", ExitCode.NOT_FOUND
            )
        if len(found) > 1:
            some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise CommandFailed(f"{root!r} is the beginning of several run ids: {some}", ExitCode.USAGE)
        return found[0]
