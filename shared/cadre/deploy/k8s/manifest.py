"""One Kubernetes object as plain data."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def manifest(api_version: str, kind: str, metadata: dict[str, Any], **body: Any) -> Manifest:
    """An object of the Kubernetes API."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
