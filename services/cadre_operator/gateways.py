"""The gateways of namespaces, for what they alone hold; an object that stands for it goes once they have let it go."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import httpx2

from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.pod_spec import GATEWAY_SECRET
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.cluster import Cluster

_SECONDS = 10.0


class Gateways:
    """The gateways of all namespaces; `address` is theirs, with {namespace} and {gateway} in it."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self._address = address

    async def ask(self, method: str, path: str, values: Values, body: Any = None) -> str:
        """What went wrong; empty when nothing did. What is gone already is removed."""
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

    async def _key(self, namespace: str) -> str:
        secret = await self._cluster.get("Secret", namespace, GATEWAY_SECRET)
        held = ((secret or {}).get("data") or {}).get("CADRE_ADMIN_KEY", "")
        return b64decode(held).decode()


def _gateway(values: Values) -> str:
    return object_name(values.instance, "gateway")
