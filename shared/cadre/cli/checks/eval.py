"""`cadre eval`: kept runs tried again with the files of a team, or another model."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cadre.cli.checks.exported_run import exported_files, read_exported_run
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import number, table
from cadre.deploy.nats_users import GATEWAY_SENDER
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.local.team.team_file import TeamSpec, read_team
from cadre.local.team.tool_entries import load_entry
from cadre.settings import read_model_settings, read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import declaration_of
from cadre.spec.model import ModelSpec
from cadre.spec.prices import Prices
from cadre.testing.evaluation import Candidate, EndpointModel, ModelMaker, Trial, judged, tried
from cadre.testing.kept_run import KeptRun, kept_run


class EvaluatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """An exported run, tried again."""

    file: str
    agent: str
    trial: Trial

    @property
    def is_worse(self) -> bool:
        """Whether it succeeded then and does not now, or a judge says so."""
        if self.trial.before.state == "success" != self.trial.now.state:
            return True
        return self.trial.verdict is not None and self.trial.verdict.verdict == "worse"


_PATH = click.Path(exists=True, path_type=Path)


@click.command("eval")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="PATH...")
@click.option(
    "--team",
    type=_PATH,
    default=".",
    show_default=True,
    help="The folder or the team.yaml whose agents and tools are tried.",
)
@click.option("--model", metavar="NAME", help="The model that all agents ask, in place of their own.")
@click.option("--judge", metavar="NAME", help="A model that compares each answer with the one of then.")
@click.option(
    "--live/--no-live",
    default=True,
    show_default=True,
    help="Call read-only tools where the kept run made no such call.",
)
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Runs at once.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds of a run."
)
@output_option("table")
def command(paths: tuple[Path, ...], team: Path, output: str, **options: Any) -> int:
    """Run the tasks of exported runs again, with the files of a team as they are now, and compare what comes of them.

    PATH is a file that `cadre runs export` wrote, or a folder of such files. The models are asked at their endpoints.
    Tools answer what they answered then, read-only ones are called where they were not called so, and no other is:
    there are no effects. Ends with 1 when a run that had succeeded does not, or when the judge finds an answer worse.
    """
    files, judge = exported_files(paths), options["judge"]
    candidate = _candidate(read_team(team), options["model"], options["live"], options["timeout"])
    judging = _endpoint(ModelSpec(name=judge)) if judge is not None else None
    found = asyncio.run(_evaluate(files, candidate, judging, options["parallel"]))
    if output == "json":
        print_json([{**msgspec.to_builtins(one), "is_worse": one.is_worse} for one in found])
    else:
        click.echo(table(_HEADERS, [_row(one) for one in found]))
        click.echo(_totals(found))
    return ExitCode.FAILED if any(one.is_worse for one in found) else ExitCode.OK


def _candidate(team: TeamSpec, model: str | None, live: bool, seconds: float) -> Candidate:
    """Raises SpecError, SetupError, CommandFailed."""
    specs = [read_agent(file) for file in team.agents.values()]
    if model is not None:
        specs = [msgspec.structs.replace(one, model=_named(one.model, model)) for one in specs]
    tools = [tool for entry in team.tools for tool in load_entry(entry)]
    models = {one.name: _endpoint(one.model) for one in specs if declaration_of(one.kind).needs(one).model}
    return Candidate(specs, tools, models, live, seconds)


def _named(spec: ModelSpec, name: str) -> ModelSpec:
    return msgspec.structs.replace(spec, name=name, fallbacks=[])


def _endpoint(spec: ModelSpec) -> ModelMaker:
    settings, prices = read_model_settings(), Prices.read(read_settings().prices)
    if not (spec.url or settings.url):
        raise CommandFailed(
            "no model endpoint: set CADRE_MODEL_URL, CADRE_MODEL and CADRE_MODEL_KEY, or model.url in the agents'"
            " files",
            ExitCode.USAGE,
        )
    return lambda blobs: EndpointModel(spec, settings, prices, blobs)


async def _evaluate(
    files: Sequence[Path], candidate: Candidate, judge: ModelMaker | None, parallel: int
) -> list[EvaluatedRun]:
    free = asyncio.Semaphore(parallel)

    async def one(file: Path) -> EvaluatedRun:
        async with free:
            run = _read(file, candidate.agents)
            trial = await tried(run, candidate)
            if judge is not None and trial.now.state == "success" and not trial.same_answer:
                trial = msgspec.structs.replace(trial, verdict=await judged(run.task.task, trial, judge))
            return EvaluatedRun(file=str(file), agent=run.task.agent, trial=trial)

    return list(await asyncio.gather(*map(one, files)))


def _read(file: Path, agents: Sequence[AgentSpec]) -> KeptRun:
    tree = read_exported_run(file)
    journals = {run: [entry for _, entry in journal] for run, journal in tree.journals.items()}
    given = {
        one.path: tree.blobs[one.ref]
        for one in tree.files
        if one.ref in tree.blobs and one.by.startswith(GATEWAY_SENDER)
    }
    try:
        run = kept_run(tree.id, journals, tree.blobs, given)
    except ValueError as error:
        raise CommandFailed(f"{file}: {error}", ExitCode.USAGE) from error
    if run.task.agent not in {agent.name for agent in agents}:
        raise CommandFailed(f"{file}: the team has no agent {run.task.agent}", ExitCode.USAGE)
    return run


_SUMMED = ("steps", "tokens", "cost")
_HEADERS = ["RUN", "AGENT", "STATE", "STEPS", "CALLS", "TOKENS", "COST", "ANSWER"]


def _row(one: EvaluatedRun) -> list[str]:
    before, now, trial = one.trial.before, one.trial.now, one.trial
    answer = "same" if trial.same_answer else "other"
    if trial.verdict is not None:
        answer = f"{trial.verdict.verdict}: {trial.verdict.why}"
    elif now.error:
        answer = now.error
    if trial.beyond_history:
        answer += f" (not called: {', '.join(trial.beyond_history)})"
    return [
        Path(one.file).stem,
        one.agent,
        _change(before.state, now.state),
        _change(str(before.steps), str(now.steps)),
        _change(str(before.calls), str(now.calls)),
        _change(number(before.tokens), number(now.tokens)),
        _change(f"{before.cost:.4g}", f"{now.cost:.4g}"),
        answer,
    ]


def _change(before: str, now: str) -> str:
    return now if before == now else f"{before} -> {now}"


def _totals(found: Sequence[EvaluatedRun]) -> str:
    before, now = [one.trial.before for one in found], [one.trial.now for one in found]
    same = sum(one.trial.same_answer for one in found)
    worse = sum(one.is_worse for one in found)
    sums = [(what, *(sum(getattr(one, what) for one in each) for each in (before, now))) for what in _SUMMED]
    told = ", ".join(f"{what} {_change(f'{then:.6g}', f'{later:.6g}')}" for what, then, later in sums)
    return f"{len(found)} runs: {same} with the same answer, {worse} worse; {told}"
