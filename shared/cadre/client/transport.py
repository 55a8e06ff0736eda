"""The HTTP connection to the gateway: finds it, sends requests, also again where they were lost, turns what goes
wrong into errors."""

import asyncio
import contextlib
import os
import stat
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import httpx2
import msgspec
from msgspec import to_builtins

from cadre.adapters import local_stack
from cadre.adapters.http_options import http_options
from cadre.api.runs import Approval, ApprovalDecision, RunDetail
from cadre.client.errors import ClientError, Unreachable, refusal
from cadre.errors import SettingError
from cadre.journal.unions import converted
from cadre.options import Explaining
from cadre.protocol.messages import CallEdit, Verdict
from cadre.settings import gateway_key, gateway_url_given, read_settings

RUNS = "/v1/runs"

T = TypeVar("T")

_LONG_TIMEOUT = httpx2.Timeout(600, connect=5)
"""Timeout in seconds for what may take the gateway long: ending a whole tree, moving a large file."""

_PIECE_BYTES = 256 * 1024


def gateway_url(data: Path | None = None) -> str:
    """Return the URL of the gateway: CADRE_GATEWAY_URL, else that of the `cadre up` of this folder or of the nearest
    one above, else the default address.

    Raises Unreachable if that stack is not ready: a gateway at the default address then belongs to another folder.
    """
    given = gateway_url_given()
    if given is None:
        data = data or local_stack.default_data()
        if (running := local_stack.read_state(data)) is not None:
            given = running.gateway
        elif local_stack.is_starting(data):
            raise Unreachable(
                f"the gateway of {_name_of(data)} is not ready: its `cadre up` is starting; wait until it says"
                " `cadre: ready`"
            )
        elif local_stack.has_stack(data):
            raise Unreachable(
                f"the gateway of {_name_of(data)} is not ready: no `cadre up` runs {_place(data)}; start it and wait"
                " until it says `cadre: ready`, or name another gateway by CADRE_GATEWAY_URL"
            )
    return (given or read_settings().gateway_url).rstrip("/")


def _name_of(data: Path) -> str:
    return str(data.parent) if data.is_absolute() else "this folder"


def _place(data: Path) -> str:
    return "there" if data.is_absolute() else "here"


def client_options(url: str) -> dict[str, Any]:
    """Return options of an HTTP client; the environment's proxy is not used for this machine's own address.

    Raise SettingError for an invalid URL, and for a proxy or certificates of the environment that cannot be used.
    """
    with connection_errors(url):
        httpx2.URL(url)
    return {"base_url": url, "timeout": httpx2.Timeout(30, connect=5), **http_options(url)}


@contextlib.contextmanager
def connection_errors(url: str) -> Iterator[None]:
    """Turn the errors of a connection into one line that says what to do."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise SettingError(f"CADRE_GATEWAY_URL={url}: {error}") from error
    except httpx2.TransportError as error:
        raise Unreachable(
            f"no gateway answers at {url} ({type(error).__name__}): start one with `cadre up`, or set CADRE_GATEWAY_URL"
        ) from error


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of a good answer. Raises ClientError with the `detail` of a problem."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if response.status_code == 204:
        return {}
    if response.is_success and isinstance(answer, dict):
        return answer
    where = f"{response.request.method} {response.request.url}"
    raise refusal(response.status_code, answer, where, response.headers.get("retry-after"))


def typed(answer: Any, kind: type[T]) -> T:
    """Return the answer, or a part of it, as such a struct. Raises ClientError for one of another version's form."""
    try:
        return converted(answer, kind)
    except msgspec.ValidationError as error:
        raise ClientError(
            f"the gateway answers in another form than this client knows ({error}): upgrade the older of the two"
        ) from error


class Transport(metaclass=Explaining):
    """Asks the gateway by path. Close it, or use it as an async context manager."""

    def __init__(self, url: str | None = None, *, api_key: str | None = None) -> None:
        """Send `api_key` with each request; without one, CADRE_API_KEY."""
        self.url = (url or gateway_url()).rstrip("/")
        self._key = api_key
        self._http: httpx2.AsyncClient | None = None

    @property
    def http(self) -> httpx2.AsyncClient:
        """Return the HTTP client, opened with the first request. Raises SettingError for an invalid URL."""
        if self._http is None:
            options = {**client_options(self.url), "headers": _credentials(self._key)}
            with connection_errors(self.url):
                self._http = httpx2.AsyncClient(**options)
        return self._http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next request would open new ones."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        json: Any = None,
        file: BinaryIO | bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object that the gateway answers to any request of docs/http-api.md; {} for an answer without
        one.

        Parameters with the value None are left out. `file` is the body instead of `json`; it and a DELETE may take the
        gateway ten minutes. Raises ClientError.
        """
        # An empty parameter was given, too: the gateway judges it.
        options: dict[str, Any] = {"headers": headers or {}}
        if params:
            options["params"] = {key: value for key, value in params.items() if value is not None}
        if json is not None:
            options["json"] = json
        if file is not None:
            options["content"] = file if isinstance(file, bytes) else _pieces(file)
            options["headers"] = {**_length(file), **options["headers"]}
        if file is not None or method == "DELETE":
            options["timeout"] = _LONG_TIMEOUT
        with connection_errors(self.url):
            return answer_of(await self.http.request(method, path, **options))

    async def pages(
        self, path: str, key: str, cursor: str, params: dict[str, Any] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the items of all pages of a list, which stand under `key`; raises as `request`.

        `cursor` is the parameter that asks for the page behind the one before.
        """
        last: object = None
        while True:
            page = await self.request("GET", path, params={**(params or {}), cursor: last})
            for item in page[key]:
                yield item
            last = page.get("next")
            if last is None:
                return

    async def fetch(self, path: str, target: BinaryIO) -> bool:
        """Write the body of an answer to `target`; returns whether there was any.

        Raises ClientError, also when the body was cut off.
        """
        started = False
        try:
            with connection_errors(self.url):
                async with self.http.stream("GET", path) as response:
                    if not response.is_success:
                        await response.aread()
                        answer_of(response)
                    async for piece in response.aiter_bytes():
                        started = True
                        target.write(piece)
        except Unreachable as failure:
            if started:
                raise Unreachable("the gateway broke off in the middle: try again") from failure
            raise
        return started


def _credentials(key: str | None) -> dict[str, str]:
    """Return the header that authenticates to the gateway: with `key`, else CADRE_API_KEY. Raises SettingError."""
    key = (gateway_key() if key is None else key).strip()
    if not (key.isascii() and key.isprintable()):
        raise SettingError("CADRE_API_KEY is no key: write the one that `cadre keys create` printed, on one line")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _length(file: BinaryIO | bytes) -> dict[str, str]:
    """Return the header that lets the gateway refuse a file that is too large before it is sent."""
    if isinstance(file, bytes):
        return {}
    with contextlib.suppress(OSError, ValueError):
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode):
            return {"Content-Length": str(found.st_size - file.tell())}
    return {}


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


PAGE_SIZE = 200

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a run that a gateway did not answer for is asked for again."""


class RunRequests(Transport):
    """The requests that a client and the handles of its runs share. Every method raises ClientError."""

    async def post_once(
        self, path: str, body: Any, *, key: str | None = None, method: str = "POST", by: str = ""
    ) -> dict[str, Any]:
        """Send a request whose effect is wanted once: one that was lost is sent again, with the same key."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex, **({"Cadre-User": by} if by else {})}
        for tries, pause in enumerate((*_PAUSES_SECONDS, None)):
            try:
                return await self.request(method, path, json=body, headers=headers)
            except Unreachable as failure:
                if pause is None or not _is_worth_another_try(failure, first=tries == 0):
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def get_run(self, run_id: str, *, full: bool = False, limit: int | None = None, after: int = 0) -> RunDetail:
        """Return the run with its output and all runs below it; `full` adds the steps of each.

        With `limit` each run has so many of those directly below it and of its steps, this one those behind the first
        `after`; `next` is `after` for the next page, None on the last.
        """
        params: dict[str, Any] = {"full": "true"} if full else {}
        if limit is not None:
            params |= {"limit": limit, "after": after}
        return typed(await self.request("GET", f"{RUNS}/{run_id}", params=params), RunDetail)

    async def approvals(self, *, agent: str | None = None, run: str | None = None) -> list[Approval]:
        """Return the calls that wait for a person, newest first; `run` stands for itself and all runs below it."""
        which = {"agent": agent, "run": run, "limit": PAGE_SIZE}
        pages = self.pages("/v1/approvals", "approvals", "before", which)
        return [typed(item, Approval) async for item in pages]

    async def approve(
        self,
        call: str,
        *,
        only: Sequence[int] | None = None,
        edits: Sequence[CallEdit | Mapping[str, Any]] = (),
        know: Sequence[str] = (),
        feedback: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Let a call be made that waits for a person.

        Of the calls that a question proposes `only` those with these numbers are made, from 1, or all as `edits`
        change, drop and add them. The values of the arguments in `know` are known to the run's policies from here on.
        Raises Conflict when somebody else was first, it expired, or its run has ended.
        """
        some: dict[str, Any] = {"only": [*only]} if only is not None else {}
        some |= {"edits": to_builtins([*edits])} if edits else {}
        some |= {"know": [*know]} if know else {}
        return await self._decide(call, "approved", feedback, by, some)

    async def reject(self, call: str, *, feedback: str = "", by: str = "") -> ApprovalDecision:
        """Turn down a call that waits for a person; the model reads the feedback. Raises Conflict as `approve`."""
        return await self._decide(call, "rejected", feedback, by, {})

    async def correct(
        self,
        call: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        tool: str | None = None,
        replace: bool = False,
        feedback: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Have a call made with these arguments in place of those with the same names, or another tool called.

        `replace`: these are all arguments. Raises InvalidRequest for arguments that the tool does not take, Conflict as
        `approve`.
        """
        changes = {"arguments": arguments, "tool": tool, "replace": replace or None}
        given = {key: value for key, value in changes.items() if value is not None}
        return await self._decide(call, "corrected", feedback, by, given)

    async def _decide(
        self,
        call: str,
        verdict: Verdict,
        feedback: str,
        by: str,
        more: Mapping[str, Any],
    ) -> ApprovalDecision:
        body = {"verdict": verdict, "feedback": feedback, "by": by, **more}
        return typed(await self.request("POST", f"/v1/approvals/{call}", json=body), ApprovalDecision)


def _is_worth_another_try(failure: Unreachable, *, first: bool) -> bool:
    """Return whether the gateway may be there again in a moment."""
    cause = failure.__cause__
    if isinstance(cause, httpx2.ConnectError):
        # No run exists, unless one was there a moment ago.
        return not first
    return cause is None or isinstance(cause, (httpx2.ReadError, httpx2.RemoteProtocolError))
