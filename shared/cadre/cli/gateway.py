"""Talking to the gateway: where it is, its answers, and its errors as one line each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx2

from cadre.cli import state
from cadre.cli.exits import Code, Failure
from cadre.settings import gateway_url_given, read_settings

_CODES = {400: Code.USAGE, 404: Code.NOT_FOUND, 413: Code.USAGE, 422: Code.USAGE, 503: Code.UNREACHABLE}

LAST = "@last"
_PAGES = 20

_PATIENCE = httpx2.Timeout(600, connect=5)
"""For what may take the gateway long: the end of a whole tree, a large file."""


def gateway_url(data: Path | None = None) -> str:
    """`CADRE_GATEWAY_URL`, else the gateway of the `cadre up` of this folder, else the default address."""
    given = gateway_url_given()
    if given is None and (running := state.read(data or state.default_data())) is not None:
        given = running.gateway
    return (given or read_settings().gateway_url).rstrip("/")


def client_options(url: str) -> dict[str, Any]:
    """Options of a client: the environment's proxy is not asked for this machine's own address."""
    local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    return {"base_url": url, "trust_env": not local, "timeout": httpx2.Timeout(30, connect=5)}


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turns the errors of a connection into one line that says what to do."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Failure(f"CADRE_GATEWAY_URL={url}: {error}", Code.USAGE) from error
    except httpx2.TransportError as error:
        raise Failure(
            f"no gateway answers at {url} ({type(error).__name__}): start one with `cadre up`,"
            " or set CADRE_GATEWAY_URL",
            Code.UNREACHABLE,
        ) from error


def body(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of a good answer. Raises Failure with the `detail` of a problem."""
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
    raise Failure(str(detail), _CODES.get(response.status_code, Code.FAILED))


class Gateway:
    """The gateway, for commands that ask and answer. Use as a context manager."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or gateway_url()

    def __enter__(self) -> Gateway:
        with reaching(self.url):
            self._client = httpx2.Client(**client_options(self.url))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Raises Failure: NOT_FOUND, UNREACHABLE, or what else the gateway refused."""
        with reaching(self.url):
            return body(
                self._client.get(path, params={k: v for k, v in params.items() if v not in (None, "", False)})
            )

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        with reaching(self.url):
            return body(self._client.post(path, json=content))

    def delete(self, path: str, **params: Any) -> dict[str, Any]:
        with reaching(self.url):
            given = {k: v for k, v in params.items() if v is not None}
            return body(self._client.delete(path, params=given, timeout=_PATIENCE))

    def download(self, path: str, target: BinaryIO) -> None:
        """Writes the body of an answer to `target`. Raises Failure, also when the body was cut off."""
        begun = False
        try:
            with reaching(self.url), self._client.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    body(response)
                for piece in response.iter_bytes():
                    begun = True
                    target.write(piece)
        except Failure as failure:
            if begun:
                raise Failure("the gateway broke off in the middle: try again", Code.UNREACHABLE) from failure
            raise

    def upload(self, path: str, source: BinaryIO) -> dict[str, Any]:
        """Sends all of `source`, however long the answer takes."""
        headers = {"Content-Type": "application/gzip"}
        with reaching(self.url):
            return body(self._client.post(path, content=source, headers=headers, timeout=_PATIENCE))

    def put(self, path: str, source: BinaryIO, media_type: str) -> dict[str, Any]:
        """Sends all of `source` as a file."""
        headers = {"Content-Type": media_type}
        with reaching(self.url):
            return body(self._client.put(path, content=source, headers=headers, timeout=_PATIENCE))

    def run_id(self, reference: str) -> str:
        """The id that `@last`, a unique beginning of an id, or an id stands for.

        A child run is named `<beginning of the root's id>_<step>_<index>…`. Raises Failure NOT_FOUND.
        """
        if reference == LAST:
            runs = self.get("/v1/runs", limit=1)["runs"]
            if not runs:
                raise Failure("there are no runs yet: start one with `cadre run AGENT TASK`", Code.NOT_FOUND)
            return str(runs[0]["id"])
        if not reference or not all(c.isalnum() or c in "_-" for c in reference):
            raise Failure(f"{reference!r} is not a run id, a beginning of one, or {LAST}", Code.USAGE)
        try:
            return str(self.get(f"/v1/runs/{reference}")["id"])
        except Failure as failure:
            if failure.code is not Code.NOT_FOUND:
                raise
        root, mark, rest = reference.partition("_")
        return self._only(root, list(self._beginning_with(root))) + mark + rest

    def _beginning_with(self, root: str) -> Iterator[str]:
        before = None
        for _ in range(_PAGES):
            page = self.get("/v1/runs", limit=200, before=before)
            yield from (str(run["id"]) for run in page["runs"] if str(run["id"]).startswith(root))
            before = page.get("next")
            if before is None:
                return

    @staticmethod
    def _only(root: str, found: list[str]) -> str:
        if not found:
            raise Failure(f"no run's id is or begins with {root!r}: `cadre runs` lists them", Code.NOT_FOUND)
        if len(found) > 1:
            some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise Failure(f"{root!r} is the beginning of several run ids: {some}", Code.USAGE)
        return found[0]
