"""The parts of the Helm chart that follow from the code: definitions, the operator, the schema of the values."""

import json
from pathlib import Path
from typing import Any

import msgspec

from cadre.cli.deployment.k8s import as_yaml
from cadre.deploy.k8s.object_kinds import definitions
from cadre.deploy.k8s.render import digest_of, operator_manifests
from cadre.deploy.k8s.values import Values, Workload, read_values

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "cadre"

_HEAD = "# Written by `make docs` from the code: what is changed here is lost."
_FILLED = {
    "the-namespace": "{{ .Release.Namespace }}",
    "the-image": '{{ include "cadre.image" (list . .Values.cadre.image) }}',
    "the-pull-secrets": "{{ .Values.global.imagePullSecrets | toJson }}",
    digest_of("the-values"): '{{ include "cadre.values" . | sha256sum | trunc 16 | quote }}',
    "the-values": '{{ include "cadre.values" . | toJson }}',
}
"""What stands in the manifests in place of what only Helm knows."""

_TEXT = {"type": "string"}


def files() -> dict[Path, str]:
    """The text of each file."""
    crds = as_yaml(definitions()).split("\n", 1)[1]
    return {
        CHART / "crds" / "cadre.yaml": f"{_HEAD}\n{crds}",
        # Copies: a packed chart takes along no file from outside of it, and Helm warns of symbolic links.
        CHART / "files" / "alerts.yml": (DEPLOY / "prometheus" / "alerts.yml").read_text(),
        CHART / "files" / "kubernetes-alerts.yml": (DEPLOY / "prometheus" / "kubernetes-alerts.yml").read_text(),
        CHART / "files" / "dashboard.json": (DEPLOY / "grafana" / "dashboards" / "cadre.json").read_text(),
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
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["imagePullSecrets"] = "the-pull-secrets"
    text = as_yaml(manifests).split("\n", 1)[1]
    for mark, written in _FILLED.items():
        text = text.replace(mark, written)
    return text


def _schema() -> dict[str, Any]:
    """The values of the chart: those of the renderer below `cadre`, as strict as it is."""
    [cadre, workload], parts = msgspec.json.schema_components([Values, Workload], ref_template="#/definitions/{name}")
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
            "nats": _server(
                replicas={"enum": [1, 3, 5]},
                config={"type": "object"},
                reloader=_object(image=_TEXT, resources={"type": "object"}),
            ),
            "qdrant": _server(),
            "gateway": _object(
                existingSecret=_TEXT,
                path=_TEXT,
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
            # Of a chart that this one is part of, too: it may hold what that one needs.
            "global": {
                "type": "object",
                "properties": {
                    "registry": _TEXT,
                    "imagePullSecrets": {"type": "array", "items": _object(name=_TEXT)},
                },
            },
        },
        "additionalProperties": False,
        "definitions": parts,
    }


def _server(**more: Any) -> dict[str, Any]:
    """Return the values of a server that the chart brings."""
    return _object(
        enabled={"type": "boolean"},
        image={"type": "string", "minLength": 1},
        resources={"type": "object"},
        storage=_object(size={"type": ["string", "integer"]}, className=_TEXT),
        pod={"type": "object"},
        **more,
    )


def _switched(**more: Any) -> dict[str, Any]:
    return _object(enabled={"type": "boolean"}, labels={"type": "object"}, **more)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
