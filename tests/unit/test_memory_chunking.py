"""From a text to the points that keep it."""

from functools import cache
from uuid import UUID

import pytest
from semantic_text_splitter import TextSplitter

from cadre.protocol.messages import Origin
from cadre_memory.index.scopes import Caller
from cadre_memory.tools.keep import CHUNK_TOKENS, About, chunk_id, chunks_of, content_hash, split_text

SENTENCES = " ".join(f"Sentence {number} says that the number is {number * 7}." for number in range(2000))

CALLER = Caller(
    agent="boss",
    tree="t",
    run="t_1_0",
    call="t_1_0_4_2",
    step=4,
    origin=Origin(user="anna", session="s", team="red"),
)
ABOUT = About(scope="user", kind="note", step=4, created_at=10.0, expires_at=20.0)


@cache
def splitter(capacity: int) -> TextSplitter:
    return TextSplitter.from_tiktoken_model("gpt-4o", capacity)


def fits(text: str, tokens: int) -> bool:
    """Return whether the splitter leaves the text whole at this capacity."""
    return len(splitter(tokens).chunks(text)) <= 1


def test_a_short_text_is_one_piece() -> None:
    assert split_text("Anna likes tea.") == ["Anna likes tea."]


@pytest.mark.parametrize("text", ["", " \n\t  "])
def test_of_nothing_there_is_no_piece(text: str) -> None:
    assert split_text(text) == []


def test_pieces_fit_are_full_and_leave_nothing_out() -> None:
    found = split_text(SENTENCES)
    assert all(fits(piece, CHUNK_TOKENS) for piece in found)
    assert not any(fits(piece, CHUNK_TOKENS - 60) for piece in found[:-1])
    joined = " ".join(found)
    assert all(f"Sentence {number} says" in joined for number in range(2000))
    assert all(piece[-1] == "." for piece in found), "cut at the end of a sentence"


@pytest.mark.parametrize("text", ["字" * 6000, "x" * 40_000, "a <|endoftext|> " * 2000])
def test_texts_without_sentences_are_cut_too(text: str) -> None:
    found = split_text(text)
    assert len(found) > 1
    assert all(fits(piece, CHUNK_TOKENS) for piece in found)


def test_a_point_says_where_it_comes_from() -> None:
    first, second = chunks_of(["One.", "Two."], CALLER.call, CALLER, ABOUT, "pending")
    assert (first.memory, first.index, first.count, second.index) == ("t_1_0_4_2", 0, 2, 1)
    assert (first.tree, first.run, first.step, first.agent) == ("t", "t_1_0", 4, "boss")
    assert (first.user, first.session, first.team, first.scope) == ("anna", "s", "red", "user")
    assert (first.created_at, first.expires_at, first.embed_state) == (10.0, 20.0, "pending")


def test_ids_follow_from_the_call_and_nothing_else() -> None:
    once = [chunk.id for chunk in chunks_of(["One.", "Two."], CALLER.call, CALLER, ABOUT)]
    again = [chunk.id for chunk in chunks_of(["One.", "Two."], CALLER.call, CALLER, ABOUT._replace(created_at=99.0))]
    assert once == again
    assert len({*once, chunk_id("t_1_0_4_3", 0), chunk_id("t_1_0_4_2", 2)}) == 4
    assert all(str(UUID(one)) == one for one in once)


def test_the_same_words_have_the_same_hash() -> None:
    assert content_hash(" Anna  likes\ntea. ") == content_hash("Anna likes tea.")
    assert content_hash("Anna likes tea") != content_hash("Anna likes tea.")
