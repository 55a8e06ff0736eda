"""`python -m chaos.main`: chaos of some seconds from a seed; exit status 0 only if every invariant held."""

import asyncio
import random
import signal
import sys

import click

from chaos.adversary.campaign import attack
from chaos.campaign import KEPT, campaign
from chaos.report import summary
from chaos.steered.campaign import ROUNDS, Round, steer

PARTS = ("kills", "adversary", "steered")


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True)
@click.option("--seed", type=int, help="[default: a random one, which is printed]")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="This part alone.  [all]")
@click.option("--round", "rounds", type=click.Choice(ROUNDS), multiple=True, help="Of `steered`, this.  [all]")
def main(seconds: float, seed: int | None, parts: tuple[str, ...], rounds: tuple[Round, ...]) -> None:
    """Kill, pause and restart a team at work, then look whether anything was lost, done twice or is stuck.

    Then half as long with a hostile model, cut connections and people who disagree, audited from the streams alone;
    then half as long with cancels, messages and schedules, and with what is away for a time.
    """
    seed = random.randrange(1_000_000) if seed is None else seed
    click.echo(f"chaos: {seconds:g} s with seed {seed}", err=True)
    # A terminated run must end its processes as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    violations: list[str] = []
    if "kills" in (parts or PARTS):
        outcome = asyncio.run(campaign(seed, seconds))
        click.echo(summary(outcome))
        violations += outcome.violations
    if "adversary" in (parts or PARTS):
        attacked = asyncio.run(attack(seed, seconds / 2, KEPT / f"adversary-{seed}"))
        click.echo(attacked.summary())
        violations += attacked.violations
    if "steered" in (parts or PARTS):
        steered = asyncio.run(steer(seed, seconds / 2, KEPT / f"steered-{seed}", rounds or ROUNDS))
        click.echo(steered.summary())
        violations += steered.violations
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
