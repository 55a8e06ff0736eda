"""The pytest plugin of Cadre: the fixture `cadre_team`, found by pytest wherever the package is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cadre.testing.team import Team


@pytest.fixture
def cadre_team() -> Iterator[Callable[..., Team]]:
    """Make teams as `cadre.testing.Team` does, and checks at the end of the test that nothing was left over:
    no message was given up, and no reply of a script was never asked for."""
    from cadre.testing.team import Team

    made: list[Team] = []

    def make(*arguments: Any, **options: Any) -> Team:
        made.append(Team(*arguments, **options))
        return made[-1]

    yield make
    left = [problem for team in made for problem in team.leftovers()]
    if left:
        pytest.fail("\n".join(left), pytrace=False)
