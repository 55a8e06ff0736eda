"""The docstring of each name of `cadre` has an example, and the examples do what they show."""

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import cadre
from unit.played_gateway import Gateway, playing

RUN = {
    "id": "run1",
    "tree": "run1",
    "trace": "",
    "agent": "writer",
    "state": "success",
    "output": "six",
    "own_usage": {},
    "ended_at": 1.0,
    "children": [],
}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """A gateway at which every run is over, in the place of the one that a reader would start."""
    with playing(monkeypatch) as one:
        one.answers["POST /v1/runs"] = (202, "application/json", {"id": "run1"})
        one.answer("GET /v1/runs/run1", RUN)
        one.events("GET /v1/runs/run1/events", ("run.accepted", {"seq": 1}), ("end", RUN))
        yield one


def example_of(name: str) -> doctest.DocTest | None:
    value: Any = getattr(cadre, name)
    text = inspect.getdoc(value) or ""
    found = doctest.DocTestParser().get_doctest(text, {name: value, **vars(inspect.getmodule(value))}, name, None, 0)
    return found if found.examples else None


@pytest.mark.parametrize("name", cadre.__all__)
def test_the_example_of_a_name_does_what_it_shows(name: str, gateway: Gateway) -> None:
    example = example_of(name)
    assert example, f"the docstring of cadre.{name} has no example"
    said: list[str] = []
    result = doctest.DocTestRunner().run(example, out=said.append)
    assert result.failed == 0, "".join(said)
