"""The labelled sets that recall is measured on are what the figures say they are."""

import pytest

from bench.recall import SETS, read_set

SIZES = {"steps": (60, 20), "lookalikes": (200, 20)}


@pytest.mark.parametrize("name", SETS)
def test_every_question_has_its_answer_among_different_texts(name: str) -> None:
    found = read_set(name)
    assert (len(found.texts), len(found.questions)) == SIZES[name]
    assert len(set(found.texts)) == len(found.texts)
    assert len({question.query for question in found.questions}) == len(found.questions)
    assert all(question.right for question in found.questions)
    assert all(0 <= place < len(found.texts) for question in found.questions for place in question.right)


def test_a_lookalike_is_told_by_its_number_alone() -> None:
    found = read_set("lookalikes")
    for question in found.questions:
        number = next(word.strip("?") for word in question.query.split() if "-" in word)
        assert [place for place, text in enumerate(found.texts) if f" {number}:" in text] == question.right
