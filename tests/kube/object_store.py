"""The store of an API server, and its rules: versions, generations, finalizers, owners, subresources, schemas."""

import asyncio
import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from kube.applied_fields import Conflict, Managers

Object = dict[str, Any]


class Refusal(Exception):
    """A request that is answered with a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Resource(NamedTuple):
    """One kind as the API has it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    schema: Object | None = None
    """The rules of a CustomResourceDefinition for its objects."""
    is_scaled: bool = False
    """True if it has the subresource `scale`, which holds `spec.replicas`."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}".lstrip("/")


class Place(NamedTuple):
    """The address of an object."""

    resource: Resource
    namespace: str
    name: str


BUILT_IN = (
    Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Resource("", "v1", "pods", "Pod"),
    Resource("", "v1", "services", "Service"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource("", "v1", "events", "Event"),
    Resource("apps", "v1", "deployments", "Deployment", is_scaled=True),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
)
_WITHOUT_GENERATION = {"Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount", "Event"}


class Event(NamedTuple):
    """One change, as watchers learn of it."""

    version: int
    type: str
    resource: Resource
    found: Object


class Store:
    """All objects, and the changes that watchers may still ask for."""

    def __init__(self) -> None:
        self.resources = list(BUILT_IN)
        self.version = 1
        self.compacted = 0
        self.events: list[Event] = []
        self.changed = asyncio.Condition()
        self._found: dict[tuple[str, str, str], Object] = {}
        self._managers: dict[str, Managers] = {}

    def managed_fields(self, found: Object) -> list[Object]:
        """Return who has set which field of the object, as the API shows it."""
        return self._managers[found["metadata"]["uid"]].entries()

    def list(self, resource: Resource, namespace: str = "") -> list[Object]:
        mine = [one for (plural, _, _), one in self._found.items() if plural == resource.plural]
        return [deepcopy(one) for one in mine if not namespace or one["metadata"].get("namespace") == namespace]

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self._found.get((resource.plural, namespace, name))
        if found is None:
            raise Refusal(404, "NotFound", f'{resource.plural} "{name}" not found')
        return deepcopy(found)

    def create(self, resource: Resource, namespace: str, given: Object, manager: str, strict: bool = False) -> Object:
        meta = given.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid4().hex[:5]
        name = meta.get("name", "")
        if (resource.plural, namespace, name) in self._found:
            raise Refusal(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        made = self._checked(resource, given, strict)
        meta = made["metadata"]
        meta |= {"uid": str(uuid4()), "creationTimestamp": _now()} | ({"namespace": namespace} if namespace else {})
        made.pop("status", None)
        status = (resource.schema or {}).get("properties", {}).get("status", {})
        if "default" in status:
            made["status"] = deepcopy(status["default"])
        if resource.kind not in _WITHOUT_GENERATION:
            meta["generation"] = 1
        self._managers[meta["uid"]] = managers = Managers()
        managers.update(manager, {}, made)
        self._keep(resource, namespace, name, made, "ADDED")
        if resource.kind == "CustomResourceDefinition":
            self._define(made)
        return self.get(resource, namespace, name)

    def change(self, place: Place, given: Object, manager: str, *, status: bool, strict: bool) -> Object:
        """The object as it is given, but for what a request of this kind may not change."""
        resource, namespace, name = place
        before = self.get(resource, namespace, name)
        wanted = given["metadata"].get("resourceVersion")
        if wanted and wanted != before["metadata"]["resourceVersion"]:
            raise Refusal(
                409,
                "Conflict",
                f"{name}: the object has been modified; please apply your changes to the latest",
            )
        after = self._checked(resource, given, strict)
        if status:
            after = {**before, "status": after.get("status", {})}
        else:
            after = {**after, "status": before["status"]} if "status" in before else _without(after, "status")
        for key in (
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
            "resourceVersion",
            "name",
            "namespace",
        ):
            if key in before["metadata"]:
                after["metadata"][key] = before["metadata"][key]
        if resource.kind == "Job" and not status and before.get("spec") != after.get("spec"):
            raise Refusal(422, "Invalid", f'Job "{name}" is invalid: spec.template: field is immutable')
        if _spec(before) != _spec(after) and "generation" in before["metadata"]:
            after["metadata"]["generation"] += 1
        self._managers[before["metadata"]["uid"]].update(manager, before, after)
        return self._settle(place, before, after)

    def apply(self, place: Place, given: Object, manager: str, *, force: bool, strict: bool) -> Object:
        """Server-side apply."""
        resource, namespace, name = place
        given = self._checked(resource, given, strict)
        if (resource.plural, namespace, name) not in self._found:
            made = self.create(resource, namespace, deepcopy(given), manager)
            self._managers[made["metadata"]["uid"]].apply(manager, made, given, force=True)
            return made
        before = self.get(resource, namespace, name)
        try:
            after = self._managers[before["metadata"]["uid"]].apply(
                manager, before, _without(given, "status"), force=force
            )
        except Conflict as error:
            raise Refusal(409, "Conflict", str(error)) from error
        after = {"apiVersion": before["apiVersion"], "kind": before["kind"], **after}
        after["metadata"] |= {
            key: before["metadata"][key] for key in ("name", "namespace") if key in before["metadata"]
        }
        if resource.kind == "Job" and before.get("spec") != after.get("spec"):
            raise Refusal(422, "Invalid", f'Job "{name}" is invalid: spec.template: field is immutable')
        if _spec(before) != _spec(after) and "generation" in before["metadata"]:
            after["metadata"]["generation"] += 1
        return self._settle(place, before, after)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str = "") -> Object:
        found = self.get(resource, namespace, name)
        if uid and uid != found["metadata"]["uid"]:
            raise Refusal(409, "Conflict", f"the UID in the precondition ({uid}) is not that of the object")
        if found["metadata"].get("finalizers"):
            if not found["metadata"].get("deletionTimestamp"):
                found["metadata"]["deletionTimestamp"] = _now()
                self._keep(resource, namespace, name, found, "MODIFIED")
            return found
        self._remove(resource, namespace, name, found)
        return found

    def compact(self) -> None:
        """Forgets what watchers might ask for: who comes with an older version gets 410."""
        self.compacted = self.version
        self.events.clear()

    def define(self, *resources: Resource) -> None:
        """Adds kinds, as another operator's installation does."""
        self.resources += resources

    def _settle(self, place: Place, before: Object, after: Object) -> Object:
        resource, namespace, name = place
        if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
            self._remove(resource, namespace, name, after)
            return after
        if before != after:
            self._keep(resource, namespace, name, after, "MODIFIED")
        return self.get(resource, namespace, name)

    def _keep(self, resource: Resource, namespace: str, name: str, found: Object, what: str) -> None:
        if resource.kind == "Deployment":
            found.setdefault("spec", {}).setdefault("replicas", 1)
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self._found[resource.plural, namespace, name] = deepcopy(found)
        self.events.append(Event(self.version, what, resource, deepcopy(found)))

    def _remove(self, resource: Resource, namespace: str, name: str, found: Object) -> None:
        self._keep(resource, namespace, name, found, "DELETED")
        del self._found[resource.plural, namespace, name]
        self.collect()

    def collect(self) -> None:
        """The garbage collector: what has lost its last owner goes as well, and what was given one that is gone."""
        alive = {one["metadata"]["uid"] for one in self._found.values()}
        for (plural, where, called), one in list(self._found.items()):
            owners = {owner["uid"] for owner in one["metadata"].get("ownerReferences", [])}
            if owners and not alive & owners and (plural, where, called) in self._found:
                kind = next(r for r in self.resources if r.plural == plural)
                self.delete(kind, where, called)

    def _define(self, made: Object) -> None:
        spec = made["spec"]
        for version in spec["versions"]:
            names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
            is_scaled = "scale" in version.get("subresources", {})
            self.define(
                Resource(spec["group"], version["name"], names["plural"], names["kind"], True, schema, is_scaled)
            )
        made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self._keep(BUILT_IN[-1], "", made["metadata"]["name"], made, "MODIFIED")

    def _checked(self, resource: Resource, given: Object, strict: bool) -> Object:
        given = {**deepcopy(given), "apiVersion": resource.api_version, "kind": resource.kind}
        given.setdefault("metadata", {}).pop("managedFields", None)
        if resource.schema is None:
            return given
        errors: list[str] = []
        unknown: list[str] = []
        about = given.pop("metadata")
        rest = _without(resource.schema["properties"], "metadata")
        pruned = _pruned({**resource.schema, "properties": rest}, given, "", errors, unknown)
        if strict and unknown:
            raise Refusal(
                400,
                "BadRequest",
                "strict decoding error: " + ", ".join(f'unknown field "{u}"' for u in unknown),
            )
        if errors:
            raise Refusal(422, "Invalid", f'{resource.kind} "{about.get("name")}" is invalid: {"; ".join(errors)}')
        return {**pruned, "metadata": about}


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _pruned(schema: Object, value: Any, place: str, errors: list[str], unknown: list[str]) -> Any:
    """The value without the fields that a structural schema does not know."""
    kind: str | None = schema.get("type")
    if kind is None:
        assert schema.get("x-kubernetes-preserve-unknown-fields"), f"{place}: is not structural"
        return value
    if value is None and schema.get("nullable"):
        return None
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        errors.append(f"{place}: Invalid value: {json.dumps(value)}: must be of type {kind}")
        return value
    return _pruned_typed(schema, value, place, errors, unknown)


def _pruned_typed(schema: Object, value: Any, place: str, errors: list[str], unknown: list[str]) -> Any:
    kind = schema["type"]
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f'{place}: Unsupported value: "{value}": supported values: {schema["enum"]}')
    if "minimum" in schema and value < schema["minimum"]:
        errors.append(f"{place}: Invalid value: {value}: must be at least {schema['minimum']}")
    if kind == "array":
        return [_pruned(schema["items"], one, f"{place}[{i}]", errors, unknown) for i, one in enumerate(value)]
    if kind != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if "additionalProperties" in schema:
        inner = schema["additionalProperties"]
        return {key: _pruned(inner, one, f"{place}.{key}", errors, unknown) for key, one in value.items()}
    known = schema.get("properties", {})
    errors += [f"{place}.{key}: Required value" for key in schema.get("required", []) if key not in value]
    unknown += [f"{place}.{key}".lstrip(".") for key in value if key not in known]
    return {
        key: _pruned(known[key], one, f"{place}.{key}".lstrip("."), errors, unknown)
        for key, one in value.items()
        if key in known
    }


def _spec(found: Object) -> Object:
    return {key: value for key, value in found.items() if key not in ("metadata", "status")}


def _without(found: Object, key: str) -> Object:
    return {name: value for name, value in found.items() if name != key}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
