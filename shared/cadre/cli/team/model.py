"""`cadre model test`: asks a model what it can do, and says what to write into its file."""

import asyncio
import time
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from cadre.adapters.local_stack import model_settings
from cadre.adapters.models.failure import shown_url
from cadre.adapters.models.probing.report import ModelReport, Probe
from cadre.cli.terminal.options import Duration, output_option, print_json
from cadre.cli.terminal.output import print_text
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.service.tested_models import keep_report
from cadre.spec.agent_file import read_agent
from cadre.spec.model import ModelSpec
from cadre.spec.model_file import read_model
from cadre.spec.yaml_file import read_yaml
from cadre.views.words import brief

_COLOURS = {"yes": "green", "no": "yellow", "unknown": "red"}
_NAME_WIDTH = 23


@click.group("model")
def command() -> None:
    """The models that agents ask."""


@command.command("test")
@click.argument("target", required=False, metavar="[URL|FILE]")
@click.option("--model", "name", metavar="NAME", help="The model's name, over what the file or CADRE_MODEL says.")
@click.option("--key-env", metavar="VARIABLE", help="Variable that holds the key.  [default: CADRE_MODEL_KEY]")
@click.option("--embeddings", metavar="NAME", help="Ask for the vectors of this model as well.")
@click.option(
    "--timeout",
    type=Duration(1),
    default="60s",
    show_default=True,
    help="Time that one request may take.",
)
@output_option("table")
def test_model(
    target: str | None,
    name: str | None,
    key_env: str | None,
    embeddings: str | None,
    timeout: float,
    output: str,
) -> int:
    """Ask a model what it can do: the endpoint URL, the file of a model or of an agent, or what CADRE_MODEL_URL says.

    Makes some 20 requests of at most 200 tokens each. What is found is kept in .cadre/models.json, where
    `model.calls: auto` looks.
    """
    given = {key: value for key, value in (("name", name), ("key_env", key_env)) if value}
    specs = [msgspec.structs.replace(one, **given) for one in _models(target)]
    reports = [asyncio.run(_test(spec, timeout, embeddings, output == "table")) for spec in specs]
    if output == "json":
        found = [{**msgspec.to_builtins(one), "calls": one.calls, "spec": one.section()} for one in reports]
        print_json(found[0] if len(found) == 1 else found)
    if all(report.answers for report in reports):
        return ExitCode.OK
    reached = all(probe.verdict != "unknown" for report in reports for probe in report.probes[:1])
    return ExitCode.FAILED if reached else ExitCode.UNREACHABLE


def _models(target: str | None) -> list[ModelSpec]:
    """Return the models that are meant, each with a URL. Raises CommandFailed, SetupError."""
    settings = model_settings()
    if target is None:
        specs = [ModelSpec()]
    elif target.startswith(("http://", "https://")):
        specs = [ModelSpec(url=target)]
    else:
        specs = _of_file(Path(target))
    specs = [msgspec.structs.replace(one, url=one.url or settings.url, name=one.name or settings.name) for one in specs]
    if any(not one.url for one in specs):
        raise CommandFailed("which model? Give its URL or file, or set CADRE_MODEL_URL", ExitCode.USAGE)
    return specs


def _of_file(file: Path) -> list[ModelSpec]:
    """Return the model of a model's file, or the model and the fallbacks of an agent's."""
    data = read_yaml(file, SpecError)
    if isinstance(data, dict) and data.get("kind") == "Model":
        return [msgspec.convert(read_model(file).section, ModelSpec)]
    model = read_agent(file).model
    return [msgspec.structs.replace(model, fallbacks=[]), *model.fallbacks]


async def _test(spec: ModelSpec, seconds: float, embeddings: str | None, shows: bool) -> ModelReport:
    """Probe one model, showing each finding as it comes, and keep the report."""
    # Here, so that the command's help does without it.
    from cadre.adapters.models.probing.probes import first_model, probe_all

    if not spec.name:
        spec = msgspec.structs.replace(spec, name=await first_model(spec, seconds))
    if shows:
        print_text(f"{spec.name or '?'} at {shown_url(spec.url)}\n")
    probes: list[Probe] = []
    async for probe in probe_all(spec, seconds, embeddings):
        probes.append(probe)
        if shows:
            verdict = click.style(f"{probe.verdict:<7}", fg=_COLOURS[probe.verdict])
            click.echo(f"{probe.name:<{_NAME_WIDTH}}  {verdict}  {brief(probe.detail, 300)}".rstrip())
    report = ModelReport(url=shown_url(spec.url), model=spec.name, api=spec.api, at=time.time(), probes=probes)
    if report.answers:
        _keep(report)
        if shows:
            click.echo(f"\n{_file_lines(report, spec)}")
    return report


def _keep(report: ModelReport) -> None:
    try:
        keep_report(report)
    except OSError as error:
        click.echo(f"cadre: what was found is not kept: {error}", err=True)


def _file_lines(report: ModelReport, spec: ModelSpec) -> str:
    """Return what to write under `spec` in the model's file."""
    section: dict[str, Any] = report.section()
    if spec.key_env != ModelSpec().key_env:
        section["key_env"] = spec.key_env
    lines = yaml.safe_dump({"spec": section}, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return f"In a file of kind: Model (docs/models.md):\n\n{lines.rstrip()}"
