"""The client behind nats-py's: what it mends is what the original has, and each mend has a reason and a test."""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from nats.aio.client import Client

from cadre.adapters.nats.connection.client import NatsClient, _header_lines

ROOT = Path(__file__).parents[2]
DECISION = ROOT / "docs" / "decisions" / "0016-a-mended-client.md"
_ROW = re.compile(r"^\| `(\w+)` \|.*\| `([\w/.]+)::(\w+)` \|$", re.MULTILINE)


def mended() -> dict[str, Any]:
    """Return the methods of nats-py's client that are replaced, by name."""
    own = {name: getattr(one, "__func__", one) for name, one in vars(NatsClient).items() if name != "__init__"}
    return {name: one for name, one in own.items() if name in vars(Client) and isinstance(one, FunctionType)}


def test_the_original_calls_each_mended_method_as_before() -> None:
    """A version of nats-py that renames one, or gives it other parameters, would leave a mend unused."""
    for name, own in mended().items():
        original = getattr(vars(Client)[name], "__func__", vars(Client)[name])
        theirs, ours = list(inspect.signature(original).parameters), list(inspect.signature(own).parameters)
        if isinstance(vars(Client)[name], FunctionType) and not isinstance(vars(NatsClient)[name], FunctionType):
            theirs = theirs[1:]
        assert ours == theirs, name
        assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(original), name


def test_each_mend_has_its_reason_and_its_test() -> None:
    rows = {name: (file, test) for name, file, test in _ROW.findall(DECISION.read_text())}
    assert rows.keys() == mended().keys()
    for file, test in rows.values():
        assert re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), test


def test_no_version_is_used_whose_private_names_nobody_has_read() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = re.search(r"^nats-py>=(.+),<(.+)$", "\n".join(wanted), re.MULTILINE)
    assert found is not None, "nats-py has a floor and a ceiling"
    assert numbers(found[1]) <= numbers(version("nats-py")) < numbers(found[2])


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(".")]


HEADERS = [
    {"Nats-Msg-Id": "r1_1_0"},
    {"Status": "not one", "A": "b:c", "Empty": ""},
    {"Nats-Expected-Last-Subject-Sequence": "7", "Nats-TTL": "5s", "Spaced": "a b"},
]


@pytest.mark.parametrize("headers", HEADERS)
async def test_headers_are_read_as_the_original_reads_them(headers: dict[str, str]) -> None:
    raw = _header_lines(headers)
    assert raw is not None
    original = await Client()._process_headers(raw)
    assert NatsClient._parse_header_lines(raw[len(b"NATS/1.0\r\n") :]) == original == headers


class _Sent(Client):
    """Keeps what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.sent += cmd

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        return None


@pytest.mark.parametrize("headers", [None, *HEADERS])
async def test_a_message_is_written_as_the_original_writes_it(headers: dict[str, str] | None) -> None:
    theirs, ours = _Sent(), NatsClient(lambda reason: None)
    theirs._status = ours._status = Client.CONNECTED
    theirs._max_payload = ours._max_payload = 1_000
    await theirs.publish("a.b", b"data", "inbox.1", headers)
    await ours.publish("a.b", b"data", "inbox.1", headers)
    assert b"".join(ours._pending) == theirs.sent
