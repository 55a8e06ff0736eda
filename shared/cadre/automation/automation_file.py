"""Reads schedules, triggers, notices and standing budgets from YAML files; one file may hold several documents."""

from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cadre.automation.notice import NoticeSpec
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.standing_budget import BudgetSpec
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError
from cadre.spec.misfit import misfit_of
from cadre.spec.yaml_file import read_yaml_documents

AnySpec = ScheduleSpec | TriggerSpec | NoticeSpec | BudgetSpec

KINDS: dict[str, type[AnySpec]] = {
    "Schedule": ScheduleSpec,
    "Trigger": TriggerSpec,
    "Notice": NoticeSpec,
    "Budget": BudgetSpec,
}
"""What a document may be, by its `kind`."""

Spec = TypeVar("Spec", bound=msgspec.Struct)

_COLLECTIONS: dict[type[AnySpec], str] = {
    ScheduleSpec: "schedules",
    TriggerSpec: "triggers",
    NoticeSpec: "notices",
    BudgetSpec: "budgets",
}

_API_VERSION = "cadre.dev/v1"


def read_automations(path: Path) -> list[AnySpec]:
    """Everything in the file, in its order: documents `apiVersion: cadre.dev/v1, kind, metadata: {name}, spec`.

    Raises SpecError with the file, the key and what is expected there.
    """
    found = [_automation(document, path) for document in read_yaml_documents(path, SpecError)]
    if not found:
        raise SpecError(f"is empty: write kind: {' or '.join(KINDS)}", files=(path,))
    return found


def path_of(spec: AnySpec) -> str:
    """The path of the HTTP API at which the specification is made or replaced."""
    return f"/v1/{_COLLECTIONS[type(spec)]}/{spec.name}"


def automation_of(kind: type[Spec], name: str, body: dict[str, Any]) -> Spec:
    """The checked specification of this kind whose keys stand in `body`. Raises SpecError."""
    given = {key: _midnight(value) for key, value in body.items()}
    try:
        return msgspec.convert({**given, "name": name}, kind)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        if misfit.unknown:
            known = ", ".join(field for field in kind.__struct_fields__ if field != "name")
            raise SpecError(f"unknown key; known keys: {known}", key=misfit.unknown) from error
        raise SpecError(misfit.problem, key=misfit.place) from error


def _midnight(value: Any) -> Any:
    """YAML takes `2026-11-01` for a date: as a time it is its first moment."""
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day) if is_date else value


def _automation(document: Any, path: Path) -> AnySpec:
    if not isinstance(document, dict):
        raise SpecError("write apiVersion, kind, metadata and spec", files=(path,))
    if unknown := [key for key in document if key not in ("apiVersion", "kind", "metadata", "spec")]:
        raise SpecError(
            "unknown key; known keys: apiVersion, kind, metadata, spec", key=unknown[0], files=(path,)
        )
    if document.get("apiVersion") != _API_VERSION:
        raise SpecError(f"write {_API_VERSION}", key="apiVersion", files=(path,))
    kind = KINDS.get(str(document.get("kind")))
    if kind is None:
        raise SpecError(f"{document.get('kind')!r}: write {' or '.join(KINDS)}", key="kind", files=(path,))
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or len(metadata) != 1:
        raise SpecError("write {name: NAME}", key="metadata", files=(path,))
    if not isinstance(spec, dict):
        raise SpecError(f"write the keys of a {document['kind']}", key="spec", files=(path,))
    try:
        return automation_of(kind, metadata["name"], spec)
    except SpecError as error:
        error.in_file(metadata["name"])
        error.in_file(path)
        raise
