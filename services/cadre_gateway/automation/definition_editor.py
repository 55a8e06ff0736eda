"""What people do with the definitions of one kind: list, show, remove."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.errors import UnreadableMessage
from cadre_gateway.requests.problems import Problem

D = TypeVar("D", bound=msgspec.Struct)


@dataclass(frozen=True)
class DefinitionEditor(Generic[D]):
    """Every method raises RetryableError, and a problem for a request that cannot be met."""

    definitions: NatsDefinitions[D]
    kind: str
    """Such as `trigger`."""

    async def all(self) -> list[D]:
        """All definitions by name, without those that only a newer gateway can read."""
        return [one for one in await self.definitions.all() if not isinstance(one, UnreadableMessage)]

    async def show(self, name: str) -> D:
        """One definition. Raises a 404 problem."""
        try:
            found, _ = await self.definitions.read(name)
        except UnreadableMessage as error:
            raise Problem(
                409, "newer-version", f"{self.kind} {name!r} is of a newer gateway: {error}"
            ) from error
        if found is None:
            raise Problem(
                404,
                f"unknown-{self.kind}",
                f"there is no {self.kind} {name!r}: GET /v1/{self.kind}s lists them",
            )
        return found

    async def remove(self, name: str) -> None:
        """Removes a definition. Raises a 404 problem."""
        if not await self.definitions.remove(name):
            raise Problem(
                404,
                f"unknown-{self.kind}",
                f"there is no {self.kind} {name!r}: GET /v1/{self.kind}s lists them",
            )
