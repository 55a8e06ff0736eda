"""Looks whether the tests notice small bugs in the library's core: `make mutate COUNT=60`, `make mutate ARGS='--id …'`.

The exit status is 1 where a bug was noticed by no test and `explained.toml` does not say why that is right.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from mutation.campaign import Campaign, Verdict
from mutation.explained import Explained
from mutation.selection import Imports, Layout, draw, is_always_planted
from mutation.sites import Module

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(
    root=ROOT,
    sources=("shared", "services"),
    tests="tests",
    test_packages=("harness", "kinds", "simulation", "unit"),
    unit=("unit", "kinds"),
)
CORE = ["cadre.journal", "cadre.engine", "cadre.kinds", "cadre.loop", "cadre.delivery", "cadre.runtime"]
EXPLAINED = Path(__file__).with_name("explained.toml")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 only if every mutation was noticed, or is explained."""
    options = _options(arguments)
    imports = Imports(LAYOUT)
    modules = [Module(name, imports.file_of(name)) for name in imports.modules_below(options.only)]
    changes = {module.id_of(site): site.change for module in modules for site in module.sites}
    explained = Explained.read(EXPLAINED)
    if options.id:
        drawn = [(m, site) for m in modules for site in m.sites if m.id_of(site) in options.id]
    else:
        drawn = draw(modules, options.count, options.seed)
    if options.list:
        for module, site in drawn:
            print(f"{module.id_of(site)}  {site.change}")
        return 0
    if not drawn:
        print("there is nothing to mutate", file=sys.stderr)
        return 2
    campaign = Campaign(LAYOUT, imports, jobs=options.jobs, seeds=options.seeds)
    mutations = [module.mutation(site) for module, site in drawn]
    status = report(campaign.verdicts(mutations, explained, anew=options.anew))
    if options.only == CORE:
        for id in explained.outdated(changes):
            print(f"explained.toml: there is no such mutation any more: {id}")
        if not any(map(is_always_planted, changes)):
            print("selection.py: no pattern of ALWAYS fits any more")
    return status


def report(verdicts: Iterable[Verdict]) -> int:
    """Prints each verdict as it comes and the survivors at the end; returns the exit status."""
    began, seen = time.monotonic(), list[Verdict]()
    for verdict in verdicts:
        seen.append(verdict)
        print(_line(verdict), flush=True)
    survivors = [verdict for verdict in seen if verdict.survived]
    killed = sum(verdict.killed_by is not None for verdict in seen)
    timed_out = sum(verdict.timed_out for verdict in seen)
    explained = len(seen) - killed - len(survivors)
    print(
        f"\n{len(seen)} mutations in {time.monotonic() - began:.0f} s: {killed} noticed ({timed_out} by their time),"
        f" {explained} explained, {len(survivors)} survived"
    )
    for verdict in survivors:
        mutation = verdict.mutation
        print(f"\n{mutation.file.name}:{mutation.line}")
        print(f'["{mutation.id}"]\nchange = {_quoted(mutation.change)}')
    return 1 if survivors else 0


def _line(verdict: Verdict) -> str:
    what = f"{verdict.mutation.id}  {verdict.mutation.change}"
    if verdict.killed_by is not None:
        return f"noticed   {what}  ({verdict.killed_by}, {verdict.seconds:.0f} s)"
    if verdict.why is not None:
        return f"explained {what}"
    return f"SURVIVED  {what}  ({verdict.seconds:.0f} s)"


def _quoted(text: str) -> str:
    """A string of TOML."""
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--only", action="append", help="a package or module to mutate (the core); repeatable")
    parser.add_argument("--count", type=int, default=60, help="how many mutations are planted; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="draws which ones")
    parser.add_argument("--jobs", type=int, default=1, help="how many copies of the tree are tested at once")
    parser.add_argument("--seeds", type=int, default=200, help="of the simulation, for those that unit tests miss")
    parser.add_argument("--id", action="append", help="plants this one; repeatable")
    parser.add_argument("--anew", action="store_true", help="tries the explained ones too")
    parser.add_argument("--list", action="store_true", help="only says what would be planted")
    options = parser.parse_args(arguments)
    if options.count < 0 or options.jobs < 1 or options.seeds < 0:
        parser.error("--count and --seeds take numbers from 0, --jobs from 1")
    options.only = options.only or CORE
    return options


if __name__ == "__main__":
    sys.exit(main())
