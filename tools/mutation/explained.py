"""Reads the file of mutations that no test can notice, with the reason for each."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mutation.sites import Mutation


class Explained:
    """The kept explanations. One holds for a mutation only while that changes the same code in the same way."""

    def __init__(self, reasons: dict[str, dict[str, str]]) -> None:
        self._reasons = reasons

    @classmethod
    def read(cls, file: Path) -> Explained:
        """From TOML, a table per mutation: `["module:function:operator:occurrence"]`, `change`, `why`.

        Raises ValueError for an entry without one of these.
        """
        reasons = tomllib.loads(file.read_text())
        for id, entry in reasons.items():
            if not entry.get("change") or not entry.get("why"):
                raise ValueError(f"{file.name}: {id} needs a `change` and a `why`")
        return cls(reasons)

    def why(self, mutation: Mutation) -> str | None:
        """Return why no test notices this one; None where no one has explained it."""
        entry = self._reasons.get(mutation.id, {})
        return entry.get("why") if entry.get("change") == mutation.change else None

    def outdated(self, mutations: dict[str, str]) -> list[str]:
        """Explained ids of which the code has no such mutation any more; `mutations` has the change of each id."""
        return [id for id, entry in self._reasons.items() if mutations.get(id) != entry["change"]]
