"""The parts of the Helm chart that follow from the code: definitions, the operator, the schema of the values."""

import json
from pathlib import Path
from typing import Any

import msgspec

from cadre.cli.deployment.k8s import as_yaml
from cadre.deploy.k8s.object_kinds import definitions
from cadre.deploy.k8s.operator import NAME, digest_of, operator_manifests
from cadre.deploy.k8s.values import Values, Workload, read_values

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "cadre"

_HEAD = "# Written by `make docs` from the code: what is changed here is lost."
_FILLED = {
    "the-namespace": "{{ .Release.Namespace }}",
    "the-image": "{{ .Values.cadre.image }}",
    digest_of("the-values"): "{{ .Values.cadre | toJson | sha256sum | trunc 16 | quote }}",
    "the-values": '{{ omit .Values.cadre "namespace" | toYaml | toJson }}',
}
"""What stands in the manifests in place of what only Helm knows."""


def files() -> dict[Path, str]:
    """The text of each file."""
    crds = as_yaml(definitions()).split("\n", 1)[1]
    return {
        CHART / "crds" / "cadre.yaml": f"{_HEAD}\n{crds}",
        CHART / "templates" / "operator.yaml": _operator(),
        CHART / "values.schema.json": json.dumps(_schema(), indent=2, ensure_ascii=False) + "\n",
    }


def _operator() -> str:
    values = read_values({"image": "the-image", "namespace": "the-namespace"})
    everywhere = _filled(operator_manifests(values, "the-values"))
    here = _filled(operator_manifests(values, "the-values", ["the-namespace"]))
    switch = "{{- if .Values.operator.everywhere }}"
    return f"{_HEAD}\n{switch}\n{everywhere}{{{{- else }}}}\n{here}{{{{- end }}}}\n"


def _filled(manifests: list[dict[str, Any]]) -> str:
    for one in manifests:
        if one["kind"].startswith("ClusterRole"):  # of the whole cluster, so of one release
            one["metadata"] = {**one["metadata"], "name": f"{NAME}-the-namespace"}
        if one["kind"] == "ClusterRoleBinding":
            one["roleRef"] = {**one["roleRef"], "name": f"{NAME}-the-namespace"}
    text = as_yaml(manifests).split("\n", 1)[1]
    for mark, written in _FILLED.items():
        text = text.replace(mark, written)
    return text


def _schema() -> dict[str, Any]:
    """The values of the chart: those of the renderer below `cadre`, as strict as it is."""
    [cadre, workload], parts = msgspec.json.schema_components(
        [Values, Workload], ref_template="#/definitions/{name}"
    )
    known = parts["Values"]["properties"]
    del known["namespace"]  # the release's
    known["workloads"]["additionalProperties"] = {"anyOf": [workload, {"type": "null"}]}
    for one in parts["Workload"]["properties"].values():  # null: what the default says, or nothing
        if "type" in one:
            one["type"] = [one["type"], "null"]
    on = {"type": "object", "properties": {"enabled": {"type": "boolean"}}, "additionalProperties": False}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "cadre": cadre,
            "operator": _object(everywhere={"type": "boolean"}),
            "platform": on,
            "nats": on,
            "qdrant": on,
            "gateway": _object(
                makeAdminKey={"type": "boolean"},
                ingress=_object(
                    enabled={"type": "boolean"},
                    className={"type": "string"},
                    host={"type": "string"},
                    annotations={"type": "object"},
                    tls={"type": "string"},
                ),
                httpRoute=_object(
                    enabled={"type": "boolean"},
                    hostnames={"type": "array", "items": {"type": "string"}},
                    parentRefs={"type": "array", "items": {"type": "object"}},
                ),
            ),
            "monitoring": _object(
                podMonitor=_switched(interval={"type": "string"}),
                rules=_switched(),
                dashboard=_switched(),
            ),
            "global": {"type": "object"},
        },
        "additionalProperties": False,
        "definitions": parts,
    }


def _switched(**more: Any) -> dict[str, Any]:
    return _object(enabled={"type": "boolean"}, labels={"type": "object"}, **more)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
