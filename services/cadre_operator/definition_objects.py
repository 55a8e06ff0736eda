"""Schedules, triggers, notices and budgets as objects: made, replaced and removed at the namespace's gateway."""

from __future__ import annotations

from cadre.automation.automation_file import SCHEDULE, AnySpec, Definition, automation_of
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.object_kinds import GROUP
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.gateways import Gateways
from cadre_operator.status import ACCEPTED, Condition, refused


class DefinitionObjects:
    """The definitions of all namespaces."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    async def settle(
        self, definition: Definition[AnySpec], found: Manifest, values: Values
    ) -> tuple[Condition, ...]:
        """Brings the gateway up to date with the object; () for one that is going away. Raises SpecError."""
        name = found["metadata"]["name"]
        # Keeps the object until the gateway has forgotten what it stands for.
        finalizer = f"{GROUP}/{definition.name}"
        if found["metadata"].get("deletionTimestamp"):
            await self._gateways.let_go(found, finalizer, f"{definition.path}/{name}", values)
            return ()
        await self._gateways.hold(found, finalizer)
        try:
            spec = automation_of(definition.spec, name, found["spec"])
        except SpecError as error:
            return refused(str(error))
        reason = "Scheduled" if definition is SCHEDULE else "Made"
        if _is_made(found):
            return ACCEPTED, Condition("Ready", True, reason)
        failure = await self._gateways.ask("PUT", f"{definition.path}/{spec.name}", values, found["spec"])
        return ACCEPTED, Condition("Ready", not failure, reason if not failure else "GatewayRefused", failure)


def _is_made(found: Manifest) -> bool:
    """Return whether the gateway has the current version of the object."""
    told = (found.get("status") or {}).get("conditions") or ()
    generation = found["metadata"]["generation"]
    return any(
        one["type"] == "Ready" and one["status"] == "True" and one.get("observedGeneration") == generation
        for one in told
    )
