"""The CustomResourceDefinitions of Cadre's kinds."""

from typing import Any

from cadre.deploy.k8s.manifest import CADRE, Manifest, manifest
from cadre.deploy.k8s.object_kinds import GROUP, OBJECT_KINDS, VERSION, ObjectKind
from cadre.deploy.k8s.structural_schema import Schema, structural

_CONDITION: Schema = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
}
_STATUS: Schema = {
    "type": "object",
    "properties": {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "replicas": {"type": "integer", "format": "int32"},
        "readyReplicas": {"type": "integer", "format": "int32"},
        "provisioned": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The Jobs that have made its queues.",
        },
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
}


def definitions() -> list[Manifest]:
    """All definitions."""
    return [_definition(kind) for kind in OBJECT_KINDS]


def _definition(kind: ObjectKind) -> Manifest:
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "categories": ["cadre"],
    }
    columns = [*kind.columns, ("Age", "date", ".metadata.creationTimestamp")]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": of, "jsonPath": path} for name, of, path in columns
        ],
    }
    about: dict[str, Any] = {"name": f"{kind.plural}.{GROUP}", "labels": CADRE}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return manifest("apiextensions.k8s.io/v1", "CustomResourceDefinition", about, spec=spec)


def _schema(kind: ObjectKind) -> Schema:
    spec = structural(kind.struct, kind.without)
    for field in kind.loose:
        spec["properties"][field] = {"x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _STATUS,
        },
    }
