"""The findings of `cadre model test` in this folder, kept for `model.calls: auto`: `.cadre/models.json`."""

from pathlib import Path

import msgspec

from cadre.adapters.local_stack import default_data
from cadre.adapters.models.failure import shown_url
from cadre.adapters.models.probing.report import ModelReport
from cadre.settings import ModelSettings
from cadre.spec.agent import SHORT_PROMPTS, AgentSpec
from cadre.spec.kinds import facts_of
from cadre.spec.model import CallForm, ModelSpec, with_calls


class _Reports(msgspec.Struct):
    models: list[ModelReport] = []


def keep_report(report: ModelReport) -> None:
    """Keep the report in place of an earlier one of the same model at the same endpoint; what it could not find out is
    taken from that one. Raises OSError."""
    file, key = _file(), _key(report.url, report.model)
    others = []
    for one in _read(file).models:
        if _key(one.url, one.model) == key:
            known = {probe.name: probe for probe in one.probes}
            probes = [known.get(probe.name, probe) if probe.verdict == "unknown" else probe for probe in report.probes]
            report = msgspec.structs.replace(report, probes=probes)
        else:
            others.append(one)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".json.new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(_Reports([*others, report]))) + b"\n")
    fresh.replace(file)


def report_of(url: str, model: str) -> ModelReport | None:
    """Return the kept report of a model at an endpoint; None when it was never tested in this folder."""
    return next((one for one in _read(_file()).models if _key(one.url, one.model) == _key(url, model)), None)


def with_tested_calls(spec: AgentSpec, settings: ModelSettings) -> AgentSpec:
    """Return the agent with each `model.calls: auto` decided by what was found of its model; `native` where nothing
    was, or `schema` with the short prompts: small models that are never tested write calls best under a schema.

    Runs are begun with what this returns, so a run keeps the form that it began with.
    """

    def form_of(model: ModelSpec) -> CallForm:
        report = report_of(model.url or settings.url, model.name or settings.name)
        untested: CallForm = "schema" if spec.prompts == SHORT_PROMPTS else "native"
        return report.calls if report is not None else untested

    return msgspec.structs.replace(spec, model=with_calls(spec.model, form_of))


def doubtful_calls(spec: AgentSpec) -> str | None:
    """Return what to do about native calls with the short prompts, as small models take them, where no test has shown
    that the model calls tools; None where there is nothing to do. `spec` names its URL and its model."""
    needs_tools = "tools" in facts_of(spec).capabilities
    if not needs_tools or spec.prompts != SHORT_PROMPTS or spec.model.calls != "native":
        return None
    report = report_of(spec.model.url, spec.model.name)
    if report is not None and report.can("tools", "tool_choice: required"):
        return None
    return (
        "prompts: short is for small models, which seldom make native calls right; set model.calls: schema, or auto"
        " and run `cadre model test`"
    )


def _file() -> Path:
    return default_data() / "models.json"


def _read(file: Path) -> _Reports:
    """Return the kept reports; none of a file that is missing or of another version."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Reports)
    except (OSError, msgspec.DecodeError):
        return _Reports()


def _key(url: str, model: str) -> tuple[str, str]:
    return shown_url(url).rstrip("/"), model
