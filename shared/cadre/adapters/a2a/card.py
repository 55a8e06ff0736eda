"""Read the card of a remote agent, of version 1.0 or 0.3, and choose the interface that it is asked at."""

from __future__ import annotations

from typing import NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec

from cadre.adapters.a2a.bindings import Interface, RemoteRefused, interface_of
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.spec.remote_agent import Transport


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
