"""Writes the files of manifests: a kustomize base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.yaml_output import MARK, as_yaml, kustomization
from cadre.local.exit_codes import CommandFailed

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


def _is_ours(file: Path) -> bool:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().rstrip("\n") == MARK
