"""Create, change and delete at the namespace's gateway what only the gateway holds, such as schedules and budgets.

An object that stands for it keeps a finalizer until the gateway has let it go.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import httpx2

from cadre.automation.automation_file import SCHEDULE, AnySpec, Definition, automation_of
from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.object_kinds import GROUP
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.cluster import Cluster
from cadre_operator.desired import ADMIN_KEY, Desired
from cadre_operator.namespace import REVISION_OF
from cadre_operator.status import ACCEPTED, Condition, refused

_SECONDS = 10.0

FINALIZER = "cadre.dev/card-at-rest"
"""Keeps an Agent until the gateway has taken its card away."""


class Gateways:
    """The gateways of all namespaces; `address` is theirs, with {namespace} and {gateway} in it."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self._address = address

    async def ask(self, method: str, path: str, values: Values, body: Any = None) -> str:
        """Return what went wrong; empty when nothing did. What is gone already is removed."""
        url = self._address.format(namespace=values.namespace, gateway=_gateway(values))
        key = await self._key(values)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with httpx2.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
                answer = await client.request(method, f"{url}{path}", json=body, headers=headers)
        except httpx2.HTTPError as error:
            return f"the gateway at {url} does not answer: {error or type(error).__name__}"
        is_gone = method == "DELETE" and answer.status_code == 404
        return (
            ""
            if answer.is_success or is_gone
            else f"the gateway answered {answer.status_code}: {answer.text[:300]}"
        )

    async def forget(self, path: str, values: Values) -> str:
        """Delete `path` at the gateway, where there still is one; return what went wrong, empty when nothing did."""
        if await self._cluster.get("Service", values.namespace, _gateway(values)) is None:
            return ""
        return await self.ask("DELETE", path, values)

    async def hold(self, found: Manifest, finalizer: str) -> None:
        """Keeps the object until its gateway has let go of it."""
        finalizers = found["metadata"].get("finalizers") or []
        if finalizer not in finalizers:
            await self._cluster.set_finalizers(found, [*finalizers, finalizer])

    async def let_go(self, found: Manifest, finalizer: str, path: str, values: Values) -> None:
        """Deletes `path` at the gateway, where there still is one, then lets the object go. Raises SpecError."""
        finalizers = found["metadata"].get("finalizers") or []
        if finalizer not in finalizers:
            return
        namespace = found["metadata"]["namespace"]
        if told := await self.forget(path, values):
            await self._cluster.tell(found, "GatewayRefused", told, is_warning=True)
            raise SpecError(f"{found['kind']} {namespace}/{found['metadata']['name']}: {told}")
        await self._cluster.set_finalizers(found, [one for one in finalizers if one != finalizer])

    async def _key(self, values: Values) -> str:
        secret = await self._cluster.get("Secret", values.namespace, values.gateway.secret)
        held = ((secret or {}).get("data") or {}).get(ADMIN_KEY, "")
        return b64decode(held).decode()


def _gateway(values: Values) -> str:
    return object_name(values.instance, "gateway")


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
