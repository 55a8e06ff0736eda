"""A team's files, for tests of what a team needs."""

from pathlib import Path

from cadre.deploy.team_file import TeamSpec, read_team

HEAD = "apiVersion: cadre.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def write_team(folder: Path, specs: dict[str, str]) -> TeamSpec:
    """A team of agents by name, each with what is special in its spec."""
    for name, spec in specs.items():
        agent = HEAD.format(kind="Agent", name=name, spec=f"description: Works., {spec}")
        (folder / f"{name}.yaml").write_text(agent)
    agents = ", ".join(f"{name}.yaml" for name in specs)
    (folder / "team.yaml").write_text(HEAD.format(kind="Team", name="t", spec=f"agents: [{agents}]"))
    return read_team(folder)
