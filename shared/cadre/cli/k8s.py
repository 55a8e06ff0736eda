"""`cadre k8s`: a team as Kubernetes manifests, and what is wrong with manifests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cadre.deploy.k8s.lint.rules import lint
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values, setting
from cadre.errors import SpecError
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.local.manifest_files import as_one, read_manifests, write_folder
from cadre.local.team_components import VALUES_FILE, components_of
from cadre.local.team_file import read_team
from cadre.spec.yaml_file import read_yaml


@click.group("k8s")
def command() -> None:
    """A team in a Kubernetes cluster. No command here talks to one."""


@command.command("render")
@click.argument("team", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder for the files, a kustomize base."
)
@click.option("--only", metavar="NAME", help="One service alone, such as agent/manager.")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help=f"Values, over those of the team's {VALUES_FILE}; the last one wins.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One value, over all files.")
def render_command(
    team: Path, output: Path | None, only: str | None, files: tuple[Path, ...], settings: tuple[str, ...]
) -> None:
    """Write the manifests of TEAM (a folder with a team.yaml, or such a file)."""
    found = read_team(team)
    own = found.folder / VALUES_FILE
    layers = [_layer(file) for file in ([own] if own.is_file() else []) + list(files)]
    values = read_values(*layers, *map(setting, settings))
    manifests = render(components_of(found, values), values, only)
    if output is None:
        click.echo(as_one(manifests), nl=False)
    else:
        write_folder(output, manifests, replace=only is None)


@command.command("lint")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR|FILE...")
@click.option(
    "--given",
    multiple=True,
    metavar="KIND/NAME",
    help="What the cluster has beside these, as Secret/cadre-model or 'Secret/cadre-nats-*'; or what selects pods"
    " that it has.",
)
def lint_command(places: tuple[Path, ...], given: tuple[str, ...]) -> int:
    """Say what is wrong with manifests that no schema sees: a name that nothing has, a probe on no port, …

    `-` reads standard input. Exit code 1 when something is wrong.
    """
    manifests = [found for place in places for found in read_manifests(place, sys.stdin)]
    if not manifests:
        raise CommandFailed(f"no manifests in {', '.join(map(str, places))}", ExitCode.NOT_FOUND)
    problems = lint(manifests, given)
    for problem in problems:
        click.echo(problem)
    return ExitCode.FAILED if problems else ExitCode.OK


def _layer(file: Path) -> dict[str, Any]:
    data = read_yaml(file, SpecError)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SpecError(f"{file}: must be a mapping, as docs/deploy.md shows")
    return data
