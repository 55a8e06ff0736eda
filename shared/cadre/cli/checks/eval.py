"""Define `cadre eval`: try kept runs and written tasks with the files of a team or another model, and print the
results.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec

from cadre.adapters.tool_entries import load_entry
from cadre.cli.checks.exported_run import exported_files, live_revision, prompts_of, read_exported_run
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import Duration, output_option, print_found
from cadre.cli.terminal.output import print_status, table
from cadre.deploy.team_file import TeamSpec, read_team
from cadre.errors import CadreError, CommandFailed, ExitCode, SpecError
from cadre.journal import events as ev
from cadre.prompting.prompts import Prompts
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import ErrorInfo, Task
from cadre.protocol.nats_users import GATEWAY_SENDER
from cadre.settings import read_model_settings, read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import facts_of
from cadre.spec.model import ModelSpec
from cadre.spec.prices import Prices
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of
from cadre.testing.evaluation import (
    Candidate,
    EndpointModel,
    Judge,
    ModelMaker,
    Trial,
    judge_spec,
    judged,
    tried,
)
from cadre.testing.kept_run import KeptRun, Policy, RunOutcome, kept_run
from cadre.tools.loading import AnyTool
from cadre.views.words import number

_PATH = click.Path(exists=True, path_type=Path)

_SUMMED = ("steps", "tokens", "cost")
_HEADERS = ["RUN", "AGENT", "STATE", "STEPS", "CALLS", "TOKENS", "COST", "ANSWER"]


class _Policies(click.ParamType[tuple[str, Policy]]):
    """An option NAME=POLICY."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Policy]:
        """Return the name of a tool, or `*`, and what becomes of its calls."""
        name, _, policy = str(value).partition("=")
        if not name or policy not in get_args(Policy):
            self.fail(f"{value!r}: write NAME=POLICY with one of {', '.join(get_args(Policy))}", param, ctx)
        return name, policy  # type: ignore[return-value]  # looked up just now


@click.command("eval")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="PATH...")
@click.option(
    "--team",
    type=_PATH,
    default=".",
    show_default=True,
    help="The folder or the team.yaml whose agents and tools are tried.",
)
@click.option(
    "--revision",
    "revisions",
    multiple=True,
    metavar="AGENT=REV",
    help="An agent as a live revision of it has it, by the gateway, in place of the team's file.",
)
@click.option("--model", metavar="NAME", help="The model that all agents ask, in place of their own.")
@click.option(
    "--judge",
    metavar="NAME|FILE",
    help="A model, or an agent's file, that compares each answer with the one of then.",
)
@click.option(
    "--tool",
    "policies",
    multiple=True,
    type=_Policies(),
    metavar="NAME=POLICY",
    help="What becomes of a tool's calls: history (only those of then are answered, as then), live (they are made; for"
    " read-only tools), refuse (none is answered). NAME may be *. Without: history, and what was not called then is"
    " called if it is read-only.",
)
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Runs at once.")
@click.option("--timeout", type=Duration(1), default="10m", show_default=True, help="Time of a run.")
@output_option("table")
def command(paths: tuple[Path, ...], team: Path, output: str, **options: Any) -> int:
    """Run the tasks of exported runs again, with the files of a team as they are now, and compare what comes of them.

    PATH is a file that `cadre runs export` wrote, a folder of such files, or a YAML file of tasks. The models are asked
    at their endpoints. Tools answer what they answered then, read-only ones are called where they were not called so,
    and no other is: there are no effects. Ends with 1 when a run that had succeeded does not, when the judge finds an
    answer worse, or when something could not be tried.
    """
    cases = _cases(paths)
    policies: dict[str, Policy] = dict(options["policies"])
    live = [_live(text) for text in options["revisions"]]
    candidate = _candidate(read_team(team), live, options["model"], policies, options["timeout"])
    # A tool that fails is an answer to the model here, no trouble of a service.
    logging.getLogger("cadre.tools").setLevel(logging.ERROR)
    found = asyncio.run(_evaluate(cases, candidate, _judge(options["judge"]), options["parallel"]))
    print_found(output, as_json(found), lambda: as_text(found))
    return ExitCode.FAILED if any(one.is_worse for one in found) else ExitCode.OK


class _Case(NamedTuple):
    """A case to try: a task, or a file that is read when its turn comes."""

    name: str
    file: Path
    run: KeptRun | None = None


def _cases(paths: Iterable[Path]) -> list[_Case]:
    """Raise SpecError, CommandFailed."""
    found: list[_Case] = []
    for path in paths:
        if path.is_file() and is_tasks_file(path):
            found += [_Case(name, path, run) for name, run in read_tasks(path)]
        else:
            found += [_Case(file.stem, file) for file in exported_files([path])]
    return found


def _live(text: str) -> tuple[AgentSpec, Prompts]:
    """Return the agent of AGENT=REV. Raises CommandFailed."""
    agent, mark, revision = text.partition("=")
    if not (agent and mark and revision):
        raise click.UsageError(f"--revision {text!r}: write AGENT=REV")
    with Gateway() as gateway:
        found = live_revision(gateway, agent, revision)
        return found.spec, prompts_of(gateway, found)


def _candidate(
    team: TeamSpec,
    live: Sequence[tuple[AgentSpec, Prompts]],
    model: str | None,
    policies: Mapping[str, Policy],
    seconds: float,
) -> Candidate:
    """Raise SpecError, SetupError, CommandFailed."""
    known = {name: read_agent(file) for name, file in team.agents.items()}
    specs = [*(known | {spec.name: spec for spec, _ in live}).values()]
    if model is not None:
        specs = [msgspec.structs.replace(one, model=_named(one.model, model)) for one in specs]
    tools = [tool for entry in team.tools for tool in load_entry(entry)]
    _check_policies(policies, tools, specs)
    models = {one.name: _endpoint(one.model) for one in specs if facts_of(one).asks_model}
    return Candidate(specs, tools, models, policies, seconds, {spec.name: prompts for spec, prompts in live})


def _check_policies(policies: Mapping[str, Policy], tools: Sequence[AnyTool], specs: Sequence[AgentSpec]) -> None:
    known = {"*", RECALL, *(tool.name for tool in tools), *(name for spec in specs for name in spec.tools)}
    for name in policies.keys() - known:
        # A run may have been offered it by what the files of now do not name any more.
        print_status(f"cadre: --tool {name}: no tool of the team or of its agents' files is called so")
    read_only = {tool.name for tool in tools if tool.card.read_only}
    for name, policy in policies.items():
        if policy == "live" and name not in {"*", *read_only}:
            raise CommandFailed(
                f"--tool {name}=live: the team has no read-only tool of that name, and no other is called in an"
                f" evaluation (read-only: {', '.join(sorted(read_only)) or 'none'})",
                ExitCode.USAGE,
            )


def _named(spec: ModelSpec, name: str) -> ModelSpec:
    return msgspec.structs.replace(spec, name=name, fallbacks=[])


def _judge(named: str | None) -> Judge | None:
    """Raise SpecError, CommandFailed."""
    if named is None:
        return None
    if Path(named).suffix in (".yaml", ".yml"):
        agent = read_agent(Path(named))
        return Judge(
            msgspec.structs.replace(agent, output_schema=agent.output_schema or judge_spec().output_schema),
            _endpoint(agent.model),
        )
    return Judge(judge_spec(), _endpoint(ModelSpec(name=named)))


def _endpoint(spec: ModelSpec) -> ModelMaker:
    settings, prices = read_model_settings(), Prices.read(read_settings().prices)
    if not (spec.url or settings.url):
        raise CommandFailed(
            "no model endpoint: set CADRE_MODEL_URL, CADRE_MODEL and CADRE_MODEL_KEY, or model.url in the agents'"
            " files",
            ExitCode.USAGE,
        )
    return lambda blobs: EndpointModel(spec, settings, prices, blobs)


class EvaluatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """An exported run, or a task, that was tried; without a trial, `problem` says why it could not be."""

    name: str
    file: str
    agent: str
    trial: Trial | None = None
    problem: str = ""
    is_judged: bool = False
    """True if a judge was asked where the answers differ."""

    @property
    def is_worse(self) -> bool:
        """Return whether it is not as good as it was: it succeeded and does not, a judge says so, or it cannot be
        tried."""
        if self.trial is None:
            return True
        was = self.trial.before.state if self.trial.before is not None else "success"
        if was == "success" != self.trial.now.state:
            return True
        return self.trial.verdict is not None and self.trial.verdict.verdict == "worse"


def as_json(found: Sequence[EvaluatedRun]) -> list[dict[str, Any]]:
    """Return all that is known of each."""
    return [{**msgspec.to_builtins(one), "is_worse": one.is_worse} for one in found]


def as_text(found: Sequence[EvaluatedRun]) -> str:
    """Return a table with a line for all together."""
    return f"{table(_HEADERS, [_row(one) for one in found])}\n{_totals(found)}"


def line_of(one: EvaluatedRun) -> str:
    """Return the outcome of one."""
    state = one.trial.now.state if one.trial is not None else "not tried"
    return f"{one.name}: {state}, {_answer(one)}"


def _row(one: EvaluatedRun) -> list[str]:
    if one.trial is None:
        return [one.name, one.agent or "-", "not tried", "-", "-", "-", "-", one.problem]
    now = one.trial.now
    before = _before(one.trial)
    return [
        one.name,
        one.agent,
        _change(before.state if before is not None else None, now.state),
        *(_change(_figure(before, what), _figure(now, what)) for what in ("steps", "calls", "tokens", "cost")),
        _answer(one),
    ]


def _before(trial: Trial) -> RunOutcome | None:
    """Return what the run took when it was recorded; of a written task, only the answer may be known."""
    return trial.before if trial.before is not None and trial.before.steps else None


def _figure(outcome: RunOutcome | None, what: str) -> str | None:
    if outcome is None:
        return None
    value = getattr(outcome, what)
    return f"{value:.4g}" if what == "cost" else number(value) if what == "tokens" else str(value)


def _answer(one: EvaluatedRun) -> str:
    trial = one.trial
    if trial is None:
        return one.problem
    if trial.verdict is not None:
        answer = f"{trial.verdict.verdict}: {trial.verdict.why}"
    elif trial.now.error:
        answer = trial.now.error
    elif trial.same_answer is None:
        answer = "-"
    else:
        answer = "same" if trial.same_answer else "other, and the judge said nothing" if one.is_judged else "other"
    if trial.beyond_history:
        answer += f" (not called: {', '.join(trial.beyond_history)})"
    return answer


def _change(before: str | None, now: str | None) -> str:
    return str(now) if before in (None, now) else f"{before} -> {now}"


def _totals(found: Sequence[EvaluatedRun]) -> str:
    trials = [one.trial for one in found if one.trial is not None]
    same = sum(trial.same_answer is True for trial in trials)
    other = sum(
        trial.now.state == "success" and trial.same_answer is False and trial.verdict is None for trial in trials
    )
    worse = sum(one.is_worse for one in found if one.trial is not None)
    compared = [(before, trial.now) for trial in trials if (before := _before(trial)) is not None]
    sums = []
    for what in _SUMMED:
        then = f"{sum(getattr(before, what) for before, _ in compared):.6g}" if compared else None
        outcomes = [now for _, now in compared] if compared else [trial.now for trial in trials]
        sums.append(f"{what} {_change(then, f'{sum(getattr(now, what) for now in outcomes):.6g}')}")
    many = "1 run" if len(found) == 1 else f"{len(found)} runs"
    left = f", {len(found) - len(trials)} not tried" if len(trials) < len(found) else ""
    others = f", {other} with another" if other else ""
    return f"{many}: {same} with the same answer{others}, {worse} worse{left}; {', '.join(sums)}"


async def _evaluate(
    cases: Sequence[_Case], candidate: Candidate, judge: Judge | None, parallel: int
) -> list[EvaluatedRun]:
    free = asyncio.Semaphore(parallel)

    async def one(case: _Case) -> EvaluatedRun:
        async with free:
            found = await _evaluated(case, candidate, judge)
        # One after the other, as they end: an interrupted command has printed those.
        print_status(line_of(found))
        return found

    return list(await asyncio.gather(*map(one, cases)))


async def _evaluated(case: _Case, candidate: Candidate, judge: Judge | None) -> EvaluatedRun:
    """One that cannot be tried harms no other."""
    agent = ""
    try:
        run = case.run if case.run is not None else _read(case.file)
        agent = run.task.agent
        if agent not in {one.name for one in candidate.agents}:
            raise CommandFailed(f"the team has no agent {agent}", ExitCode.USAGE)
        trial = await tried(run, candidate)
        if judge is not None and trial.now.state == "success" and trial.same_answer is False:
            trial = msgspec.structs.replace(trial, verdict=await judged(run.task.task, trial, judge))
    except CadreError as error:
        return EvaluatedRun(name=case.name, file=str(case.file), agent=agent, problem=str(error))
    return EvaluatedRun(name=case.name, file=str(case.file), agent=agent, trial=trial, is_judged=judge is not None)


def _read(file: Path) -> KeptRun:
    """Raise CommandFailed."""
    tree = read_exported_run(file)
    journals = {run: [entry for _, entry in journal] for run, journal in tree.journals.items()}
    given = {
        one.path: tree.blobs[one.ref]
        for one in tree.files
        if one.ref in tree.blobs and one.by.startswith(GATEWAY_SENDER)
    }
    try:
        return kept_run(tree.id, journals, tree.blobs, given)
    except ValueError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error


class WrittenCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a call of a tool."""

    tool: str
    arguments: dict[str, Any] = {}
    output: Any = None
    error: str | None = None


class WrittenTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of the file."""

    agent: str
    task: str
    name: str = ""
    inputs: dict[str, Any] = {}
    answer: Any = None
    """A good answer; None: any that the agent's own checks and schema take."""
    calls: list[WrittenCall] = []


def is_tasks_file(path: Path) -> bool:
    """Return whether the file is one of tasks, by its name."""
    return path.suffix in (".yaml", ".yml")


def read_tasks(file: Path) -> list[tuple[str, KeptRun]]:
    """Return the tasks as runs to be tried, each with its name. Raises SpecError with the key and what is expected
    there."""
    try:
        found = read_yaml(file, SpecError)
        if not isinstance(found, list) or not found:
            raise SpecError(f"{file}: is no list of tasks: each begins with `- agent: NAME` and has a `task`")
        written = msgspec.convert(found, list[WrittenTask])
    except msgspec.ValidationError as error:
        raise SpecError(f"{file}: {misfit_of(error)}") from error
    return [
        (one.name or f"{file.stem}-{number}", _case(f"task{number}", one))
        for number, one in enumerate(written, start=1)
    ]


def _case(run: str, one: WrittenTask) -> KeptRun:
    task = Task(
        id=f"{run}:task",
        tree=run,
        run=run,
        at=0.0,
        agent=one.agent,
        task=one.task,
        inputs=one.inputs,
    )
    calls = [
        (
            ev.ToolCalled(call=f"{run}_{number}", tool=call.tool, arguments=call.arguments),
            ev.ToolAnswered(
                call=f"{run}_{number}",
                tool=call.tool,
                output=call.output,
                error=ErrorInfo("tool-failed", call.error) if call.error is not None else None,
            ),
        )
        for number, call in enumerate(one.calls)
    ]
    known = RunOutcome(state="success", output=one.answer) if one.answer is not None else None
    return KeptRun(task=task, outcome=known, calls=calls)
