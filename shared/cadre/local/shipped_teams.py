"""The teams that come with Cadre: each does real work on its own data, and is a template for others."""

import re
from pathlib import Path

from cadre.errors import SpecError
from cadre.spec.names import TEAM_FILE

DEMO = "apollo"
"""The team of `cadre up --demo`."""

_LINK = re.compile(r"\[([^\]]*)\]\((?:\.\./)+[^)]*\)")
"""A link to a file outside of the team's folder."""

_NAME = re.compile(r"(?m)^metadata:\s*(?:\n\s+|\{)name: *([\w-]+)")


def shipped_teams() -> dict[str, Path]:
    """Return the folders of the teams by their names: in the package of a wheel, or next to `shared/` in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "teams", package.parents[1] / "teams"):
        if (folder / DEMO / TEAM_FILE).is_file():
            return {file.parent.name: file.parent for file in sorted(folder.glob(f"*/{TEAM_FILE}"))}
    return {}


def shipped_team(name: str) -> Path:
    """Return the folder of one of them. Raises SpecError, which names those that there are."""
    teams = shipped_teams()
    if name not in teams:
        raise SpecError(f"there is no template {name!r}; there are: {', '.join(teams) or 'none in this installation'}")
    return teams[name]


def files_of(folder: Path, name: str) -> dict[str, bytes]:
    """Return the files of a shipped team by their paths below its folder, as they stand in a folder `name`: the team
    has this name, and so have the paths in commands; links to pages of the documentation are plain words."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    }
    for path, content in found.items():
        if path.endswith((".md", ".py", ".yaml")):
            text = content.decode().replace(f"teams/{folder.name}", name)
            found[path] = _LINK.sub(r"\1", text).encode()
    team = found[TEAM_FILE].decode()
    match = _NAME.search(team)
    assert match is not None
    found[TEAM_FILE] = f"{team[: match.start(1)]}{name}{team[match.end(1) :]}".encode()
    return found
