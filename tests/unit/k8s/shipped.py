"""The shipped team's manifests, as `cadre k8s render` makes them with everything on."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team

ROOT = Path(__file__).parents[3]
TEAM = ROOT / "teams" / "apollo"
ALL = {
    "image": "cadre:test",
    "memory": True,
    "pools": ["default"],
    "model": {"url": "https://models.example/v1", "name": "m"},
}
GIVEN = ["Secret/cadre-gateway", "Secret/cadre-model", "Secret/cadre-nats-*"]


def rendered(*layers: dict[str, Any], only: str | None = None) -> list[Manifest]:
    """With these values over `ALL`."""
    files = _rendered(only) if not layers else _render(*layers, only=only)
    return [deepcopy(manifest) for manifests in files.values() for manifest in manifests]


@cache
def _rendered(only: str | None) -> dict[str, list[Manifest]]:
    return _render(only=only)


def _render(*layers: dict[str, Any], only: str | None = None) -> dict[str, list[Manifest]]:
    values = read_values(ALL, *layers)
    return render(components_of(read_team(TEAM), values), values, only)


def pick(manifests: list[Manifest], called: str) -> Manifest:
    """`Kind/name`; a name may end in `*`."""
    kind, _, name = called.partition("/")
    for manifest in manifests:
        own = manifest["metadata"]["name"]
        if manifest["kind"] == kind and (own == name or (name.endswith("*") and own.startswith(name[:-1]))):
            return manifest
    raise LookupError(called)


def pod_of(manifests: list[Manifest], called: str) -> dict[str, Any]:
    spec: dict[str, Any] = pick(manifests, called)["spec"]["template"]["spec"]
    return spec


def main_of(manifests: list[Manifest], called: str) -> dict[str, Any]:
    container: dict[str, Any] = pod_of(manifests, called)["containers"][0]
    return container


def env_of(manifests: list[Manifest], called: str) -> dict[str, Any]:
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in main_of(manifests, called)["env"]}
