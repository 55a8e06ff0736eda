"""Create, change and delete at the namespace's gateway what only the gateway holds, such as schedules and budgets.

What objects have asked a gateway for is noted in their namespace until the gateway has forgotten it. So no object waits
for its gateway when it is deleted, and what was deleted while no operator looked is forgotten as well.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Mapping
from typing import Any

import httpx2
import msgspec

from cadre.automation.automation_file import SCHEDULE, AnySpec, Definition, automation_of
from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import CADRE, MANAGED_BY, Manifest, manifest
from cadre.deploy.k8s.values import Values
from cadre.errors import SpecError
from cadre_operator.cluster import MANAGER, Cluster
from cadre_operator.desired import ADMIN_KEY, Noted
from cadre_operator.status import ACCEPTED, Condition, refused

_SECONDS = 10.0

NOTES = "cadre-operator-notes"
"""The ConfigMap of a namespace that says what its gateway may still hold."""

_KEY = "asked.json"


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
        return "" if answer.is_success or is_gone else f"the gateway answered {answer.status_code}: {answer.text[:300]}"

    async def is_there(self, values: Values) -> bool:
        """Return whether the namespace has a gateway, be it busy or broken."""
        return await self._cluster.get("Service", values.namespace, _gateway(values)) is not None

    async def _key(self, values: Values) -> str:
        secret = await self._cluster.get("Secret", values.namespace, values.gateway.secret)
        held = ((secret or {}).get("data") or {}).get(ADMIN_KEY, "")
        return b64decode(held).decode()


def _gateway(values: Values) -> str:
    return object_name(values.instance, "gateway")


class Notes:
    """Records what the gateways of all namespaces may still hold for objects: agents, tools, pools and definitions."""

    def __init__(self, cluster: Cluster, gateways: Gateways) -> None:
        self._cluster = cluster
        self._gateways = gateways

    async def add(self, values: Values, asked: Mapping[str, Noted]) -> dict[str, Noted]:
        """Note what objects ask for now, by its path at the gateway; return all that is noted."""
        found = await self._cluster.get("ConfigMap", values.namespace, NOTES)
        text = ((found or {}).get("data") or {}).get(_KEY, "{}")
        try:
            known = msgspec.json.decode(text, type=dict[str, Noted])
        except msgspec.DecodeError as error:
            raise SpecError(f"ConfigMap {NOTES}: {_KEY}: {error}: delete the ConfigMap") from error
        noted = {**known, **asked}
        if noted != known:
            await self._write(values.namespace, noted)
        return noted

    async def follow(
        self, values: Values, noted: dict[str, Noted], asked: Mapping[str, Noted], kept: Collection[str]
    ) -> str:
        """Have the gateway forget what is noted and no object asks for any more. Return what went wrong, empty when
        nothing did.

        What the Deployments `kept` serve stays known. Where there is no gateway the notes wait for one, for what it
        held may be kept in NATS.
        """
        gone = sorted(path for path in noted.keys() - asked.keys() if noted[path].deployment not in kept)
        if not gone or not await self._gateways.is_there(values):
            return ""
        failed = ""
        for path in gone:
            if failed := await self._gateways.ask("DELETE", path, values):
                failed = f"{path}: {failed}"
                break
            del noted[path]
        await self._write(values.namespace, noted)
        return failed

    async def _write(self, namespace: str, noted: Mapping[str, Noted]) -> None:
        about = {"name": NOTES, "namespace": namespace, "labels": {**CADRE, MANAGED_BY: MANAGER}}
        text = msgspec.json.encode(noted, order="sorted").decode()
        made = await self._cluster.apply(manifest("v1", "ConfigMap", about, data={_KEY: text}))
        if not noted:
            await self._cluster.delete(made)


class DefinitionObjects:
    """The definitions of all namespaces."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    async def settle(self, definition: Definition[AnySpec], found: Manifest, values: Values) -> tuple[Condition, ...]:
        """Bring the gateway up to date with the object; return the object's conditions."""
        name = found["metadata"]["name"]
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
