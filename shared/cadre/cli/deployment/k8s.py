"""Define `cadre k8s`: write a team as Kubernetes manifests, in YAML that people can read."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.render import operator_manifests, render
from cadre.deploy.k8s.values import Nats, Values, merged_layers, read_values, setting
from cadre.deploy.team_components import VALUES_FILE, components_of, roles_of_components
from cadre.deploy.team_file import TeamSpec, read_team
from cadre.errors import CommandFailed, ExitCode, SpecError
from cadre.protocol.topology import Topology
from cadre.spec.yaml_file import read_yaml

_values_option = click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help=f"Values, over those of the team's {VALUES_FILE}; the last one wins.",
)
_set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help=r"One value, over all files: as it stands, or YAML in {…} or […]; a dot within a key is \.",
)

_KUSTOMIZATION_FILE = "kustomization.yaml"
_MARK = "# Written by `cadre k8s render`: what is changed here is lost at the next one."


@click.group("k8s")
def command() -> None:
    """A team in a Kubernetes cluster. No command here talks to one."""


@command.command("crds")
def crds_command() -> None:
    """Write the definitions of the kinds that the operator acts on."""
    from cadre.deploy.k8s.object_kinds import definitions

    click.echo(as_yaml(definitions()), nl=False)


@command.command("operator")
@click.option("--namespace", "namespaces", multiple=True, help="Act here alone; in all namespaces unless given.")
@_values_option
@_set_option
def operator_command(namespaces: tuple[str, ...], files: tuple[Path, ...], settings: tuple[str, ...]) -> None:
    """Write the manifests of the operator. The values are those of the teams that it will run; in their `namespace`
    it runs itself."""
    layers = [*map(_layer, files), *map(setting, settings)]
    values = read_values(*layers)
    own = merged_layers(*layers)
    click.echo(as_yaml(operator_manifests(values, yaml.safe_dump(own, sort_keys=False), namespaces)), nl=False)


@command.command("render")
@click.argument("team", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the files, a kustomize base.")
@click.option("--only", metavar="NAME", help="One service alone, such as agent/manager.")
@click.option(
    "--beside",
    metavar="NAME",
    default="",
    help="With --only agent/…: as a second revision next to the first, with its own objects of that name.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="That of `cadre auth init`: the NATS keys of what is written come first, as Secrets; missing ones are made.",
)
@_values_option
@_set_option
def render_command(team: Path, output: Path | None, only: str | None, **options: Any) -> None:
    """Write the manifests of TEAM (a folder with a team.yaml, or such a file)."""
    beside, keys = options["beside"], options["keys"]
    if beside and only is None:
        raise click.UsageError("--beside goes with --only agent/NAME")
    if keys is not None and output is not None:
        raise click.UsageError("--keys: secrets are printed and kept in no base: leave --output out")
    found = read_team(team)
    own = found.folder / VALUES_FILE
    layers = [_layer(file) for file in ([own] if own.is_file() else []) + list(options["files"])]
    values = read_values(*layers, *map(setting, options["settings"]))
    components = components_of(found, values)
    manifests = render(components, values, only, beside)
    if keys is not None:
        chosen = [one for one in components if only in (None, one.key)]
        click.echo(_secrets(found, chosen, values, keys, is_whole=only is None), nl=False)
    if output is None:
        click.echo(as_yaml(one for file in manifests.values() for one in file), nl=False)
    else:
        first = [one.id for one in components if beside and one.key == only]
        write_folder(output, manifests, replace=only is None, parts=first)


def _secrets(team: TeamSpec, components: Sequence[Component], values: Values, folder: Path, *, is_whole: bool) -> str:
    """Return the keys of the components, and the server's list of all users. Raises SetupError, CommandFailed."""

    from cadre.deploy import nats_files  # only commands that need keys load the bus

    if values.nats.credentials != Nats().credentials:
        raise SpecError("nats.credentials: --keys writes Secrets of the names that are those of the default")
    if not is_whole and not nats_files.known_roles(folder):
        raise CommandFailed(
            f"{folder} has no users: the server's list would have this one alone. Name the folder of the others, or"
            " write the whole team first",
            ExitCode.USAGE,
        )
    roles = roles_of_components(team, components)
    nats_files.update_users(folder, roles, Topology(values.nats.shards, values.nats.prefix))
    users = {role.user for role in roles if is_whole or role.kind != "operator"}
    return nats_files.secrets(folder, values.namespace, users=users)


def _layer(file: Path) -> dict[str, Any]:
    data = read_yaml(file, SpecError)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SpecError(f"{file}: must be a mapping, as docs/deploy.md shows")
    return data


class _Dumper(yaml.SafeDumper):
    """No anchors, and `|` for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text)


def as_yaml(manifests: Iterable[Manifest]) -> str:
    """Return the manifests as one YAML text: keys in their order, texts as blocks."""
    documents = yaml.dump_all(
        manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
    return f"{_MARK}\n{documents}"


def write_folder(
    folder: Path, files: Mapping[str, Sequence[Manifest]], *, replace: bool, parts: Collection[str] = ()
) -> None:
    """Write a file for each key, and a kustomization of all of them. `replace` removes files of earlier calls.

    In files that `parts` names the objects that are not given stay.

    Files that a person put there are neither read nor touched. Raises CommandFailed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _KUSTOMIZATION_FILE).exists() and not _is_ours(folder / _KUSTOMIZATION_FILE):
            raise CommandFailed(f"{folder / _KUSTOMIZATION_FILE} is not by `cadre k8s render`: choose another folder")
        for path in folder.glob("*.yaml"):
            if replace and _is_ours(path):
                path.unlink()
        for name, manifests in files.items():
            path = folder / f"{name}.yaml"
            kept = _others(path, manifests) if name in parts else []
            path.write_text(as_yaml([*kept, *manifests]), "utf-8")
        ours = [p.stem for p in folder.glob("*.yaml") if p.name != _KUSTOMIZATION_FILE and _is_ours(p)]
        (folder / _KUSTOMIZATION_FILE).write_text(_kustomization(ours), "utf-8")
    except OSError as error:
        raise CommandFailed(f"{folder}: cannot be written: {error.strerror}") from error


def _others(file: Path, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects of a file, if it exists, without those that are given again."""
    if not file.exists():
        return []
    given = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    there = yaml.safe_load_all(file.read_text("utf-8"))
    return [one for one in there if (one["kind"], one["metadata"]["name"]) not in given]


def _is_ours(file: Path) -> bool:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().rstrip("\n") == _MARK


def _kustomization(files: Iterable[str]) -> str:
    data = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{file}.yaml" for file in sorted(files)],
    }
    return f"{_MARK}\n{yaml.safe_dump(data, sort_keys=False)}"
