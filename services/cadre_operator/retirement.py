"""Retirement of what has no object any more: the gateway forgets it, whether it is at rest or away."""

from __future__ import annotations

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.values import Values
from cadre_operator.desired import Desired
from cadre_operator.gateways import Gateways
from cadre_operator.namespace import REVISION_OF

FINALIZER = "cadre.dev/card-at-rest"
"""Keeps an Agent until the gateway has taken its card away."""


class Retirement:
    """The agents, tools and pools of all namespaces. The object of an agent that may have no replica is held until its
    card is gone, which the Job that makes its queues has put. The keys of everything else expire if the gateway cannot
    be asked to forget it."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._served: dict[str, dict[str, set[str]]] = {}
        """By namespace, what its objects have asked for and the gateway may still know, as `Desired.served`."""

    async def follow(self, namespace: str, wanted: Desired, values: Values) -> str:
        """Retire what the objects of the namespace do not ask for any more; what an object has asked for stays while
        the object is refused. Return what went wrong, empty when nothing did."""
        known = self._served.setdefault(namespace, {})
        known |= wanted.served
        gone = [path for path, owners in known.items() if owners.isdisjoint(wanted.problems)]
        for path in sorted({*gone} - wanted.served.keys()):
            if told := await self._gateways.forget(path, values):
                return f"{path}: {told}"
            del known[path]
        if not known:
            del self._served[namespace]
        return ""

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
