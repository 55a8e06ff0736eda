"""The command `sandbox`: runs the code of a pool's agents, or says how well it would be locked in here."""

import asyncio
import sys

import click

from cadre.errors import SetupError
from cadre.service import frame
from cadre.service.extras import check_extras
from cadre.service.platform import Platform
from cadre.settings import read_settings
from cadre_sandbox.host import SandboxHost, SandboxSettings, new_sandbox, read_sandbox_settings, start_sandbox
from cadre_sandbox.interpreters.contract import TIERS


@click.command("sandbox")
@click.option("--pool", help="Run the code of agents that name this pool.  [CADRE_SANDBOX_POOL]")
@click.option("--tier", type=click.Choice(TIERS), help="The least isolation.  [CADRE_SANDBOX_TIER]")
@click.option("--sessions", type=click.IntRange(min=1), help="Interpreters at once.  [CADRE_SANDBOX_SESSIONS]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Blocks at work at once.  [CADRE_SANDBOX_CONCURRENCY]")
@click.option("--ready", type=click.IntRange(min=0), help="Fresh interpreters in wait.  [CADRE_SANDBOX_READY]")
@click.option("--seconds", type=click.FloatRange(min=0.1), help="Most that a block computes.  [CADRE_SANDBOX_SECONDS]")
@click.option("--memory-mb", type=click.IntRange(min=16), help="Most of each.  [CADRE_SANDBOX_MEMORY_MB]")
@click.option("--modules", metavar="A,B", help="Imported once for all, such as numpy.  [CADRE_SANDBOX_MODULES]")
@click.option("--python", help="The Python that runs the code.  [CADRE_SANDBOX_PYTHON]")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one.  [CADRE_PORT]")
@click.option("--check", is_flag=True, help="Say which tier of isolation is reached here, and stop.")
@click.option("--imports", metavar="A,B", default="", help="With --check: also say which of these it lacks.")
def command(port: int | None, check: bool, imports: str, **options: object) -> None:
    """Run the Python that agents of kind `code` write.

    Each run's code has its own jail. A second process with the same pool shares the load."""
    check_extras("sandbox", ["sandbox"])
    try:
        settings = read_settings(port=port)
        own = read_sandbox_settings(**options)
        if check:
            tier, lacking = asyncio.run(_checked(own, [name for name in imports.split(",") if name]))
            click.echo("\n".join([f"tier {tier}", *(f"lacks {name}" for name in lacking)]))
            return
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)

    async def start(platform: Platform) -> SandboxHost:
        host = SandboxHost(platform, own)
        await host.start()
        return host

    sys.exit(frame.run("sandbox", settings, start))


async def _checked(settings: SandboxSettings, imports: list[str]) -> tuple[str, list[str]]:
    """Return the tier that is reached, and the modules that code could not import."""
    sandbox = new_sandbox(settings)
    try:
        return await start_sandbox(sandbox), sandbox.lacks(imports)
    finally:
        await sandbox.close()
