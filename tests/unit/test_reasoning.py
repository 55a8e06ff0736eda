"""Reasoning in tags is dropped wherever it stands; a tag that JSON, code or prose quotes is part of the answer."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.reasoning import for_people, without_reasoning
from cadre.kinds.code.kind import read_code
from cadre.kinds.code.section import CodeSpec

QUOTED = '{"text": "<think> begins it", "more": ["</think>"]}'

DROPPED = {
    "before": ("<think>WIPE</think>ADD", "ADD"),
    "after words": ("Sure. <think>WIPE</think> ADD", "Sure.  ADD"),
    "after a byte order mark": ("\ufeff <think>WIPE</think>ADD", "\ufeff ADD"),
    "in capitals": ("<THINK>WIPE</THINK>ADD", "ADD"),
    "thinking": ("<thinking>WIPE</thinking>ADD", "ADD"),
    "reasoning": ("<reasoning>WIPE</reasoning>ADD", "ADD"),
    "thought": ("<thought>WIPE</thought>ADD", "ADD"),
    "scratchpad": ("<scratchpad>WIPE</scratchpad>ADD", "ADD"),
    "in brackets": ("[THINK]WIPE[/THINK]ADD", "ADD"),
    "as tokens": ("<|START_THINKING|>WIPE<|END_THINKING|>ADD", "ADD"),
    "as long tokens": ("<|begin_of_thought|>WIPE<|end_of_thought|>ADD", "ADD"),
    "with a prefix": ("<seed:think>WIPE</seed:think>ADD", "ADD"),
    "in triangles": ("◁think▷WIPE◁/think▷ADD", "ADD"),
    "with attributes": ('<think effort="low">WIPE</think >ADD', "ADD"),
    "with blanks": ("< think >WIPE</ think>ADD", "ADD"),
    "nested": ("<think>a<think>b</think>WIPE</think>ADD", "ADD"),
    "nested in another": ("<think>a<reasoning>b</think>WIPE</reasoning>ADD", "ADD"),
    "closed by another": ("<think>a</reasoning>WIPE</think>ADD", "ADD"),
    "twice": ("<think>WIPE</think>ADD<think>WIPE</think>", "ADD"),
    "unclosed": ("ADD<think>WIPE", "ADD"),
    "closed once of twice": ("ADD<think>a<think>b</think>WIPE", "ADD"),
    "opened by a template": ("WIPE</think>ADD", "ADD"),
    "closed once more": ("<think>a</think>WIPE</think>ADD", "ADD"),
    "opened by a template, behind a quote": (f"{QUOTED} WIPE</think>ADD", "ADD"),
    "within an object": ('{"name": <think>WIPE</think>"add"}', '{"name": "add"}'),
    "an end in an object of reasoning": (f"<think>{QUOTED} WIPE</think>ADD", "ADD"),
    "an end in a text that has none": ('WIPE {"a": "b </think>ADD', "ADD"),
}

KEPT = {
    "no tags": "ADD",
    "JSON": QUOTED,
    "an array": '["<think>", "a"]',
    "JSON behind words": f"So: {QUOTED}",
    "nothing within": "<think/>ADD",
    "a link": "[think](about.md) ADD",
    "another tag": "<thinker>ADD</thinker>",
}


@pytest.mark.parametrize("name", DROPPED)
def test_reasoning_is_dropped(name: str) -> None:
    text, left = DROPPED[name]
    assert without_reasoning(text) == left


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_reasoning_stays(name: str) -> None:
    assert without_reasoning(KEPT[name]) == KEPT[name]


@pytest.mark.parametrize("name", DROPPED)
def test_code_in_reasoning_is_never_run(name: str) -> None:
    text = DROPPED[name][0].replace("WIPE", "\n<code>\nwipe()\n</code>\n```py\nwipe()\n```\n")
    try:
        code = read_code(text.replace("ADD", "\n<code>\nadd()\n</code>\n"), CodeSpec())
    except ReadingError:
        return
    assert code == "add()"


QUOTING = 'parts = text.split("</think>")\nfinal_answer("<think>" + parts[0])  # [THINK]'


@pytest.mark.parametrize(
    "text",
    [
        QUOTING,
        f"<code>\n{QUOTING}\n</code>",
        f"Sure.\n<code>\n{QUOTING}\n",
        f"```python\n{QUOTING}\n```",
        f"<think>\n<code>\nwipe()\n</code>\n</think>\n<code>\n{QUOTING}\n</code>",
        f"wipe()\n</think>\n```\n{QUOTING}\n```",
    ],
)
def test_texts_of_code_may_quote_tags(text: str) -> None:
    assert read_code(text, CodeSpec()) == QUOTING


@pytest.mark.parametrize(
    "text", ["1 <think> wipe()", "<code>\nwipe() <think> 1\n</code>", "<code>\nwipe()\n</think>\n</code>"]
)
def test_a_tag_among_code_is_a_tag(text: str) -> None:
    with pytest.raises(ReadingError):
        read_code(text, CodeSpec())


def test_prose_is_freed_of_what_it_begins_with() -> None:
    about = "The tags <think> and </think> enclose it."
    assert for_people(about) == about
    assert for_people(f"\n<think>How?</think>{about}") == about
    assert for_people("How?</think>So.") == "So."


PIECES = [
    "<think>",
    "</think>",
    "<reasoning>",
    "</REASONING>",
    '{"a": "',
    '"}',
    "[",
    "```\n",
    "a",
    " ",
    "<",
    "{",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(["think", "Thinking", "reflection"]))
def test_nothing_within_or_before_the_last_tags_is_left(pieces: list[str], name: str) -> None:
    before = "".join(pieces)
    assert "WIPE" not in without_reasoning(f"{before}<{name}>WIPE</{name}>".replace('"', ""))
    left = without_reasoning(f"<{name}>{before.replace(f'</{name.lower()}>', '')}WIPE")
    assert re.sub(r"\s", "", left) == ""


@pytest.mark.parametrize("unit", ["{}", '{"a ', '{"a":', "[ ", "<think>", "</think>", "<think ", "< "])
def test_long_answers_are_read_in_time(unit: str) -> None:
    begun = time.monotonic()
    without_reasoning(unit * (100_000 // len(unit)) + "<think>")
    assert time.monotonic() - begun < 10
