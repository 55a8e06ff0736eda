"""Define the kinds of objects that the operator acts on, with the struct of each and its CustomResourceDefinition."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as shapes

from cadre.adapters.mcp.server_file import ServerEntry
from cadre.automation.automation_file import DEFINITIONS
from cadre.deploy.k8s.manifest import CADRE, Manifest, manifest
from cadre.deploy.team_file import TeamBody
from cadre.protocol.usage import LENGTH_OF_TIME
from cadre.spec.agent_file import agent_body
from cadre.spec.model import ModelSpec
from cadre.spec.model_file import Capability

Schema = dict[str, Any]

_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""The schema of a value that may have one of several types, which a structural schema cannot express."""


def structural(struct: type[msgspec.Struct], without: Sequence[str] = ()) -> Schema:
    """Return the schema of a struct's fields, but for those in `without`; a struct within itself is left out."""
    shape = shapes.type_info(struct)
    assert isinstance(shape, shapes.StructType)
    return _of_struct(shape, without, (struct,))


def _of_struct(shape: shapes.StructType, without: Sequence[str], around: tuple[type, ...]) -> Schema:
    told = {name: text for one in reversed(shape.cls.__mro__) for name, text in _docstrings(one).items()}
    properties: dict[str, Schema] = {}
    for field in shape.fields:
        schema = None if field.name in without else _of_type(field.type, around)
        if schema is not None:
            about = {"description": told[field.name]} if field.name in told else {}
            properties[field.encode_name] = about | schema
    required = [field.encode_name for field in shape.fields if field.required and field.name not in without]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _of_type(shape: shapes.Type, around: tuple[type, ...]) -> Schema | None:
    """Return the schema of a type; None where a struct would hold itself."""
    match shape:
        case shapes.UnionType(types=types):
            return _of_union(types, around)
        case shapes.StructType(cls=struct):
            return None if struct in around else _of_struct(shape, (), (*around, struct))
        case shapes.DictType(value_type=value):
            inner = _of_type(value, around)
            return inner and {"type": "object", "additionalProperties": inner}
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            inner = _of_type(item, around)
            return inner and {"type": "array", "items": inner}
        case shapes.LiteralType(values=values):
            return {"type": "string", "enum": [*values]}
        case shapes.IntType(ge=least):
            return {"type": "integer", "format": "int64"} | ({} if least is None else {"minimum": least})
        case shapes.Metadata(extra=dict(extra)) if LENGTH_OF_TIME in extra:
            return dict(_ANYTHING)
        case shapes.Metadata(type=inner):
            return _of_type(inner, around)
        case shapes.FloatType():
            return {"type": "number"}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.StrType():
            return {"type": "string"}
        case shapes.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case _:
            return dict(_ANYTHING)


def _of_union(types: Sequence[shapes.Type], around: tuple[type, ...]) -> Schema | None:
    some = [one for one in types if not isinstance(one, shapes.NoneType)]
    schema = _of_type(some[0], around) if len(some) == 1 else dict(_ANYTHING)
    return schema and (schema | ({"nullable": True} if len(some) < len(types) else {}))


def _docstrings(struct: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class in its source; empty without a source."""
    try:
        source = textwrap.dedent(inspect.getsource(struct))
    except (OSError, TypeError):
        return {}
    [body] = [one.body for one in ast.parse(source).body if isinstance(one, ast.ClassDef)]
    told: dict[str, str] = {}
    for field, below in pairwise(body):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            told[field.target.id] = " ".join(str(below.value.value).split())  # type: ignore[attr-defined]
    return told


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
    ObjectKind("ToolServer", "toolservers", ToolServerSpec, columns=(_REPLICAS, _READY, _REASON), is_scaled=True),
    ObjectKind("Model", "models", _ModelBody, columns=(_READY, _REASON)),
    *(
        ObjectKind(one.kind, one.plural, one.spec, without=("name",), columns=(_ABOUT[one.kind], _READY, _REASON))
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
        "additionalPrinterColumns": [{"name": name, "type": of, "jsonPath": path} for name, of, path in columns],
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
