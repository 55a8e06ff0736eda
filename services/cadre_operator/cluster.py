"""The Kubernetes API as the operator uses it: objects read, applied, removed, and watched."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import kopf

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.object_kinds import GROUP, OBJECT_KINDS, VERSION
from cadre.settings import api_server_of_pod

MANAGER = "cadre-operator"
"""The manager of a field: the name that server-side apply knows the operator by, and its mark on the objects it made.
"""

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_SECONDS = 30.0

_logger = logging.getLogger(__name__)

PLURALS: Mapping[str, tuple[str, str]] = {
    **{one.kind: (f"{GROUP}/{VERSION}", one.plural) for one in OBJECT_KINDS},
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "Deployment": ("apps/v1", "deployments"),
    "Job": ("batch/v1", "jobs"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "CiliumNetworkPolicy": ("cilium.io/v2", "ciliumnetworkpolicies"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
}
"""API version and plural of each kind that the operator reads or writes."""


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def login(**_: Any) -> kopf.ConnectionInfo | None:
    """Return how the API server is reached: as the pod's service account, else as the kubeconfig says.

    A pod finds it by the address in its environment, as other clients do, and needs no name server for it.
    """
    options: dict[str, Any] = {"logger": _logger, "settings": kopf.OperatorSettings()}
    account = kopf.login_with_service_account(**options)
    if account is not None and (url := api_server_of_pod()):
        account = replace(account, server=url)
    return account or kopf.login_with_kubeconfig(**options)


class Cluster:
    """A client of the Kubernetes API. Raises ApiError, and httpx2's errors of the transport."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def list(self, kind: str, namespace: str, labels: str = "") -> Sequence[Manifest]:
        """Return the objects of a kind, in all namespaces unless one is given; none of a kind that the cluster does not
        know."""
        try:
            found = await self._call(
                "GET", _path(kind, namespace), params={"labelSelector": labels} if labels else None
            )
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        version = PLURALS[kind][0]
        return [{"apiVersion": version, "kind": kind, **item} for item in found["items"]]

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object; None if it does not exist."""
        try:
            return await self._call("GET", _path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def apply(self, manifest: Manifest, seen: Manifest | None = None) -> Manifest:
        """Make the object be as the manifest says, as far as that says anything; return it. Raise ApiError 409 when it
        is not as it was `seen` any more."""
        about = manifest["metadata"]
        if seen is not None:
            about = {**about, "resourceVersion": seen["metadata"]["resourceVersion"]}
            manifest = {**manifest, "metadata": about}
        return await self._call(
            "PATCH",
            _path(manifest["kind"], about["namespace"], about["name"]),
            params={"fieldManager": MANAGER, "force": "true"},
            body=manifest,
            content_type=_APPLY,
        )

    async def delete(self, found: Manifest) -> None:
        """Remove this very object, and what hangs on it; one that is gone is fine."""
        about = found["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": about["uid"]}}
        try:
            await self._call("DELETE", _path(found["kind"], about["namespace"], about["name"]), body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def patch_status(self, found: Manifest, status: Mapping[str, Any]) -> None:
        """Set the keys of its status; one that is gone is fine."""
        about = found["metadata"]
        try:
            await self._call(
                "PATCH",
                f"{_path(found['kind'], about['namespace'], about['name'])}/status",
                body={"status": status},
                content_type=_MERGE,
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def scale(self, seen: Manifest, replicas: int) -> None:
        """Set the object's number of pods, unless it is gone or not as it was `seen` any more."""
        about = seen["metadata"]
        try:
            await self._call(
                "PATCH",
                f"{_path(seen['kind'], about['namespace'], about['name'])}/scale",
                params={"fieldManager": MANAGER},
                body={
                    "metadata": {"resourceVersion": about["resourceVersion"]},
                    "spec": {"replicas": replicas},
                },
                content_type=_MERGE,
            )
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def annotate(self, found: Manifest, annotations: Mapping[str, str]) -> None:
        """Set annotations of the object; one that is gone is fine."""
        about = found["metadata"]
        try:
            await self._call(
                "PATCH",
                _path(found["kind"], about["namespace"], about["name"]),
                body={"metadata": {"annotations": dict(annotations)}},
                content_type=_MERGE,
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def tell(self, about: Manifest, reason: str, message: str, *, is_warning: bool) -> None:
        """Make an event of the object, as `kubectl describe` shows it. One that is refused, as in a namespace that is
        going away, is logged."""
        meta, now = about["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        reference = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]},
            "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], **reference},
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._call("POST", f"/api/v1/namespaces/{meta['namespace']}/events", body=event)
        except ApiError as error:
            _logger.warning("%s %s: %s (%s)", about["kind"], meta["name"], message, error)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Manifest:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if body is not None else {}
        for is_last in (False, True):
            client = self._connected()
            answer = await client.request(method, path, params=params, content=content, headers=headers)
            if answer.status_code != 401 or is_last:
                break
            await self.close()  # the token of a service account is another one after an hour
        if answer.is_success:
            found: Manifest = answer.json()
            return found
        try:
            told = answer.json().get("message") or answer.text
        except ValueError:
            told = answer.text
        raise ApiError(answer.status_code, f"{method} {path}: {answer.status_code}: {told[:500]}")

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            info = login()
            if info is None:
                raise ApiError(401, "there is neither a service account nor a kubeconfig to reach a cluster with")
            self._client = httpx2.AsyncClient(
                base_url=info.server,
                headers=info.as_http_headers(),
                verify=info.as_ssl_context(),
                timeout=_SECONDS,
                trust_env=False,
            )
        return self._client


def _path(kind: str, namespace: str, name: str = "") -> str:
    version, plural = PLURALS[kind]
    root = "/api" if version == "v1" else "/apis"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{version}{within}/{plural}" + (f"/{name}" if name else "")
