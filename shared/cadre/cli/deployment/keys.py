"""`cadre keys`: API keys of people and programs for the gateway, created, listed, revoked; `cadre audit`: what was
done there, and by whom."""

from typing import Any

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import Duration, output_option, print_found, print_json
from cadre.cli.terminal.output import moment, table
from cadre.protocol.access import ROLE_NAMES


@click.group("keys")
def command() -> None:
    """API keys: who may do what at the gateway. Keys of services on the bus are made by `cadre auth`."""


@command.command("create")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice(ROLE_NAMES),
    help="What it may do; may be given several times.",
)
@click.option("--user", help="The person whose key it is.")
@click.option("--own", is_flag=True, help="It reaches this person's runs and memories only.")
@click.option("--agent", "agents", multiple=True, help="Only runs of this agent; may be given several times.")
@click.option("--team", "teams", multiple=True, help="Only trees that begin with this agent; repeatable.")
@click.option("--expires-in", type=Duration(), help="Seconds (or 12h, 90d) that it counts; without: until revoked.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Requests a second.")
@click.option("--runs-per-day", type=click.IntRange(min=1), help="Runs that it may start in a day.")
@output_option("text")
def create(name: str, output: str, expires_in: float | None, **options: Any) -> None:
    """Make a key and print it: it is shown this once, and kept nowhere."""
    given = {key: value for key, value in options.items() if value not in (None, (), False)}
    body = {"name": name, **given, **({"expires_in": expires_in} if expires_in is not None else {})}
    with Gateway() as gateway:
        made = gateway.post("/v1/keys", body)
    if output == "json":
        print_json(made)
        return
    click.echo(made["token"])
    click.echo(f"cadre: key {made['id']} of {name}; it is not shown again. Its owner sets CADRE_API_KEY", err=True)


@command.command("list")
@output_option("table")
def list_keys(output: str) -> None:
    """List all keys, without what would let somebody in."""
    with Gateway() as gateway:
        found = gateway.get("/v1/keys")["keys"]
    headers = ["ID", "NAME", "ROLES", "USER", "SCOPE", "MADE", "EXPIRES"]
    nothing = "no keys; make one with `cadre keys create NAME --role ROLE`"
    print_found(output, found, lambda: table(headers, [*map(_row, found)]), nothing)


def _row(key: dict[str, Any]) -> list[str]:
    scope = [*(f"agent {name}" for name in key["agents"]), *(f"team {name}" for name in key["teams"])]
    until = key["expires_at"]
    return [
        key["id"],
        key["name"],
        ", ".join(key["roles"]),
        key["user"] or "-",
        ", ".join([*scope, *(["own runs"] if key["own"] else [])]) or "all",
        moment(key["made_at"]),
        "never" if until is None else moment(until),
    ]


@command.command("revoke")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def revoke(ids: tuple[str, ...]) -> None:
    """End keys at once, and what was signed in with them."""
    with Gateway() as gateway:
        for identity in ids:
            gateway.delete(f"/v1/keys/{identity}")


@click.command("audit")
@click.option("--since", metavar="WHEN", help="A date or time (UTC), or so long ago: 12h, 7d.")
@click.option("--until", metavar="WHEN", help="The end of the range.")
@click.option("--who", metavar="NAME", help="Only what this person or key did.")
@click.option("--action", metavar="NAME", help="Only this, such as run.cancel, or run for all of runs.")
@click.option("--target", metavar="ID", help="Only what was done to this run, call, key or memory.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@output_option("table")
def audit(limit: int, output: str, **wanted: str | None) -> None:
    """Show decisions, cancels, erasures, edits, changes of keys and so on, newest first."""
    with Gateway() as gateway:
        found = gateway.get("/v1/audit", limit=limit, **wanted)["entries"]
    headers = ["AT", "WHO", "ACTION", "TARGET", "STATUS", "FROM", "MORE"]
    print_found(output, found, lambda: table(headers, [*map(_audit_row, found)]), "nothing")


def _audit_row(entry: dict[str, Any]) -> list[str]:
    more = [f"{key}={value}" for key, value in entry.get("detail", {}).items() if value]
    about = (entry["action"], entry.get("target", ""), str(entry["status"]), entry.get("source", ""))
    return [moment(entry["at"]), entry["who"] or "?", *(text or "-" for text in about), " ".join(more)]
