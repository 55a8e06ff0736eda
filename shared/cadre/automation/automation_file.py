"""The kinds of definitions, and their YAML files; one file may hold several documents."""

from datetime import date, datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from cadre.automation.notice import NoticeSpec
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.standing_budget import BudgetSpec
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError
from cadre.spec.yaml_file import read_yaml_documents
from cadre.structs import misfit_of

AnySpec = ScheduleSpec | TriggerSpec | NoticeSpec | BudgetSpec

Spec = TypeVar("Spec", bound=AnySpec)
Spec_co = TypeVar("Spec_co", bound=AnySpec, covariant=True)


class Definition(NamedTuple, Generic[Spec_co]):
    """A kind of definition. Its routes, rights, commands, stored values and Kubernetes objects follow from this."""

    kind: str
    """The value of `kind` in a document."""
    spec: type[Spec_co]
    replaced: str
    """A sentence about what a replacement keeps; "" when there is nothing to say."""
    removed: str
    """A clause about what a removal leaves."""

    @property
    def name(self) -> str:
        """Return the word for one, such as `schedule`."""
        return self.kind.lower()

    @property
    def plural(self) -> str:
        """Return the word for several, such as `schedules`."""
        return f"{self.name}s"

    @property
    def path(self) -> str:
        """Return the path of all of them in the HTTP API; each one's name follows behind a slash."""
        return f"/v1/{self.plural}"


SCHEDULE = Definition(
    "Schedule",
    ScheduleSpec,
    "Replaces all keys. Where its times stay the same, its ticks do; else they are counted from now.",
    "runs that have begun go on",
)
TRIGGER = Definition("Trigger", TriggerSpec, "", "runs that have begun go on")
NOTICE = Definition("Notice", NoticeSpec, "", "what is on its way is not delivered")
BUDGET = Definition(
    "Budget",
    BudgetSpec,
    "What was used in its present window before counts.",
    "one that is made again counts what was used",
)

DEFINITIONS: tuple[Definition[AnySpec], ...] = (SCHEDULE, TRIGGER, NOTICE, BUDGET)

_API_VERSION = "cadre.dev/v1"


def read_automations(path: Path) -> list[AnySpec]:
    """Everything in the file, in its order: documents `apiVersion: cadre.dev/v1, kind, metadata: {name}, spec`.

    Raises SpecError with the file, the key and what is expected there.
    """
    found = [_automation(document, path) for document in read_yaml_documents(path, SpecError)]
    if not found:
        raise SpecError(f"is empty: write kind: {_kinds()}", files=(path,))
    return found


def path_of(spec: AnySpec) -> str:
    """Return the path of the HTTP API at which the specification is made or replaced."""
    return next(f"{one.path}/{spec.name}" for one in DEFINITIONS if isinstance(spec, one.spec))


def automation_of(kind: type[Spec], name: str, body: dict[str, Any]) -> Spec:
    """Return the checked specification of this kind whose keys stand in `body`. Raises SpecError."""
    given = {key: _midnight(value) for key, value in body.items()}
    try:
        return msgspec.convert({**given, "name": name}, kind)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        if misfit.unknown:
            known = ", ".join(field for field in kind.__struct_fields__ if field != "name")
            raise SpecError(f"unknown key; known keys: {known}", key=misfit.unknown) from error
        if misfit.missing:
            raise SpecError("is missing: write it", key=f"{misfit.place}.{misfit.missing}".lstrip(".")) from error
        raise SpecError(misfit.problem, key=misfit.place) from error


def _midnight(value: Any) -> Any:
    """YAML takes `2026-11-01` for a date: as a time it is its first moment."""
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day) if is_date else value


def _automation(document: Any, path: Path) -> AnySpec:
    if not isinstance(document, dict):
        raise SpecError("write apiVersion, kind, metadata and spec", files=(path,))
    if unknown := [key for key in document if key not in ("apiVersion", "kind", "metadata", "spec")]:
        raise SpecError("unknown key; known keys: apiVersion, kind, metadata, spec", key=unknown[0], files=(path,))
    if document.get("apiVersion") != _API_VERSION:
        raise SpecError(f"write {_API_VERSION}", key="apiVersion", files=(path,))
    kind = next((one.spec for one in DEFINITIONS if one.kind == document.get("kind")), None)
    if kind is None:
        raise SpecError(f"{document.get('kind')!r}: write {_kinds()}", key="kind", files=(path,))
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


def _kinds() -> str:
    return " or ".join(one.kind for one in DEFINITIONS)
