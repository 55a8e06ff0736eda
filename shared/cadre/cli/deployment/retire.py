"""`cadre retire`: an agent at rest is sent nothing any more."""

from urllib.parse import quote

import click

from cadre.cli.terminal.gateway import Gateway


@click.command("retire")
@click.argument("agent")
def command(agent: str) -> None:
    """Take away the card that AGENT has while no replica serves it.

    Agents that are scaled to zero have one, so that they are sent tasks, for which replicas are started. Without it the
    agent is unknown as soon as its last replica has gone. What waits in its queues stays there.
    """
    with Gateway() as gateway:
        gateway.delete(f"/v1/agents/{quote(agent, safe='')}")
    click.echo(f"agent {agent} has no card at rest any more", err=True)
