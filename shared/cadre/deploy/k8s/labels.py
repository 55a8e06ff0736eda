"""Labels: what an object is, and by which of them pods are found."""

from __future__ import annotations

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"
INTERNET = "cadre.dev/internet"
"""On pods that may leave the cluster."""

CADRE = {PART_OF: "cadre"}


def labels(name: str, component: str) -> dict[str, str]:
    return {NAME: name, COMPONENT: component, **CADRE, MANAGED_BY: "cadre"}


def selector(name: str) -> dict[str, str]:
    """Only what never changes: a Deployment's selector cannot be edited."""
    return {NAME: name, **CADRE}


def of_role(role: str) -> dict[str, str]:
    return {COMPONENT: role, **CADRE}
