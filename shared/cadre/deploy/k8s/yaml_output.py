"""Manifests as YAML that a person can read: keys in their order, texts as blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from cadre.deploy.k8s.manifest import Manifest

MARK = "# Written by `cadre k8s render`: what is changed here is lost at the next one."


class _Dumper(yaml.SafeDumper):
    """No anchors, and `|` for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text)


def as_yaml(manifests: Iterable[Manifest]) -> str:
    documents = yaml.dump_all(
        manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
    return f"{MARK}\n{documents}"


def kustomization(files: Iterable[str]) -> str:
    """That takes these files, given without their suffix, in alphabetical order."""
    data = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{file}.yaml" for file in sorted(files)],
    }
    return f"{MARK}\n{yaml.safe_dump(data, sort_keys=False)}"
