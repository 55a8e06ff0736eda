"""The definitions of Cadre's kinds take what the readers of files take, and nothing that these do not know."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cadre.deploy.k8s.object_kinds import OBJECT_KINDS, definitions
from cadre.deploy.k8s.render import operator_manifests
from cadre.deploy.k8s.values import read_values
from kube.object_store import BUILT_IN, Refusal, Store

ROOT = Path(__file__).parents[2]
KINDS = {one.kind for one in OBJECT_KINDS}


def documents() -> list[tuple[str, dict[str, Any]]]:
    """Everything of these kinds that is shipped."""
    files = [
        *ROOT.glob("teams/**/*.yaml"),
        *ROOT.glob("examples/**/*.yaml"),
        *ROOT.glob("deploy/local-model/*.yaml"),
    ]
    return [
        (f"{file.relative_to(ROOT)}", document)
        for file in sorted(files)
        for document in yaml.safe_load_all(file.read_text())
        if isinstance(document, dict) and document.get("kind") in KINDS
    ]


@pytest.fixture
def store() -> Store:
    found = Store()
    for one in definitions():
        found.create(BUILT_IN[-1], "", one, "test")
    return found


def create(store: Store, document: dict[str, Any]) -> dict[str, Any]:
    resource = next(one for one in store.resources if one.kind == document["kind"])
    # Names of files may have what those of objects may not.
    document["metadata"]["name"] = document["metadata"]["name"].replace("_", "-")
    return store.create(resource, "cadre", document, "test", strict=True)


def test_each_definition_is_structural_and_strict() -> None:
    for one in definitions():
        kubernetes_validate.validate(one, "1.37", strict=True)
        [version] = one["spec"]["versions"]
        check_structural(version["schema"]["openAPIV3Schema"], one["metadata"]["name"])
        is_scaled = one["spec"]["names"]["kind"] in ("Agent", "ToolServer")
        assert {*version["subresources"]} == ({"status", "scale"} if is_scaled else {"status"})


def check_structural(schema: dict[str, Any], place: str) -> None:
    """The rules of the API server for a structural schema that bear on what we write."""
    assert not {"$ref", "anyOf", "oneOf", "allOf", "not", "definitions"} & schema.keys(), place
    assert "default" not in schema or place.endswith(".status"), place
    assert ("type" in schema) != bool(schema.get("x-kubernetes-preserve-unknown-fields")), place
    assert not ("properties" in schema and "additionalProperties" in schema), place
    for key, inner in schema.get("properties", {}).items():
        check_structural(inner, f"{place}.{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            check_structural(schema[key], f"{place}.{key}")
    assert {*schema.get("required", [])} <= {*schema.get("properties", {})}, place


@pytest.mark.parametrize(("file", "document"), documents(), ids=lambda one: one if isinstance(one, str) else "")
def test_what_is_shipped_can_be_applied(store: Store, file: str, document: dict[str, Any]) -> None:
    assert create(store, document)["spec"] == document["spec"]


@pytest.mark.parametrize(
    ("kind", "spec", "reads"),
    [
        ("Agent", {"description": "x", "limits": {"max_stepz": 3}}, 'unknown field "spec.limits.max_stepz"'),
        ("Agent", {"description": "x", "limits": {"max_steps": "3"}}, "must be of type integer"),
        ("Agent", {"description": "x", "permission": "openish"}, "supported values"),
        ("Agent", {}, "spec.description: Required value"),
        ("Model", {"name": "m", "fallbacks": [{"nam": "x"}]}, 'unknown field "spec.fallbacks[0].nam"'),
        ("Schedule", {"agent": "a", "task": "t", "count": 0}, "at least 1"),
        ("Trigger", {"agent": "a", "task": "t", "webhook": {}}, "spec.webhook.secret_env: Required value"),
        ("Notice", {"url": "https://x.example", "secret_env": "S", "events": ["all"]}, "supported values"),
        ("Budget", {"window": "year", "tokens": 1}, "supported values"),
        ("ToolServer", {"modul": "x"}, 'unknown field "spec.modul"'),
        ("Team", {"description": "x"}, "spec.agents: Required value"),
    ],
)
def test_what_no_reader_knows_is_refused(store: Store, kind: str, spec: dict[str, Any], reads: str) -> None:
    document = {"apiVersion": "cadre.dev/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    with pytest.raises(Refusal) as refused:
        create(store, document)
    assert reads in str(refused.value)


def test_the_operator_may_read_what_it_watches() -> None:
    """Its rights are written by hand: each kind of object is in them, its status, and its scale if it has one."""
    roles = [one for one in operator_manifests(read_values(), "", ()) if one["kind"] == "ClusterRole"]
    rules = [rule for one in roles for rule in one["rules"] if rule["apiGroups"] == ["cadre.dev"]]
    named = {resource for rule in rules for resource in rule["resources"] if "update" not in rule["verbs"]}
    parts = {one.plural: ("", "/status", "/scale") if one.is_scaled else ("", "/status") for one in OBJECT_KINDS}
    assert named == {f"{plural}{part}" for plural, many in parts.items() for part in many}


def test_fields_are_explained() -> None:
    """As `kubectl explain` shows them, from the docstrings of the structs."""
    [schedule] = [one for one in definitions() if one["metadata"]["name"] == "schedules.cadre.dev"]
    fields = schedule["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert fields["missed"]["enum"] == ["all", "one", "skip"]
    assert fields["start"]["description"] == "No tick is before it."


@pytest.mark.parametrize("namespaces", [[], ["one", "two"]])
def test_the_operators_own_manifests_are_valid(namespaces: list[str]) -> None:
    manifests = operator_manifests(read_values(), "keda: false\n", namespaces)
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)
    [everywhere] = [m["rules"] for m in manifests if m["kind"] == "ClusterRole"]
    may_write_everywhere = any("create" in rule["verbs"] for rule in everywhere)
    assert may_write_everywhere == (not namespaces)
    assert [m["metadata"]["namespace"] for m in manifests if m["kind"] == "Role"] == namespaces
    [pod] = [m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "Deployment"]
    assert pod["automountServiceAccountToken"] is True
