"""Every page of the how-tos is played word for word."""

from pathlib import Path

import pytest

from harness.played_page import played_page

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    with played_page(tmp_path) as folder:
        assert folder.play(page) >= 1
