"""`web_search` over a folder of texts, and what `CADRE_SEARCH` may say."""

import os
from pathlib import Path

import pytest

from cadre.errors import SettingError
from cadre_standard_tools.searching import (
    MAX_FILE_BYTES,
    SNIPPET_CHARACTERS,
    FolderSearch,
    SearchUnavailable,
    Searxng,
    search_of,
)
from harness.texts import holds

MOON = """# The Moon

The Moon goes around the Earth once in 27 days.

Its craters are scars of impacts; Tycho is the brightest crater.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    library = tmp_path / "library"
    (library / "sky").mkdir(parents=True)
    (library / "sky" / "moon.md").write_text(MOON)
    (library / "sky" / "sun.txt").write_text("The Sun is a star. The Earth goes around the Sun in a year.")
    (library / "bread.md").write_text("Bread\n=====\n\nFlour, water and salt. Bake it on the Earth.")
    return library


async def test_the_best_document_comes_first_with_its_best_paragraph(folder: Path) -> None:
    found = await FolderSearch(folder).search("Which crater is the brightest?", 5)
    assert [hit.url for hit in found.results] == ["sky/moon.md"]
    [hit] = found.results
    assert hit.title == "The Moon"
    assert hit.snippet == "Its craters are scars of impacts; Tycho is the brightest crater."
    assert found.note == ""


async def test_a_rare_word_weighs_more_than_a_common_one(folder: Path) -> None:
    found = await FolderSearch(folder).search("earth star", 5)
    assert found.results[0].url == "sky/sun.txt"
    assert len(found.results) == 3
    assert len((await FolderSearch(folder).search("earth star", 2)).results) == 2


async def test_what_is_not_there_is_said(folder: Path) -> None:
    search = FolderSearch(folder)
    nothing = await search.search("the quantum chromodynamics", 5)
    assert nothing.results == []
    assert holds(nothing.note, "3", "quantum, chromodynamics")
    assert "no word" in (await search.search("?!", 5)).note


async def test_common_words_count_when_there_are_no_others(folder: Path) -> None:
    assert (await FolderSearch(folder).search("it is", 5)).results != []


async def test_a_change_is_seen(folder: Path) -> None:
    search = FolderSearch(folder)
    assert (await search.search("Neptune", 5)).results == []
    (folder / "neptune.md").write_text("Neptune is far away.")
    (folder / "bread.md").write_text("Neptune bakes no bread.")
    os.utime(folder / "bread.md", ns=(1, 1))
    assert {hit.url for hit in (await search.search("Neptune", 5)).results} == {"neptune.md", "bread.md"}
    (folder / "neptune.md").unlink()
    assert [hit.url for hit in (await search.search("Neptune", 5)).results] == ["bread.md"]


async def test_only_texts_within_the_folder_are_shown(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("password")
    (folder / "link.txt").symlink_to(secret)
    (folder / ".hidden.md").write_text("password")
    (folder / "key.pem").write_text("password")
    (folder / "huge.txt").write_text("password" + " " * MAX_FILE_BYTES)
    (folder / "gone.txt").symlink_to(tmp_path / "nothing")
    assert (await FolderSearch(folder).search("password", 5)).results == []


async def test_a_long_paragraph_is_cut_around_the_word(folder: Path) -> None:
    (folder / "long.md").write_text("Long\n\n" + "filler " * 500 + "needle " + "filler " * 500)
    [hit] = (await FolderSearch(folder).search("needle", 5)).results
    assert "needle" in hit.snippet
    assert len(hit.snippet) == SNIPPET_CHARACTERS + 2


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SearchUnavailable, match="CADRE_SEARCH"):
        await FolderSearch(tmp_path / "nowhere").search("a", 5)
    assert "holds no" in (await FolderSearch(tmp_path).search("a", 5)).note


def test_the_setting_chooses() -> None:
    assert isinstance(search_of("folder:docs"), FolderSearch)
    assert isinstance(search_of("searxng:http://search:8080/"), Searxng)


@pytest.mark.parametrize("setting", ["", "folder", "folder:", "google:x", "searxng:", "searxng:search:8080"])
def test_a_wrong_setting_is_named(setting: str) -> None:
    with pytest.raises(SettingError, match="must be folder:PATH or searxng:URL"):
        search_of(setting)
