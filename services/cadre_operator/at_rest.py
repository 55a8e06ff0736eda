"""Agents that are scaled to zero: the card by which they are known then goes with the object."""

from __future__ import annotations

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.values import Values
from cadre_operator.gateways import Gateways
from cadre_operator.namespace import REVISION_OF

FINALIZER = "cadre.dev/card-at-rest"
"""Keeps an Agent until the gateway has taken its card away."""


class AgentsAtRest:
    """The agents of all namespaces that may have no replica. Their cards are put by the Jobs that make their queues."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    async def settle(self, found: Manifest, values: Values) -> None:
        """Raises SpecError when the gateway keeps the card of an agent that is going away."""
        if (found["metadata"].get("annotations") or {}).get(REVISION_OF):
            return  # the card is that of the first
        name = found["metadata"]["name"]
        if found["metadata"].get("deletionTimestamp"):
            await self._gateways.let_go(found, FINALIZER, f"/v1/agents/{name}", values)
            return
        scale = values.workload(f"agent/{name}").scale
        if values.keda and scale is not None and scale.min == 0:
            await self._gateways.hold(found, FINALIZER)
