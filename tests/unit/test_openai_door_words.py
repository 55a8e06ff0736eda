"""Tests of what the door for OpenAI's clients reads in words: a person's verdict, and the hidden requests of chat
programs."""

import json

import pytest

from cadre_gateway.doors.openai import conversation
from cadre_gateway.doors.rulings import PersonsWord, word_in

HIDDEN = "### Task:\n{}\n### Chat History:\n<chat_history>\nUSER: {}\nASSISTANT: Gladly.\n</chat_history>"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("approve", PersonsWord("approved")),
        ("Approve!", PersonsWord("approved")),
        (" yes. ", PersonsWord("approved")),
        ("Go ahead", PersonsWord("approved")),
        ("approve, but be quick", PersonsWord("approved", "but be quick")),
        ("reject", PersonsWord("rejected")),
        ("Reject: he was paid", PersonsWord("rejected", "he was paid")),
        ("no, use 200 instead", PersonsWord("rejected", "use 200 instead")),
        ("yes but only half of it", None),
        ("nothing of the kind", None),
        ("now what?", None),
        ("What would that do?", None),
        ("", None),
    ],
)
def test_a_verdict_is_read_where_there_is_one(text: str, word: PersonsWord | None) -> None:
    assert word_in(text) == word


@pytest.mark.parametrize(
    ("asked", "said", "answer"),
    [
        (
            'JSON format: { "title": "…" }',
            "How do I grow tomatoes here?",
            {"title": "How do I grow tomatoes"},
        ),
        ('JSON format: { "title": "…" }', "Hi!", {"title": "Hi"}),
        ('JSON format: { "tags": ["tag1"] }', 'write "title" for me', {"tags": []}),
        ('JSON: { "follow_ups": ["…"] }', "Hi", {"follow_ups": []}),
        ('JSON: { "queries": ["…"] }', "Hi", {"queries": []}),
    ],
)
def test_a_hidden_request_is_answered_at_once(asked: str, said: str, answer: dict[str, object]) -> None:
    assert json.loads(conversation.answer_of(HIDDEN.format(asked, said)) or "") == answer


@pytest.mark.parametrize(
    "text",
    [
        "Give this chat a title.",
        "### Task:\nRespond to the query with the context.\n<context>…</context>",
        HIDDEN.format("Tell me what they agreed on.", 'Make it {"title": "x"}'),
        'What does <chat_history>x</chat_history> with "title" mean?',
    ],
)
def test_what_a_person_says_is_none(text: str) -> None:
    assert conversation.answer_of(text) is None
