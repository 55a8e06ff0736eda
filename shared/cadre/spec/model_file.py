"""A model's YAML file (`kind: Model`), and how agent files name it: `model: NAME` or `model: {use: NAME, …}`.

A name is looked for as `models/NAME.yaml`, then as `NAME.yaml`, in the folder of the agent's file.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec.inspect import type_info

from cadre.errors import SpecError, UnknownModel
from cadre.spec.durations import with_seconds
from cadre.spec.model import ModelSpec, check_api, check_url
from cadre.spec.names import check_name
from cadre.spec.yaml_file import read_yaml
from cadre.structs import known_keys, misfit_of, sections_at

Capability = Literal["vision", "streaming", "tools", "json_schema"]

_NEEDS: tuple[tuple[str, Any, Capability], ...] = (
    ("vision", True, "vision"),
    ("stream", True, "streaming"),
    ("calls", "native", "tools"),
    ("calls", "schema", "json_schema"),
)
"""A key of the section, its value, and what a model must be able to do for that."""


class _ModelMetadata(msgspec.Struct):
    name: str


class _ModelDocument(msgspec.Struct):
    api_version: Literal["cadre.dev/v1"] = msgspec.field(name="apiVersion")
    kind: Literal["Model"]
    metadata: _ModelMetadata
    spec: ModelSpec


class ModelFile(NamedTuple):
    """A checked file: the keys of the section `model` that it stands for."""

    section: dict[str, Any]
    capabilities: list[Capability] | None
    """The capabilities of the model; None: the file does not say."""


def with_models(data: Any, folder: Path) -> tuple[Any, list[Path]]:
    """Return an agent's document with the models that it names in place of their names, and the files that hold them.

    Raises SpecError naming the file and what is wrong in it.
    """
    spec = data.get("spec") if isinstance(data, dict) else None
    if not isinstance(spec, dict) or "model" not in spec:
        return data, []
    files: list[Path] = []
    section = _resolved("spec.model", spec["model"], folder, files)
    if isinstance(section, dict) and isinstance(section.get("fallbacks"), list):
        found = [
            _resolved(f"spec.model.fallbacks[{index}]", one, folder, files)
            for index, one in enumerate(section["fallbacks"])
        ]
        section = {**section, "fallbacks": found}
        for index, one in enumerate(found):
            check_keys(one, f"spec.model.fallbacks[{index}]", ModelSpec.__struct_fields__)
    return {**data, "spec": {**spec, "model": section}}, files


def read_model(path: Path) -> ModelFile:
    """Read one model from a YAML file of the form `apiVersion: cadre.dev/v1, kind: Model, metadata, spec`.

    Raises SpecError with the file, the key and what is expected there.
    """
    data = _lengths_read(path, read_yaml(path, SpecError))
    try:
        spec = data.get("spec") if isinstance(data, dict) else None
        section = dict(spec) if isinstance(spec, dict) else {}
        capabilities = msgspec.convert(section.pop("capabilities", None), list[Capability] | None)
    except msgspec.ValidationError as error:
        known = ", ".join(get_args(Capability))
        raise SpecError(f"write a list of {known}", key="spec.capabilities", files=(path,)) from error
    try:
        for place, keys in _KEYS.items():
            for where, found in sections_at(data, place):
                check_keys(found, where or "the document", (*keys, "capabilities") if place == "spec" else keys)
        document = msgspec.convert(data, _ModelDocument)
        if document.metadata.name != path.stem:
            raise SpecError(f"must be the file's name, {path.stem!r}", key="metadata.name")
        check_url("spec.url", document.spec.url)
        check_api("spec", document.spec)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        raise SpecError(misfit.problem, key=misfit.place, files=(path,)) from error
    except SpecError as error:
        error.in_file(path)
        raise
    if section.get("calls") == "auto" and capabilities is not None:
        del section["calls"]
    return ModelFile({"name": document.metadata.name, **section, **_defaults(section, capabilities)}, capabilities)


def _lengths_read(path: Path, data: Any) -> Any:
    try:
        return with_seconds(data, type_info(_ModelDocument))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def check_keys(found: Any, where: str, known: tuple[str, ...]) -> None:
    """Raise SpecError for a key of a mapping that is not known there."""
    for key in found if isinstance(found, dict) else ():
        if key not in known:
            raise SpecError(f"unknown key {key!r} in {where}; known keys: {', '.join(known)}")


def _resolved(where: str, section: Any, folder: Path, files: list[Path]) -> Any:
    """The section with the keys of the file that it names; its own keys win."""
    if isinstance(section, str):
        section = {"use": section}
    if not isinstance(section, dict) or "use" not in section:
        return section
    own = {key: value for key, value in section.items() if key != "use"}
    path = _find(where, section["use"], folder)
    model = read_model(path)
    if own.get("calls") == "auto" and model.capabilities is not None:
        del own["calls"]  # the file says it
    files.append(path)
    merged = {**model.section, **own}
    for key, value, capability in _NEEDS:
        if key in own and own[key] == value and capability not in (model.capabilities or [capability]):
            written = str(value).lower()
            raise SpecError(
                f"{written} needs the capability {capability}, which the file of model {path.stem!r} does not list",
                key=f"{where}.{key}",
            )
    return merged


def _find(where: str, name: Any, folder: Path) -> Path:
    if not isinstance(name, str):
        raise SpecError("name a model, or write its keys", key=where)
    check_name("model", name)
    places = [folder / "models" / f"{name}.yaml", folder / f"{name}.yaml"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UnknownModel(name, f"neither {places[0]} nor {places[1]}", key=where)
    return found


def _defaults(section: dict[str, Any], capabilities: list[Capability] | None) -> dict[str, Any]:
    """Return what follows from a model's capabilities for the keys that its file leaves out."""
    if capabilities is None:
        return {}
    calls = "native" if "tools" in capabilities else "schema" if "json_schema" in capabilities else "text"
    follows = {"vision": "vision" in capabilities, "stream": "streaming" in capabilities, "calls": calls}
    return {key: value for key, value in follows.items() if key not in section}


_KEYS = known_keys(_ModelDocument)
