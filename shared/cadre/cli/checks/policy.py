"""Define `cadre policy`: the shipped policies, and what a policy would have said of the calls of kept runs."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from cadre.cli.checks.exported_run import exported_files, read_exported_run
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found
from cadre.errors import ExitCode
from cadre.loop.try_policies import AssumedPlan, TriedCall, tried
from cadre.protocol.cards import ToolCard
from cadre.protocol.policy import Policy
from cadre.spec.policy_file import read_policies, shipped_policies, shipped_text

_TOLD_CALLS = 20
"""The number of calls that are shown; `-o json` has all."""


@click.group("policy")
def command() -> None:
    """Show the shipped policies, and try a policy on runs that were kept."""


@command.command("list")
def list_() -> None:
    """List the policies that come with Cadre."""
    for name in shipped_policies():
        click.echo(name)


@command.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Print the shipped policy NAME as YAML, to copy rules from."""
    click.echo(shipped_text(name).rstrip())


@command.command("try")
@click.argument("policy")
@click.option("--agent", metavar="NAME", help="Only calls of this agent, in its own runs and in those of managers.")
@click.option("--since", metavar="WHEN", default="30d", show_default=True, help="Only runs asked for since then.")
@click.option(
    "--last",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="At most so many runs, the newest.",
)
@click.option(
    "--plan",
    type=click.Choice(get_args(AssumedPlan)),
    default="observed",
    show_default=True,
    help="The plan of runs that have none: tools called before anything was read, all tools called, none.",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A run that `cadre runs export` wrote, or a folder of such; no gateway is asked.",
)
@output_option("text")
def try_(policy: str, agent: str | None, output: str, **which: Any) -> int:
    """Say which calls of kept runs POLICY, a shipped one or a file, would have held or denied. Calls nothing.

    Ends with 0 when it would have let all of them pass, else with 1.
    """
    policies, _ = read_policies(policy, Path())
    agents = frozenset({agent} if agent else ())
    runs = 0
    found: list[TriedCall] = []
    for journals, cards in _trees(agent, which):
        runs += 1
        calls = tried(journals, policies, agents, cards, which["plan"])
        found += [one for one in calls if not agents or one.agent in agents]
    judged = {"runs": runs, "calls": msgspec.to_builtins(found)}
    print_found(output, judged, lambda: _lines(runs, found, policies))
    return ExitCode.OK if all(one.verdict == "allow" for one in found) else ExitCode.FAILED


def _trees(agent: str | None, which: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, ToolCard]]]:
    """Yield the journals of each tree, and the cards of the tools that there are now."""
    if which["files"]:
        for file in exported_files(which["files"]):
            yield _journals(file), {}
        return
    with Gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        live = [msgspec.convert(one, ToolCard) for one in gateway.get("/v1/tools")["tools"]]
        cards = {card.name: card for card in live}
        listed = gateway.items("/v1/runs", "runs", "before", since=which["since"])
        ended = (str(one["id"]) for one in listed if one["ended_at"] is not None)
        for run in itertools.islice(ended, which["last"]):
            target = Path(folder) / "run.cadre"
            with target.open("wb") as stream:
                gateway.download(f"/v1/runs/{run}/export", stream)
            journals = _journals(target)
            if agent is None or any(entries[0].agent == agent for entries in journals.values()):
                yield journals, cards


def _journals(file: Path) -> dict[str, Any]:
    tree = read_exported_run(file)
    return {run: [one.entry for one in entries] for run, entries in tree.journals.items()}


def _lines(runs: int, found: Sequence[TriedCall], policies: Sequence[Policy]) -> Iterator[str]:
    for agent in dict.fromkeys(one.agent for one in found):
        calls = [one for one in found if one.agent == agent]
        held = [one for one in calls if one.verdict == "hold"]
        denied = [one for one in calls if one.verdict == "deny"]
        yield (
            f"{agent}: {len({one.run for one in calls})} runs, {len(calls)} calls; held {len(held)} in"
            f" {len({one.run for one in held})} runs, denied {len(denied)}"
        )
        counts = Counter(rule for one in [*held, *denied] for rule in one.rules)
        approved = Counter(rule for one in held for rule in one.rules if one.was == "approved")
        for rule, count in counts.most_common():
            yield f"  {rule}: {count}, of which people had approved {approved[rule]}"
    stopped = [one for one in found if one.verdict != "allow"]
    for one in stopped[:_TOLD_CALLS]:
        yield f"{one.call} {one.verdict} {one.name} ({one.was}): {one.reason}"
    if len(stopped) > _TOLD_CALLS:
        yield f"… and {len(stopped) - _TOLD_CALLS} more: -o json has all"
    names = ", ".join(policy.name for policy in policies)
    yield f"{runs} runs tried by {names}: {len(found)} calls, {len(stopped)} would not have been made at once"
