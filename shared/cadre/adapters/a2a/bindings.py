"""Read the card of a remote agent, choose an interface that it offers, and speak A2A's methods there: JSON-RPC or
HTTP+JSON, version 1.0 or 0.3.

Parameters and results are always those of version 1.0.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple, get_args
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from cadre.errors import CadreError
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.protocol.a2a_03 import METHODS, message_from_03, message_to_03, message_to_03_http, task_from_03
from cadre.spec.remote_agent import Transport
from cadre.versions import same_minor

Json = dict[str, Any]

_RPC, _HTTP = "JSONRPC", "HTTP+JSON"
_NEW, _OLD = "1.0", "0.3"
_SPOKEN: dict[tuple[str, str], Transport] = {
    (_RPC, _NEW): "JSONRPC 1.0",
    (_HTTP, _NEW): "HTTP+JSON 1.0",
    (_RPC, _OLD): "JSONRPC 0.3",
    (_HTTP, _OLD): "HTTP+JSON 0.3",
}
_OLD_METHODS = {new: old for old, new in METHODS.items()}
_LEAST_ERROR = 400
_INTERNAL_ERROR = -32603
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
_NOT_TAKEN = (425, 429)


class RemoteRefused(CadreError):
    """The remote agent does not do what it was asked, and would not if it were asked again."""


class RemoteAgentUnreachable(CadreError):
    """The remote agent has given no answer."""

    def __init__(self, text: str, *, may_have_arrived: bool) -> None:
        super().__init__(text)
        self.may_have_arrived = may_have_arrived


class Interface(NamedTuple):
    """One address of a remote agent, and the form of what is said there."""

    url: str
    transport: str
    """A binding and a version. A card may offer others than Cadre speaks."""
    tenant: str = ""

    @property
    def is_spoken(self) -> bool:
        """Return whether Cadre speaks it."""
        return self.transport in _SPOKEN.values()

    @property
    def is_old(self) -> bool:
        """Return whether it is version 0.3."""
        return self.transport.endswith(_OLD)

    @property
    def is_http(self) -> bool:
        """Return whether methods are paths of HTTP."""
        return self.transport.startswith(_HTTP)

    @property
    def lists_tasks(self) -> bool:
        """Return whether the protocol lists tasks there."""
        return not self.is_old


class HttpCall(NamedTuple):
    """One request of HTTP."""

    verb: str
    url: str
    headers: dict[str, str]
    body: bytes


def interface_of(url: str, binding: str, version: str, tenant: str = "") -> Interface:
    """Return the interface that a card names; its version may name a patch."""
    binding = binding.upper()
    for (known, spoken), transport in _SPOKEN.items():
        if binding == known and same_minor(version, spoken):
            return Interface(url, transport, tenant)
    return Interface(url, f"{binding} {version}".strip(), tenant)


def is_temporary(status: int) -> bool:
    """Return whether an answer with this status says that the agent may answer later."""
    return status in _TEMPORARY


def request_of(place: Interface, method: str, params: Json) -> HttpCall:
    """Return the request that calls the method with the parameters of version 1.0."""
    headers = {"Content-Type": "application/json", "A2A-Version": _OLD if place.is_old else _NEW}
    if place.is_http:
        verb, path, body = _old_path(method, params) if place.is_old else _path(method, params)
        tenant = f"/{quote(place.tenant, safe='')}" if place.tenant else ""
        # Servers of version 1.0 read the tenant from the path, and may read it from the body.
        if body is not None and place.tenant and not place.is_old:
            body = {**body, "tenant": place.tenant}
        data = b"" if body is None else msgspec.json.encode(body)
        return HttpCall(verb, f"{place.url.rstrip('/')}{tenant}{path}", headers, data)
    if place.is_old:
        method, params = _OLD_METHODS[method], _old_params(params, message_to_03)
    elif place.tenant:
        params = {"tenant": place.tenant, **params}
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return HttpCall("POST", place.url, headers, msgspec.json.encode(call))


def _path(method: str, params: Json) -> tuple[str, str, Json | None]:
    """Return the verb, the path below the address, and the body of a method over HTTP+JSON."""
    if method == "SendMessage":
        return "POST", "/message:send", params
    if method == "ListTasks":
        return "GET", _asking("/tasks", params), None
    task, others = _task_path(params)
    if method == "CancelTask":
        return "POST", f"{task}:cancel", others
    return "GET", _asking(task, others), None


def _old_path(method: str, params: Json) -> tuple[str, str, Json | None]:
    """Return the same of version 0.3."""
    if method == "SendMessage":
        return "POST", "/v1/message:send", _old_params(params, message_to_03_http)
    verb, path, body = _path(method, params)
    return verb, f"/v1{path}", body


def _task_path(params: Json) -> tuple[str, Json]:
    others = {key: value for key, value in params.items() if key != "id"}
    return f"/tasks/{quote(params['id'], safe='')}", others


def _asking(path: str, params: Json) -> str:
    return f"{path}?{urlencode(params)}" if params else path


def _old_params(params: Json, said: Any) -> Json:
    if "message" not in params:
        return params
    configuration = {"blocking": not params["configuration"].get("returnImmediately", False)}
    return {"message": said(params["message"]), "configuration": configuration}


def result_of(place: Interface, method: str, name: str, status: int, data: bytes) -> Json:
    """Return the result in the form of version 1.0, from what was answered.

    Raises RemoteRefused, and RemoteAgentUnreachable for a failure that may pass.
    """
    try:
        answer = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = None
    error = _error_in(answer, is_failure=place.is_http and status >= _LEAST_ERROR)
    if status in _TEMPORARY or (error or {}).get("code") == _INTERNAL_ERROR:
        text = f"{name}: {_text_of(error)}" if error else f"{name} answers {status}"
        raise RemoteAgentUnreachable(text, may_have_arrived=status not in _NOT_TAKEN)
    if error is not None:
        raise RemoteRefused(f"{name}: {_text_of(error)}")
    if not place.is_http:
        answer = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or status >= _LEAST_ERROR:
        raise RemoteRefused(f"{name}: {why_refused(status, place.url, place.transport)}")
    return _new_result(method, answer) if place.is_old else answer


def _error_in(answer: Any, *, is_failure: bool) -> Json | None:
    if not isinstance(answer, dict):
        return None
    if isinstance(error := answer.get("error"), dict):
        return error
    # Version 0.3 over HTTP has its words in the body itself.
    return answer if is_failure and isinstance(answer.get("message"), str) else None


def _text_of(error: Json) -> str:
    return str(error.get("message") or error.get("code"))


def _new_result(method: str, answer: Json) -> Json:
    if method != "SendMessage":
        return dict(task_from_03(answer))
    if "task" in answer or isinstance(answer.get("message"), dict):
        found = {"task": task_from_03(answer["task"])} if "task" in answer else {}
        return found or {"message": message_from_03(answer["message"])}
    is_message = answer.get("kind") == "message" or "status" not in answer
    return {"message": message_from_03(answer)} if is_message else {"task": task_from_03(answer)}


def why_refused(status: int, url: str, expected: str) -> str:
    """Return why an answer with this status cannot be used, and what to do about it."""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"{url} answers {status}: give a key in `headers`"
    return f"{url} answers {status}, and not as A2A's {expected}"


class RemoteCard(NamedTuple):
    """The addresses that a card offers, the preferred one first."""

    interfaces: list[Interface]
    knows_messages: bool
    """True if a message that is sent again finds its task."""


class _Interface(msgspec.Struct, frozen=True, rename="camel"):
    url: str
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""
    transport: str = ""
    """The binding, as version 0.3 names it."""


class _Extension(msgspec.Struct, frozen=True):
    uri: str = ""


class _Capabilities(msgspec.Struct, frozen=True):
    extensions: list[_Extension] | None = None


class _Card(msgspec.Struct, frozen=True, rename="camel"):
    supported_interfaces: list[_Interface] = []
    capabilities: _Capabilities = _Capabilities()
    url: str | None = None
    preferred_transport: str | None = None
    additional_interfaces: list[_Interface] | None = None
    protocol_version: str | None = None


_FIRST_TRANSPORT = "JSONRPC"
"""The transport of version 0.3 where a card names none."""


def read_card(data: bytes) -> RemoteCard:
    """Return what the card offers. Raises msgspec.DecodeError for data that is no card."""
    card = msgspec.json.decode(data, type=_Card)
    found = [
        interface_of(one.url, one.protocol_binding, one.protocol_version, one.tenant)
        for one in card.supported_interfaces
    ]
    version = card.protocol_version or "0.3"
    if card.url:
        found.append(interface_of(card.url, card.preferred_transport or _FIRST_TRANSPORT, version))
    found += [interface_of(one.url, one.transport, version) for one in card.additional_interfaces or []]
    if not found:
        raise msgspec.DecodeError("it names no address: neither `supportedInterfaces` nor `url`")
    extensions = {one.uri for one in card.capabilities.extensions or []}
    return RemoteCard(list(dict.fromkeys(found)), MESSAGES_ONCE in extensions)


def choose(card: RemoteCard, name: str, *, transport: str, origin: str) -> Interface:
    """Return the interface to ask at: of `transport` if that is given, at the origin of the URL `origin` if that is
    given, version 1.0 before 0.3, else in the card's order. Raises RemoteRefused."""
    offered = ", ".join(one.transport for one in card.interfaces)
    spoken = [one for one in card.interfaces if one.is_spoken]
    wanted = [one for one in spoken if transport in ("", one.transport)]
    if not wanted and transport:
        raise RemoteRefused(f"{name}: its card offers {offered}, and its file wants `transport: {transport}`")
    if not wanted:
        raise RemoteRefused(f"{name}: its card offers {offered}, and Cadre speaks {', '.join(get_args(Transport))}")
    near = [one for one in wanted if not origin or origin_of(one.url) == origin_of(origin)]
    if not near:
        raise RemoteRefused(
            f"{name}: its card leads to {wanted[0].url}, where its headers are not sent: name that as `url`, with"
            f" `transport: {wanted[0].transport}`, in place of the card if it is to have them"
        )
    return min(near, key=lambda one: one.is_old)


def origin_of(url: str) -> tuple[str, str]:
    """Return the scheme and the host of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
