"""Definitions as people change them: the one resource that schedules, triggers, notices and standing budgets are."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.automation.automation_file import Definition, Spec
from cadre.errors import Fenced, UnreadableMessage
from cadre_gateway.access.principal import Principal
from cadre_gateway.requests.problems import Problem

State = TypeVar("State", bound=msgspec.Struct)
View = TypeVar("View", bound=msgspec.Struct)


class Resource(ABC, Generic[Spec, State, View]):
    """The definitions of one kind: written as a Spec, kept as a State, shown as a View.

    Each change is read, made and written under the fence, so no writer loses what another has written. Every method
    raises RetryableError, and a problem for a request that cannot be met.
    """

    definition: Definition[Spec]
    view: type[View]
    states: NatsDefinitions[State]

    @abstractmethod
    def stored(self, spec: Spec, before: State | None, caller: Principal) -> State:
        """Return what is kept once the caller has written the specification, in the place of what was kept `before`.
        Raises a problem for what the caller may not write."""

    @abstractmethod
    async def shown(self, state: State, upcoming: int) -> View:
        """Return the definition as the API shows it, one with ticks with so many of the next ones."""

    @abstractmethod
    async def changed(self, name: str) -> None:
        """Take note of a definition that was written or removed here."""

    async def known(self) -> list[State]:
        """Return all definitions by name, without those that only a newer gateway can read."""
        return [one for one in await self.states.all() if not isinstance(one, UnreadableMessage)]

    async def list(self, upcoming: int) -> list[View]:
        """Return all definitions as the API shows them, by name."""
        return await asyncio.gather(*(self.shown(one, upcoming) for one in await self.known()))

    async def show(self, name: str, upcoming: int) -> View:
        """Return one definition as the API shows it. Raises a 404 problem."""
        return await self.shown(await self.read(name), upcoming)

    async def read(self, name: str) -> State:
        """Return one definition as it is kept. Raises a 404 problem."""
        return self._there(name, (await self._find(name))[0])

    async def put(self, caller: Principal, spec: Spec, *, only_new: bool = False) -> View:
        """Make or replace a definition. Raises a 409 problem when there is one and it is to be new."""

        def written(before: State | None) -> State:
            if before is not None and only_new:
                raise Problem(
                    409,
                    f"{self.definition.name}-exists",
                    f"there is a {self.definition.name} {spec.name!r}: PUT replaces it, DELETE removes it",
                )
            return self.stored(spec, before, caller)

        return await self._write(spec.name, written)

    async def change(self, name: str, change: Callable[[State], State]) -> View:
        """Change what is kept of a definition. Raises a 404 problem."""
        return await self._write(name, lambda before: change(self._there(name, before)))

    async def remove(self, name: str) -> None:
        """Remove a definition, also one that only a newer gateway can read. Raises a 404 problem."""
        if not await self.states.remove(name):
            raise self._unknown(name)
        await self.changed(name)

    async def _write(self, name: str, change: Callable[[State | None], State]) -> View:
        while True:
            before, fence = await self._find(name)
            after = change(before)
            try:
                if after != before:
                    await self.states.write(name, after, fence)
            except Fenced:
                continue
            break
        await self.changed(name)
        # What came of it: a schedule may have handled a tick. One that is removed meanwhile was made all the same.
        present, _ = await self._find(name)
        return await self.shown(present or after, 1)

    async def _find(self, name: str) -> tuple[State | None, int]:
        try:
            return await self.states.read(name)
        except UnreadableMessage as error:
            raise Problem(
                409, "newer-version", f"{self.definition.name} {name!r} is of a newer gateway: {error}"
            ) from error

    def _there(self, name: str, found: State | None) -> State:
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> Problem:
        kind = self.definition.name
        detail = f"there is no {kind} {name!r}: GET {self.definition.path} lists them"
        return Problem(404, f"unknown-{kind}", detail)


def spread(view: type[View], spec: msgspec.Struct, *, maker: str, paused_for: str) -> View:
    """Return a view that has the keys of the specification itself."""
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return view(**fields, maker=maker, paused_for=paused_for)
