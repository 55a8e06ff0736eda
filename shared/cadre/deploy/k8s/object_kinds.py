"""Define the kinds of objects that the operator acts on, with the struct of each and its CustomResourceDefinition."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cadre.adapters.mcp.server_file import ServerEntry
from cadre.automation.automation_file import DEFINITIONS
from cadre.deploy.k8s.manifest import CADRE, Manifest, manifest
from cadre.deploy.k8s.structural_schema import Schema, structural
from cadre.deploy.team_file import TeamBody
from cadre.spec.agent_file import agent_body
from cadre.spec.model import ModelSpec
from cadre.spec.model_file import Capability

GROUP = "cadre.dev"
VERSION = "v1"

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
    # By this tools that wait know an object that the operator has not seen yet.
    "default": {"observedGeneration": -1},
    "properties": {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "replicas": {"type": "integer", "format": "int32"},
        "readyReplicas": {"type": "integer", "format": "int32"},
        "selector": {"type": "string", "description": "Selects its pods, for a HorizontalPodAutoscaler."},
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

_COUNT: Schema = {
    "description": "How many pods it has; left out: as the values say. KEDA does not scale an object that says it.",
    "type": "integer",
    "format": "int32",
    "minimum": 0,
}


class ToolServerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service of tools: one module, or MCP servers."""

    module: str = ""
    """A Python module of the image, perhaps with `:NAME` of one tool in it."""
    mcp_servers: dict[str, ServerEntry] = msgspec.field(default={}, name="mcpServers")
    """MCP servers as files of other clients have them."""
    tools: list[str] = []
    """Names of the tools that it serves, where neither the module nor the servers can be asked by the operator."""
    image: str = ""
    """The image that has the module; empty: that of all services."""


class _ModelBody(ModelSpec, frozen=True, kw_only=True):
    capabilities: list[Capability] | None = None
    """The model's capabilities; left out: all that its keys ask for."""


class ObjectKind(NamedTuple):
    """One kind of object."""

    kind: str
    plural: str
    spec: type[msgspec.Struct] | Callable[[], type[msgspec.Struct]]
    """The struct, or what makes it once the kinds of agents are known."""
    without: tuple[str, ...] = ()
    """Fields of the struct that do not stand below `spec`, or may be written in more ways than the struct has."""
    loose: tuple[str, ...] = ()
    """Fields that may also be a name: their form is checked when they are read."""
    columns: tuple[tuple[str, str, str], ...] = ()
    """Columns of `kubectl get`: name, type and path."""
    is_scaled: bool = False
    """True if `kubectl scale` and autoscalers may set how many pods it has."""

    @property
    def struct(self) -> type[msgspec.Struct]:
        return self.spec if isinstance(self.spec, type) else self.spec()


_READY = ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status')
_REASON = ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason')
_REPLICAS = ("Replicas", "integer", ".status.replicas")
_SPEC_KIND = ("Kind", "string", ".spec.kind")
_ABOUT = {
    "Schedule": ("Agent", "string", ".spec.agent"),
    "Trigger": ("Agent", "string", ".spec.agent"),
    "Notice": ("URL", "string", ".spec.url"),
    "Budget": ("Window", "string", ".spec.window"),
}
"""The first column of a definition."""

OBJECT_KINDS = (
    ObjectKind(
        "Agent",
        "agents",
        agent_body,
        loose=("model",),
        columns=(_SPEC_KIND, _REPLICAS, _READY, _REASON),
        is_scaled=True,
    ),
    ObjectKind("Team", "teams", TeamBody, columns=(_READY, _REASON)),
    ObjectKind(
        "ToolServer", "toolservers", ToolServerSpec, columns=(_REPLICAS, _READY, _REASON), is_scaled=True
    ),
    ObjectKind("Model", "models", _ModelBody, columns=(_READY, _REASON)),
    *(
        ObjectKind(
            one.kind, one.plural, one.spec, without=("name",), columns=(_ABOUT[one.kind], _READY, _REASON)
        )
        for one in DEFINITIONS
    ),
)


def definitions() -> list[Manifest]:
    """Return all definitions."""
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
    subresources: dict[str, Any] = {"status": {}}
    if kind.is_scaled:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": subresources,
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
    if kind.is_scaled:
        spec["properties"]["replicas"] = _COUNT
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
