"""The block of code in an answer: between tags, in a fence, bare or as JSON; what is none comes back with help."""

import pytest

from cadre.engine.answers.json_text import ReadingError
from cadre.kinds.code.parse import closed, read_code
from cadre.kinds.code.section import CodeSpec

TAGS = CodeSpec()
FENCED = CodeSpec(tags=("```python", "```"))
STRUCTURED = CodeSpec(structured=True)
MANUAL = 'text = """Run this by hand:\n```python\nprint("only text")\n```\n"""\nfinal_answer(text)'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Thought\n<code>\nx = 1\n</code>", "x = 1"),
        ("<code>\nx = 1\n", "x = 1"),
        ("<code>a = 1</code> and <code>b = 2</code>", "a = 1\n\nb = 2"),
        ("Look:\n```py\nx = 1\n```\nso", "x = 1"),
        ("Look:\n```python\nx = 1\n```\n```\ny = 2\n```", "x = 1\n\ny = 2"),
        ("<code>\n```python\nx = 1\n```\n</code>", "x = 1"),
        ("<code>\n```python\nx = 1\n```\nor\n```python\nx = 2\n```\n</code>", "x = 1"),
        ("x = 1\nprint(x)", "x = 1\nprint(x)"),
        ("<code>\nif x:\n    y()\n</code>", "if x:\n    y()"),
        ("<code>\nLook:\n```\nx = 1\n```\nso\n</code>", "x = 1"),
        (f"<code>\n{MANUAL}\n</code>", MANUAL),
        (f"<code>\n{MANUAL})\n</code>", f"{MANUAL})"),
        (f"<code>\n```python\n{MANUAL}\n```\n</code>", MANUAL),
        (MANUAL, MANUAL),
        ("<think>\n<code>wipe()</code>\nNo.\n</think>\n<code>\nx = 1\n</code>", "x = 1"),
        ("Perhaps <code>wipe()</code>? No.\n</think>\n<code>\nx = 1\n</code>", "x = 1"),
        ("<code>\nx = text.split('</think>')\n</code>", "x = text.split('</think>')"),
    ],
)
def test_blocks_are_found(text: str, code: str) -> None:
    assert read_code(text, TAGS) == code


def test_an_open_tag_is_closed() -> None:
    assert closed("<code>\nx", TAGS) == closed("<code>\nx</code>", TAGS) == "<code>\nx</code>"


@pytest.mark.parametrize(
    ("text", "form", "code"),
    [
        ("```python\nx = 1\n```", FENCED, "x = 1"),
        ("So:\n```python\nx = 1", FENCED, "x = 1"),
        ('{"thought": "add", "code": "x = 1"}', STRUCTURED, "x = 1"),
        ('{"thought": "add", "code_action": "x = 2"}', STRUCTURED, "x = 2"),
    ],
)
def test_blocks_are_found_in_the_form_that_was_agreed(text: str, form: CodeSpec, code: str) -> None:
    assert read_code(text, form) == code


LITERAL = '{"name": "add", "arguments": {"a": 2}}'


@pytest.mark.parametrize("text", ["", "no code at all", "<code></code>", "```\n\n```", LITERAL])
def test_an_answer_without_a_block_is_refused(text: str) -> None:
    with pytest.raises(ReadingError, match="no block of code"):
        read_code(text, TAGS)


def test_a_structured_answer_that_is_no_json_is_refused() -> None:
    with pytest.raises(ReadingError, match="not the JSON object"):
        read_code("<code>x = 1</code>", STRUCTURED)
