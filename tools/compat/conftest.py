"""The actions of both systems, played once for all tests."""

import pytest

from compat.playing import Played, play


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("compat"))
