"""Agents of other kinds that carry their plans out as steps: `plan.execute`."""

from typing import Any

from cadre.engine.kind import Kind, find_kind
from cadre.kinds.plan.section import KIND, PlanSpec
from cadre.kinds.stepwise import StepwiseKind

_VERSION = 1
"""A later version of the kind `plan` is taken over by later versions of the kinds that ask here."""


class CarriesPlansOut(StepwiseKind):
    """Base of the kinds whose agents may be told `plan.execute`."""

    def deciding(self, spec: Any) -> Kind:
        """The kind that decides an agent's runs: that of plans, or its own for those that carry a step out."""
        section: PlanSpec = spec.plan
        return find_kind(KIND, _VERSION) if section.execute and not section.direct else self
