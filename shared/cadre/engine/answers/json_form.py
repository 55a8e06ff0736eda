"""In which form a model is asked for JSON: held to a schema, in JSON mode, or by the prompt alone."""

from cadre.engine.model_choice import asked_model
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import Run

_NEXT_FORM = {"schema": "object", "object": "prompt"}


def form_of(run: Run) -> str:
    """In which form the run's model is asked: `schema`, `object` or `prompt`.

    What a run has learned of its endpoint stands in `form` of its kind's own state, "" until a form was refused.
    """
    wanted: str = asked_model(run).structured
    if wanted != "auto":
        return wanted
    return getattr(run.own, "form", "") or "schema"


def form_after(run: Run, failure: ModelFailed) -> str | None:
    """Return the form to ask in after this failure, or None if the endpoint did not refuse the form."""
    if asked_model(run).structured != "auto" or not failure.about_form:
        return None
    return _NEXT_FORM.get(form_of(run))
