"""Schedules as objects: made, replaced and removed at the namespace's gateway, where they really are."""

from __future__ import annotations

from cadre.automation.automation_file import automation_of, path_of
from cadre.automation.schedule import ScheduleSpec
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.gateways import Gateways
from cadre_operator.status import ACCEPTED, Condition, refused

FINALIZER = "cadre.dev/schedule"
"""Keeps an object until the gateway has forgotten its schedule."""


class Schedules:
    """The schedules of all namespaces."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    async def settle(self, found: Manifest, values: Values) -> tuple[Condition, ...]:
        """Brings the gateway up to date with the object; () for one that is going away. Raises SpecError."""
        name = found["metadata"]["name"]
        if found["metadata"].get("deletionTimestamp"):
            await self._gateways.let_go(found, FINALIZER, f"/v1/schedules/{name}", values)
            return ()
        await self._gateways.hold(found, FINALIZER)
        try:
            spec = automation_of(ScheduleSpec, name, found["spec"])
        except SpecError as error:
            return refused(str(error))
        if _is_made(found):
            return ACCEPTED, Condition("Ready", True, "Scheduled")
        told = await self._gateways.ask("PUT", path_of(spec), values, found["spec"])
        return ACCEPTED, Condition("Ready", not told, "Scheduled" if not told else "GatewayRefused", told)


def _is_made(found: Manifest) -> bool:
    """Whether the gateway has it as it is now."""
    told = (found.get("status") or {}).get("conditions") or ()
    generation = found["metadata"]["generation"]
    return any(
        one["type"] == "Ready" and one["status"] == "True" and one.get("observedGeneration") == generation
        for one in told
    )
