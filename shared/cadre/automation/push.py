"""Addresses at which the callers of tasks want to be told how these go, kept by the task."""

import re
from urllib.parse import urlsplit

import msgspec

from cadre.errors import SpecError
from cadre.protocol.access import NO_MAKER, Maker
from cadre.spec.names import check_name

PUSHES = "push"
"""The kind of the definitions in which the addresses are kept."""

PUSH = "task.push"
"""The type of the deliveries to such an address."""

MAX_PUSHES = 8
"""Addresses that one task has."""

ATTEMPTS = 9
"""Tries of one delivery; then it is a dead letter."""

_HEADER = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class PushTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checked address. Raises SpecError."""

    id: str
    url: str
    token: str = ""
    """Sent along, so that the receiver knows whom it is told by."""
    scheme: str = ""
    """Of the header Authorization, such as `Bearer`; "" sends none."""
    credentials: str = ""
    maker: Maker = NO_MAKER
    """The maker who gave the address: messages are sent to it as long as they have a key."""

    def __post_init__(self) -> None:
        check_name("push notification", self.id)
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise SpecError(f"{self.url!r}: write https://HOST/PATH, without a user", key="url")
        if self.scheme and not _SCHEME.fullmatch(self.scheme):
            raise SpecError("write the word of an HTTP scheme, such as Bearer", key="authentication.scheme")
        for key, text in (("token", self.token), ("authentication.credentials", self.credentials)):
            if text and not _HEADER.fullmatch(text):
                raise SpecError("it goes into a header: write ASCII without line breaks", key=key)

    def headers(self) -> dict[str, str]:
        """What tells the receiver who sends."""
        found = {"X-A2A-Notification-Token": self.token} if self.token else {}
        if self.scheme:
            found["Authorization"] = f"{self.scheme} {self.credentials}".strip()
        return found


class TaskPushes(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one task, a root run."""

    run: str
    targets: list[PushTarget]

    def target(self, name: str) -> PushTarget | None:
        """The address of that id."""
        return next((one for one in self.targets if one.id == name), None)

    def without(self, name: str) -> "TaskPushes":
        """The others."""
        return TaskPushes(run=self.run, targets=[one for one in self.targets if one.id != name])
