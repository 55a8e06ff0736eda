"""Reads and writes files of manifests: a kustomize base, and any file or folder that is to be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import yaml

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.yaml_output import MARK, as_yaml, kustomization
from cadre.errors import SpecError
from cadre.local.exit_codes import CommandFailed, ExitCode

_KUSTOMIZATION = "kustomization.yaml"


def as_one(files: Mapping[str, Sequence[Manifest]]) -> str:
    """All manifests as one YAML text."""
    return as_yaml(manifest for manifests in files.values() for manifest in manifests)


def write_folder(folder: Path, files: Mapping[str, Sequence[Manifest]], *, replace: bool) -> None:
    """Writes a file for each key, and a kustomization of all of them. `replace` removes files of earlier calls.

    Files that a person put there are neither read nor touched. Raises CommandFailed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _KUSTOMIZATION).exists() and not _is_ours(folder / _KUSTOMIZATION):
            raise CommandFailed(
                f"{folder / _KUSTOMIZATION} is not by `cadre k8s render`: choose another folder"
            )
        for path in folder.glob("*.yaml"):
            if replace and _is_ours(path):
                path.unlink()
        for name, manifests in files.items():
            (folder / f"{name}.yaml").write_text(as_yaml(manifests), "utf-8")
        ours = [p.stem for p in folder.glob("*.yaml") if p.name != _KUSTOMIZATION and _is_ours(p)]
        (folder / _KUSTOMIZATION).write_text(kustomization(ours), "utf-8")
    except OSError as error:
        raise CommandFailed(f"{folder}: cannot be written: {error.strerror}") from error


def read_manifests(place: Path, standard_input: TextIO) -> list[Manifest]:
    """The manifests in a file, in a folder without its subfolders, or in `-`. Raises CommandFailed, SpecError."""
    if str(place) == "-":
        return _parsed("standard input", standard_input.read())
    if not place.exists():
        raise CommandFailed(f"there is no {place}", ExitCode.NOT_FOUND)
    files = sorted(place.glob("*.y*ml")) if place.is_dir() else [place]
    return [manifest for file in files for manifest in _read(file)]


def _read(file: Path) -> list[Manifest]:
    try:
        return _parsed(str(file), file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: cannot be read: {error}") from error


def _parsed(where: str, text: str) -> list[Manifest]:
    try:
        documents: list[Any] = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise SpecError(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    found: list[Manifest] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            found += document.get("items") or []
        elif isinstance(document, dict) and document.get("kind") != "Kustomization":
            found.append(document)
        elif document is not None and not isinstance(document, dict):
            raise SpecError(f"{where}: holds something that is no manifest")
    return found


def _is_ours(file: Path) -> bool:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().rstrip("\n") == MARK
