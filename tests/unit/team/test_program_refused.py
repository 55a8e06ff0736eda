"""A test team has no processes for a program."""

import pytest

from cadre.errors import SetupError
from cadre.kinds.program.records import ProgramSection
from cadre.spec.agent import AgentSpec
from cadre.testing import Team


async def test_a_program_is_refused_with_what_to_do() -> None:
    section = ProgramSection(main="trips.py:main")
    trips = AgentSpec(name="trips", description="Books.", kind="program", sections=[section])
    with pytest.raises(SetupError) as refused:
        async with Team([trips], model=[]):
            pass
    assert "trips" in str(refused.value)
