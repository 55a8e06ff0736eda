"""Objects of Cadre's kinds put before the API server, and what the operator says of them."""

from typing import Any

from kube.api_server import ApiServer


def available(pods: int = 1) -> dict[str, Any]:
    """The status of a Deployment whose pods are all there."""
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    condition = {"type": "Available", "status": "True"}
    return {"observedGeneration": 1, "conditions": [condition], **dict.fromkeys(counts, pods)}


AVAILABLE = available()


def agent(name: str, /, **spec: Any) -> dict[str, Any]:
    return made("Agent", name, description="Answers.", **spec)


def made(kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cadre.dev/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "cadre"},
        "spec": spec,
    }


async def put(api: ApiServer, *documents: dict[str, Any]) -> None:
    for one in documents:
        resource, name = api.resource(one["kind"]), one["metadata"]["name"]
        api.store.apply(api.place(resource, name), one, "test", force=True, strict=True)
    await api.notify()


def condition(api: ApiServer, kind: str, name: str, what: str = "Ready") -> dict[str, Any]:
    """It is of the object's present generation, or empty."""
    found = api.find(kind, name) or {}
    told = (found.get("status") or {}).get("conditions") or []
    return next(
        (one for one in told if one["type"] == what and one["observedGeneration"] == found["metadata"]["generation"]),
        {},
    )


async def becomes(api: ApiServer, kind: str, name: str, **fields: str) -> dict[str, Any]:
    what = fields.pop("type", "Ready")
    found = await api.until(
        lambda: fields.items() <= condition(api, kind, name, what).items() and condition(api, kind, name, what),
        f"{kind} {name} has {what} {fields}",
    )
    return dict(found)
