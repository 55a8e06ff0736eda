"""The order of versions: by numbers, releases after their pre-releases; and which replica's card counts."""

import itertools

import pytest

from cadre.protocol.cards import AgentCard, Presence
from cadre.versions import same_minor, version_order
from cadre_gateway.reading import directory

SORTED = [
    ["", "latest", "0.9", "1.0"],
    ["1.9.0", "1.10.0", "1.100", "2"],
    ["v2", "V10", "v10.0.1"],
    ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0-rc.9", "1.0.0-rc.10", "1.0.0", "1.0.1-rc.1"],
    ["1.0.dev1", "1.0rc2", "1.0", "1.0.post1", "1.0.1"],
    ["2026-9-1", "2026-09-30", "2026-10-01"],
    ["2026.9.30", "2026.10.1"],
    ["release-9", "release-10"],
    ["9" * 5_000, "1" + "0" * 5_000],
]
SAME = [
    ("1.0", "1.0.0"),
    ("1.2", "v1.2"),
    ("1.2+build.9", "1.2+build.10"),
    ("01.2", "1.2"),
    ("1.0-RC.1", "1.0-rc.1"),
]


@pytest.mark.parametrize("versions", SORTED)
def test_versions_have_an_order(versions: list[str]) -> None:
    for lower, higher in itertools.combinations(versions, 2):
        assert version_order(lower) < version_order(higher), (lower, higher)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_versions_that_are_written_in_two_ways_are_the_same(one: str, other: str) -> None:
    assert version_order(one) == version_order(other)


def test_protocols_agree_on_two_numbers() -> None:
    assert [same_minor(one, "1.0") for one in ("1.0", "1", "1.0.3", "1.0.0-rc.1")] == [True] * 4
    assert [same_minor(one, "1.0") for one in ("1.1", "10", "1.10", "0.3", "", "latest")] == [False] * 6


@pytest.mark.parametrize("started", [1.0, 9.0])
def test_the_directory_shows_the_card_of_the_highest_version(started: float) -> None:
    there = [_replica("1.9.0", started), _replica("1.10.0", 5.0)]
    card = directory.card_of(there, "a")
    assert card is not None
    assert (card.version, directory.agents(there, {})[0].version) == ("1.10.0", "1.10.0")


def _replica(version: str, started: float) -> Presence:
    card = AgentCard(name="a", description="Does.", version=version)
    return Presence(instance=f"a-{started}", host="h", pid=1, started_at=started, agent=card)
