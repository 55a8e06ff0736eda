"""`cadre retire`: an agent, tool or sandbox pool is taken out of the deployment."""

from urllib.parse import quote

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.errors import CommandFailed, ExitCode

_LISTS = {"agent": ("agents", "name"), "tool": ("tools", "name"), "sandbox": ("sandboxes", "pool")}


@click.command("retire")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice([*_LISTS]), help="What NAME is, where an agent, a tool or a pool share it."
)
def command(name: str, kind: str | None) -> None:
    """Take the agent, tool or sandbox pool NAME out of the deployment.

    What a deployment has stays known while nothing serves it: runs and calls wait for it, as long as `limits.away`
    says; so does an agent that is scaled to zero. When it is retired it is unknown once its replicas of now are gone,
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
    raise CommandFailed(
        f"{name!r} is more than one thing: say which by --kind ({', '.join(found)})", ExitCode.USAGE
    )
