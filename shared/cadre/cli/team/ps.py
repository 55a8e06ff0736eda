"""`cadre ps`: which agents, tools and sandboxes there are, in how many replicas, and what they lack."""

import time
from collections import Counter
from typing import Any

import click
import msgspec

from cadre.api.directory import LiveAgent, Replica, away_text, skew_lines
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.output import print_text, table
from cadre.views.words import brief


@click.command("ps")
@output_option("table")
def command(output: str) -> None:
    """List agents, tools and sandboxes: those that are live, those that are away, and agents at rest."""
    with Gateway() as gateway:
        agents: list[dict[str, Any]] = gateway.get("/v1/agents")["agents"]
        tools: list[dict[str, Any]] = gateway.get("/v1/tools")["tools"]
        sandboxes: list[dict[str, Any]] = gateway.get("/v1/sandboxes")["sandboxes"]
    if output == "json":
        found = {"agents": agents, "tools": tools, "sandboxes": sandboxes}
        print_json(found)
        return
    rows = [["agent", *_row(agent, ", ".join(_lacks(agent)) or "-", _revisions(agent))] for agent in agents]
    rows += [["tool", *_row(tool, "")] for tool in tools]
    rows += [["sandbox", *_row(_as_service(sandbox), "")] for sandbox in sandboxes]
    if rows:
        click.echo(table(["KIND", "NAME", "REPLICAS", "WHERE", "LACKS", "REVISION", "DESCRIPTION"], rows))
        for agent in agents:
            shown = msgspec.convert(agent, LiveAgent)
            lines = [*shown.rollout, *([line] if (line := shown.differing_line()) is not None else [])]
            for line in lines:
                print_text(f"cadre: {line}", err=True)
        live = [one for service in (*agents, *tools, *sandboxes) for one in service.get("replicas") or []]
        for line in skew_lines(msgspec.convert(live, list[Replica])):
            print_text(f"cadre: {line}", err=True)
    else:
        click.echo("no agents, tools or sandboxes: start one with `cadre agent FILE`", err=True)


def _as_service(sandbox: dict[str, Any]) -> dict[str, Any]:
    many, python = sandbox["sessions"], sandbox["python"]
    description = f"Runs agents' code: Python {python}, tier {sandbox['tier']}, {many} interpreters at once"
    return {**sandbox, "name": sandbox["pool"], "description": description}


def _row(service: dict[str, Any], missing: str, revisions: str = "") -> list[str]:
    replicas: list[dict[str, Any]] = service.get("replicas") or []
    hosts = Counter(str(replica.get("host", "?")) for replica in replicas)
    each = [host if count == 1 else f"{host} x{count}" for host, count in sorted(hosts.items())]
    since = service.get("away_since")
    where = ", ".join(each) or (f"({away_text(since, time.time())})" if since else "(at rest)")
    about = brief(service.get("description") or "", 200)
    return [service["name"], str(len(replicas)), where, missing, revisions, about]


def _lacks(agent: dict[str, Any]) -> list[str]:
    return [*(agent.get("missing") or []), *(f"{name} (away)" for name in agent.get("away") or [])]


def _revisions(agent: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(replica.get("revision") or "-" for replica in agent.get("replicas") or []))
