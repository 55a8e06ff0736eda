"""Manifests as YAML that a person can read, and as the files of a kustomize base."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cadre.deploy.k8s.manifest import Manifest
from cadre.errors import CommandFailed

_KUSTOMIZATION_FILE = "kustomization.yaml"
_MARK = "# Written by `cadre k8s render`: what is changed here is lost at the next one."


class _Dumper(yaml.SafeDumper):
    """No anchors, and `|` for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text)


def as_yaml(manifests: Iterable[Manifest]) -> str:
    """The manifests as one YAML text: keys in their order, texts as blocks."""
    documents = yaml.dump_all(
        manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
    return f"{_MARK}\n{documents}"


def write_folder(
    folder: Path, files: Mapping[str, Sequence[Manifest]], *, replace: bool, parts: Collection[str] = ()
) -> None:
    """Writes a file for each key, and a kustomization of all of them. `replace` removes files of earlier calls.

    In files that `parts` names the objects that are not given stay.

    Files that a person put there are neither read nor touched. Raises CommandFailed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _KUSTOMIZATION_FILE).exists() and not _is_ours(folder / _KUSTOMIZATION_FILE):
            raise CommandFailed(
                f"{folder / _KUSTOMIZATION_FILE} is not by `cadre k8s render`: choose another folder"
            )
        for path in folder.glob("*.yaml"):
            if replace and _is_ours(path):
                path.unlink()
        for name, manifests in files.items():
            path = folder / f"{name}.yaml"
            kept = _others(path, manifests) if name in parts else []
            path.write_text(as_yaml([*kept, *manifests]), "utf-8")
        ours = [p.stem for p in folder.glob("*.yaml") if p.name != _KUSTOMIZATION_FILE and _is_ours(p)]
        (folder / _KUSTOMIZATION_FILE).write_text(_kustomization(ours), "utf-8")
    except OSError as error:
        raise CommandFailed(f"{folder}: cannot be written: {error.strerror}") from error


def _others(file: Path, manifests: Sequence[Manifest]) -> list[Manifest]:
    """The objects of a file, if it is there, without those that are given anew."""
    if not file.exists():
        return []
    given = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    there = yaml.safe_load_all(file.read_text("utf-8"))
    return [one for one in there if (one["kind"], one["metadata"]["name"]) not in given]


def _is_ours(file: Path) -> bool:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().rstrip("\n") == _MARK


def _kustomization(files: Iterable[str]) -> str:
    data = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{file}.yaml" for file in sorted(files)],
    }
    return f"{_MARK}\n{yaml.safe_dump(data, sort_keys=False)}"
