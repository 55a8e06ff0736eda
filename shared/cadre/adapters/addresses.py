"""Decides which addresses others may name: the public internet, and what the operator allows."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from cadre.errors import SettingError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name and a port as texts. Raises OSError."""

EVERYTHING: tuple[Network, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))

# Not public, although older Pythons treat some of them as public; the last one serves secrets to Azure's machines.
_NOT_PUBLIC: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
)

# All that is given out for the internet so far.
_ALLOCATED = ipaddress.IPv6Network("2000::/3")

# Addresses that stand for one of IPv4: translators send what is sent there on to it.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")


class AddressRefused(Exception):
    """Nothing may be asked of an address. The text says why."""


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine, and only this machine reaches what listens there."""
    host = host.lower().rstrip(".").strip("[]")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (_embedded_ipv4(address) or address).is_loopback or address.is_loopback


def read_networks(variable: str, setting: str) -> tuple[Network, ...]:
    """Return the networks that the setting of this variable opens: none, all (`1`), or those listed. Raises
    SettingError."""
    if setting in ("", "0"):
        return ()
    if setting == "1":
        return EVERYTHING
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in setting.split(","))
    except ValueError as error:
        raise SettingError(
            f"{variable}={setting}: must be 0, 1 (all), or networks such as 10.1.0.0/16,127.0.0.1/32: {error}"
        ) from error


async def checked_addresses(host: str, port: int, allowed: tuple[Network, ...], resolve: Resolve) -> list[Address]:
    """Return the addresses of a host, all of which may be connected to.

    Raises AddressRefused when one may not be, or the host has none.
    """
    try:
        found = await resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"no host {host!r} is known") from error
    addresses = [ipaddress.ip_address(text) for text in dict.fromkeys(found)]
    if not addresses:
        raise AddressRefused(f"no host {host!r} is known")
    for address in addresses:
        if not may_visit(address, allowed):
            raise AddressRefused(f"{host} is at {address}, which is not on the public internet")
    return addresses


def may_visit(address: Address, allowed: tuple[Network, ...] = ()) -> bool:
    """Return whether an address is on the public internet, or in a network that is allowed."""
    if any(address in network for network in allowed):
        return True
    within = _embedded_ipv4(address)
    if within is not None:
        return may_visit(within, allowed)
    if isinstance(address, ipaddress.IPv6Address) and address not in _ALLOCATED:
        return False
    is_kept_back = any(address in network for network in _NOT_PUBLIC)
    # An address of multicast can be global.
    return address.is_global and not address.is_multicast and not address.is_reserved and not is_kept_back


def _embedded_ipv4(address: Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


async def system_resolve(host: str, port: int) -> list[str]:
    """Resolve a host name as the machine does. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
