"""Schedules as objects: made, replaced and removed at the namespace's gateway, where they really are."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import httpx2

from cadre.automation.automation_file import automation_of, path_of
from cadre.automation.schedule import ScheduleSpec
from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.pod_spec import GATEWAY_SECRET
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.cluster import Cluster
from cadre_operator.status import ACCEPTED, Condition, refused

FINALIZER = "cadre.dev/schedule"
"""Keeps an object until the gateway has forgotten its schedule."""

_SECONDS = 10.0


class Schedules:
    """The schedules of all namespaces; `address` is the gateway's, with {namespace} and {gateway} in it."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self._address = address

    async def settle(self, found: Manifest, values: Values) -> tuple[Condition, ...]:
        """Brings the gateway up to date with the object; () for one that is going away."""
        if found["metadata"].get("deletionTimestamp"):
            await self._remove(found, values)
            return ()
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            await self._cluster.set_finalizers(found, [*finalizers, FINALIZER])
        try:
            spec = automation_of(ScheduleSpec, found["metadata"]["name"], found["spec"])
        except SpecError as error:
            return refused(str(error))
        if _is_made(found):
            return ACCEPTED, Condition("Ready", True, "Scheduled")
        told = await self._ask("PUT", path_of(spec), values, found["spec"])
        return ACCEPTED, Condition("Ready", not told, "Scheduled" if not told else "GatewayRefused", told)

    async def _remove(self, found: Manifest, values: Values) -> None:
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return
        name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
        if await self._cluster.get("Service", namespace, _gateway(values)) is not None:
            told = await self._ask("DELETE", f"/v1/schedules/{name}", values)
            if told:
                await self._cluster.tell(found, "GatewayRefused", told, is_warning=True)
                raise SpecError(f"schedule {namespace}/{name}: {told}")
        await self._cluster.set_finalizers(found, [one for one in finalizers if one != FINALIZER])

    async def _ask(self, method: str, path: str, values: Values, body: Any = None) -> str:
        """What went wrong; empty when nothing did. A schedule that is gone already is removed."""
        url = self._address.format(namespace=values.namespace, gateway=_gateway(values))
        key = await self._key(values.namespace)
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

    async def _key(self, namespace: str) -> str:
        secret = await self._cluster.get("Secret", namespace, GATEWAY_SECRET)
        held = ((secret or {}).get("data") or {}).get("CADRE_ADMIN_KEY", "")
        return b64decode(held).decode()


def _gateway(values: Values) -> str:
    return object_name(values.instance, "gateway")


def _is_made(found: Manifest) -> bool:
    """Whether the gateway has it as it is now."""
    told = (found.get("status") or {}).get("conditions") or ()
    generation = found["metadata"]["generation"]
    return any(
        one["type"] == "Ready" and one["status"] == "True" and one.get("observedGeneration") == generation
        for one in told
    )
