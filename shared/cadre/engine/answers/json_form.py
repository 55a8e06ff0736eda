"""In which form a model is asked for JSON: held to a schema, in JSON mode, or by the prompt alone."""

import re

from cadre.engine.model_choice import asked_model
from cadre.journal.run import Run

_NEXT_FORM = {"schema": "object", "object": "prompt"}
_ABOUT_FORMS = re.compile(
    r"response_?format|json_?schema|json_?object|json mode|structured|grammar", re.IGNORECASE
)
"""How an endpoint names what it refuses."""


def form_of(run: Run) -> str:
    """In which form the run's model is asked: `schema`, `object` or `prompt`.

    What a run has learned of its endpoint stands in `form` of its kind's own state, "" until a form was refused.
    """
    wanted: str = asked_model(run).structured
    if wanted != "auto":
        return wanted
    return getattr(run.own, "form", "") or "schema"


def form_after(run: Run, reason: str) -> str | None:
    """The form to ask in when the endpoint refused with this reason; None when it refused something else."""
    if asked_model(run).structured != "auto" or not _ABOUT_FORMS.search(reason):
        return None
    return _NEXT_FORM.get(form_of(run))
