"""`cadre rollout`: how an agent's revisions share its new runs, by weights, and back; `cadre retire`: an agent, tool or
sandbox pool is taken out of the deployment; `cadre sweep`: the queues that such ones have left behind."""

from typing import Any
from urllib.parse import quote

import click
import msgspec

from cadre.api.directory import RevisionView, RolloutChange, RolloutView
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found, print_json
from cadre.cli.terminal.output import print_text, table
from cadre.errors import CommandFailed, ExitCode

_HEADERS = ["REVISION", "WEIGHT", "STATE", "REPLICAS", "OPEN RUNS", "QUEUED", "SCHEMAS"]


@click.command("rollout")
@click.argument("agent")
@click.option("--to", metavar="REV", help="The revision whose share is set; so many of its digits as are needed.")
@click.option("--weight", type=click.IntRange(0, 100), help="How many of a hundred new runs it gets; 100 by default.")
@click.option("--rest", metavar="REV", help="The revision that gets the others, where that is not clear.")
@click.option(
    "--anyway",
    is_flag=True,
    help="Give it its share although something cannot work with it, as far as is known.",
)
@click.option("--rollback", is_flag=True, help="The youngest revision that gets new runs gets none any more.")
@click.option("--adopt", metavar="REV", help="A revision whose runs another one goes on with.")
@click.option("--by", metavar="REV", help="The revision that goes on with them.")
@click.option("--end", is_flag=True, help="End the rollout: any replica takes any run again.")
@output_option("table")
def command(agent: str, output: str, **options: Any) -> None:
    """Show how the revisions of AGENT share its runs, or change it.

    A run stays with the revision that it began with, even if the weights change. `--to REV` alone holds all others
    back; a revision that gets no new runs is removed once its last run has ended.
    """
    change = _change(options)
    path = f"/v1/agents/{agent}/rollout"
    with Gateway() as gateway:
        found = gateway.get(path)
        if change is not None:
            # A change that another made since it was read is not overwritten.
            change.version = found["version"]
            found = gateway.post(path, msgspec.to_builtins(change))
    if output == "json":
        print_json(found)
        return
    view = msgspec.convert(found, RolloutView)
    if not view.active:
        print_text(f"{agent} has no rollout: any replica takes any run")
    if view.revisions:
        click.echo(table(_HEADERS, [_row(one) for one in view.revisions]))
    for line in view.warnings:
        print_text(f"cadre: {line}", err=True)


def _change(options: dict[str, Any]) -> RolloutChange | None:
    """Return what is asked for; None when nothing is to be changed. Raises UsageError."""
    to, weight, rest = options["to"], options["weight"], options["rest"]
    adopt, by = options["adopt"], options["by"]
    asked = [to is not None, options["rollback"], adopt is not None, options["end"]]
    if sum(asked) > 1:
        raise click.UsageError("say one of --to, --rollback, --adopt and --end")
    if (weight is not None or rest is not None) and to is None:
        raise click.UsageError("--weight and --rest go with --to REV")
    if options["anyway"] and to is None:
        raise click.UsageError("--anyway goes with --to REV")
    if (adopt is None) != (by is None):
        raise click.UsageError("--adopt REV and --by REV go together: whose runs, and who goes on with them")
    if not any(asked):
        return None
    return RolloutChange(
        to=to,
        weight=100 if weight is None else weight,
        rest=rest,
        anyway=options["anyway"],
        rollback=options["rollback"],
        adopt=adopt,
        by=by,
        end=options["end"],
    )


def _row(one: RevisionView) -> list[str]:
    state = f"adopted by {one.adopted_by}" if one.adopted_by else one.state
    weight = "-" if one.weight is None else str(one.weight)
    figures = (one.replicas, "?" if one.open_runs is None else one.open_runs, one.waiting)
    return [one.revision, weight, state, *map(str, figures), one.schemas or "-"]


_LISTS = {"agent": ("agents", "name"), "tool": ("tools", "name"), "sandbox": ("sandboxes", "pool")}


@click.command("retire")
@click.argument("name")
@click.option("--kind", type=click.Choice([*_LISTS]), help="What NAME is, where an agent, a tool or a pool share it.")
def retire(name: str, kind: str | None) -> None:
    """Take the agent, tool or sandbox pool NAME out of the deployment.

    What a deployment has stays known while nothing serves it: runs and calls wait for it, as long as `limits.away`
    says; so does an agent that is scaled to zero. When it is retired it is unknown once its current replicas are gone,
    until another one starts. What waits in its queues stays there.
    """
    with Gateway() as gateway:
        if kind is None:
            kind = _kind_of(gateway, name)
        gateway.delete(f"/v1/{_LISTS[kind][0]}/{quote(name, safe='')}")
    click.echo(f"{kind} {name} is retired", err=True)


def _kind_of(gateway: Gateway, name: str) -> str:
    """Return what the name stands for. Raises CommandFailed for one that stands for nothing, or for several things."""
    found = [
        kind
        for kind, (listed, key) in _LISTS.items()
        if any(one[key] == name for one in gateway.get(f"/v1/{listed}")[listed])
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandFailed(
            f"no agent, tool or sandbox pool is named {name!r}: `cadre ps` lists them", ExitCode.NOT_FOUND
        )
    raise CommandFailed(f"{name!r} is more than one thing: say which by --kind ({', '.join(found)})", ExitCode.USAGE)


@click.command("sweep")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and what stays; remove nothing.")
@click.option(
    "--forgotten",
    is_flag=True,
    help="Also the queues of what was never retired and is away for longer than CADRE_AWAY_DAYS.",
)
@output_option("table")
def sweep(names: tuple[str, ...], *, dry_run: bool, forgotten: bool, output: str) -> None:
    """Remove the empty queues of retired agents, tools and sandbox pools: all of them, or those of NAME.

    Gateways do it an hour after `cadre retire`. A queue in which messages wait stays, and so does one that a process
    serves, that waits for its agent, or that is forgotten and may come back. No message is removed with a queue.
    """
    states = ("retired", "forgotten") if forgotten else ("retired",)
    with Gateway() as gateway:
        queues = gateway.get("/v1/queues")["queues"]
        if unknown := sorted({*names} - {one["name"] for one in queues}):
            raise CommandFailed(f"nothing named {', '.join(unknown)} has a queue", ExitCode.NOT_FOUND)
        found = [
            one
            for one in queues
            if one["state"] in ("retired", "forgotten") or one["name"] in names
            if not names or one["name"] in names
        ]
        for one in found:
            one["removed"] = one["state"] in states and not one["waiting"]
            if one["removed"] and not dry_run:
                gateway.delete(f"/v1/queues/{one['kind']}/{quote(one['name'], safe='')}")
    done = "would go" if dry_run else "removed"
    rows = [
        [one["kind"], one["name"], one["state"], str(one["waiting"]), done if one["removed"] else "stays"]
        for one in found
    ]
    headers = ["KIND", "NAME", "STATE", "WAITING", "QUEUE"]
    print_found(output, found, lambda: table(headers, rows), "no queue is left behind")
