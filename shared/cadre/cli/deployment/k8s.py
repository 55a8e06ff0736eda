"""`cadre k8s`: a team as Kubernetes manifests."""

from pathlib import Path
from typing import Any

import click

from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values, setting
from cadre.errors import SpecError
from cadre.local.manifest_files import as_yaml, write_folder
from cadre.local.team.team_components import VALUES_FILE, components_of
from cadre.local.team.team_file import read_team
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
        click.echo(as_yaml(one for file in manifests.values() for one in file), nl=False)
    else:
        write_folder(output, manifests, replace=only is None)


def _layer(file: Path) -> dict[str, Any]:
    data = read_yaml(file, SpecError)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SpecError(f"{file}: must be a mapping, as docs/deploy.md shows")
    return data
