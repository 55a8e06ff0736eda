"""Files as a ConfigMap, and as the volume that puts them back where they were."""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from cadre.deploy.k8s.components import Files
from cadre.deploy.k8s.manifest import Manifest, manifest
from cadre.errors import SpecError

MAX_BYTES = 1_000_000
"""Bytes of files in a ConfigMap, which holds 1 MiB with its keys."""


def config_map(files: Files, metadata: dict[str, Any]) -> Manifest:
    """The ConfigMap that holds the files. Raises SpecError when they are too large."""
    size = sum(len(content) for content in files.contents.values())
    if size > MAX_BYTES:
        raise SpecError(
            f"{files.name}: {size} bytes of files are more than a ConfigMap holds: put the folder into the image"
            " and say where by --set files=/teams/NAME"
        )
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for path, content in files.contents.items():
        try:
            text[_key(path)] = content.decode()
        except UnicodeDecodeError:
            binary[_key(path)] = b64encode(content).decode()
    body = {"data": text} | ({"binaryData": binary} if binary else {})
    return manifest("v1", "ConfigMap", metadata, **body)


def items(files: Files) -> list[dict[str, str]]:
    """Items of the volume, which map keys back to paths: a key cannot hold a slash."""
    return [{"key": _key(path), "path": path} for path in files.contents]


def digest(files: Files) -> str:
    """A checksum that changes with any name or content."""
    whole = sha256()
    for path, content in sorted(files.contents.items()):
        whole.update(f"{path}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:16]


def _key(path: str) -> str:
    key = path.replace("/", "__")
    if re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) and "__" not in path:
        return key
    return f"{re.sub(r'[^-._a-zA-Z0-9]', '-', key)[-200:]}-{sha256(path.encode()).hexdigest()[:8]}"
