"""Imports everything that the installed wheel brings, reads its prompts and its team, and says where from."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from pathlib import Path

import cadre
from cadre.deploy.team_file import read_team
from cadre.prompting.prompts import Prompts
from cadre_gateway.routes.app import load_assets

HOME = Path(cadre.__file__).parent

OF_AN_EXTRA = {"cadre_memory.embedding.local_graph", "cadre.testing.pytest_plugin"}
"""Modules whose packages `all` leaves out: they want the extra `local-embeddings`, or pytest, which loads them."""

services = {entry.value.split(".")[0] for entry in entry_points(group="cadre.services")}
modules = [
    module.name
    for package in ("cadre", *sorted(services))
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    if not module.name.endswith("__main__") and module.name not in OF_AN_EXTRA
]
for name in modules:
    importlib.import_module(name)

prompts = sorted((HOME / "prompts").glob("*.yaml"))
for file in prompts:
    Prompts.load(file.stem)
teams = [read_team(file) for file in sorted((HOME / "teams").glob("*/team.yaml"))]
assert services, "the wheel has no services"
assert prompts, "the wheel has no prompts"
assert teams, "the wheel has no teams"
assert "index.html" in load_assets(), "the wheel has no console"
print(f"{len(modules)} modules of {len(services)} services and the library, {len(prompts)} prompt files,")
print(f"{len(teams)} teams: all from the wheel in {HOME.parent.name}")
