"""Writes down which clients were seen to work: `seen.json`, of which the documentation makes its table."""

import json
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from clients.versions import SEEN, installed, pinned

Outcomes = defaultdict[str, list[tuple[bool, str, str]]]
"""By package, whether each test of it passed, at which door, and what it shows."""

_outcomes = pytest.StashKey[Outcomes]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(package, door, shows): the client of a package is at work")
    config.stash[_outcomes] = Outcomes(list)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or not report.passed:
        for mark in item.iter_markers("client"):
            package, door, shows = mark.args
            item.config.stash[_outcomes][package].append((report.passed, door, shows))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record the clients whose tests have all passed; one that failed loses its line."""
    known: list[dict[str, Any]] = json.loads(SEEN.read_text()) if SEEN.is_file() else []
    lines = {one["package"]: one for one in known if one["package"] in pinned()}
    for package, outcomes in session.config.stash[_outcomes].items():
        lines.pop(package, None)
        if all(passed for passed, _, _ in outcomes):
            doors = dict.fromkeys(door for _, door, _ in outcomes)
            shows = dict.fromkeys(one.strip() for _, _, told in outcomes for one in told.split(","))
            about = {"package": package, "version": installed(package)}
            lines[package] = about | {"doors": [*doors], "shows": [*shows]}
    if lines != {one["package"]: one for one in known}:
        ordered = [lines[package] for package in sorted(lines, key=str.lower)]
        SEEN.write_text(json.dumps(ordered, indent=2) + "\n")
