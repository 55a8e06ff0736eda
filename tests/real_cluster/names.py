"""The name server of a cluster of the tests: addresses of services and of the pods behind them."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

_DOMAIN = "svc.cluster.local"
Lists = Callable[[], tuple[list[dict[str, Any]], list[dict[str, Any]]]]


class NameServer:
    """Answers over UDP at port 53. `lists` returns all services and all slices of endpoints."""

    def __init__(self, address: str, lists: Lists) -> None:
        self._address, self._lists = address, lists
        self._known: dict[str, list[str]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._learn, self._answer)]

    def start(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self._address, 53))
        for one in self._threads:
            one.start()

    def _learn(self) -> None:
        while True:
            time.sleep(0.5)
            try:
                self._known = names(*self._lists())
            except Exception as error:  # the API server may be away: what is known stays
                print(f"name server: {error}")

    def _answer(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            with contextlib.suppress(OSError):  # the client's node may be dead
                self._socket.sendto(answer(query, self._known), client)


def names(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the addresses by name, in full."""
    found: dict[str, list[str]] = {}
    headless: dict[str, bool] = {}
    for one in services:
        name = f"{one['metadata']['name']}.{one['metadata']['namespace']}.{_DOMAIN}"
        address = one["spec"].get("clusterIP", "")
        found[name] = [address] if address and address != "None" else []
        if address == "None":
            headless[name] = bool(one["spec"].get("publishNotReadyAddresses"))
    for one in slices:
        service = (one["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        name = f"{service}.{one['metadata']['namespace']}.{_DOMAIN}"
        for end in one.get("endpoints") or [] if name in headless else []:
            if headless[name] or end.get("conditions", {}).get("ready"):
                found[name] += end["addresses"]
                if end.get("hostname"):
                    found.setdefault(f"{end['hostname']}.{name}", []).extend(end["addresses"])
    return found


def answer(query: bytes, known: dict[str, list[str]]) -> bytes:
    """Return the answer to a question: addresses, none of another kind, or that there is no such name."""
    labels, place = [], 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode())
        place += 1 + length
    end = place + 5
    (kind,) = struct.unpack("!H", query[place + 1 : place + 3])
    name = ".".join(labels).lower()
    addresses = known.get(name, []) if kind == 1 else []
    is_there = name in known or any(one.endswith(f".{name}") for one in known)
    flags = 0x8580 | (0 if is_there else 3)
    head = query[:2] + struct.pack("!5H", flags, 1, len(addresses), 0, 0)
    records = (struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(one) for one in addresses)
    return head + query[12:end] + b"".join(records)
