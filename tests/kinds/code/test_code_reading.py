"""The block of code in an answer: between tags, in a fence, bare or as JSON; what is none comes back with help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.engine.answers.code_blocks import closed, end_of_answer
from cadre.engine.answers.json_text import ReadingError
from cadre.kinds.code.kind import read_code
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
        ("Look:\n```python\nx = 1\n```\nthen\n```py\ny = 2\n```", "x = 1\n\ny = 2"),
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


ONE = "print(1)"


@pytest.mark.parametrize(
    "text",
    [
        'The data:\n```json\n{"a": 1}\n```\nso\n```python\nprint(1)\n```',
        "First\n```bash\npip install x\n```\nThen:\n```python\nprint(1)\n```",
        "```sql\nselect 1\n```\n\n```python\nprint(1)\n```\nas said\n```text\n1\n```",
        "```python\nprint(1)\n```\nOutput:\n```\n1\n```",
        "```Python\nprint(1)\n```",
        "```python3\nprint(1)\n```",
        "```PY\nprint(1)\n```",
        "```\npython\nprint(1)\n```",
        "Code:\n```py\nprint(1)\n```<end_code>",
        "Code:\n```py\nprint(1)\n``` <end_code>\nas asked",
        "```{python}\nprint(1)\n```",
        '``` python title="a"\nprint(1)\n```',
        "```tool_code\nprint(1)\n```",
        "~~~python\nprint(1)\n~~~",
        "````python\nprint(1)\n````",
        "\r\n```python\r\nprint(1)\r\n```\r\n",
        "Here: ```python\nprint(1)\n```",
        "```python\nprint(1)```",
        "- ```python\n  print(1)\n  ```",
        "1. Do\n   ```python\n   print(1)\n   ```\n",
        "Thought\n```python\nprint(1)",
        "```python\nprint(1)\n``",
        "```python\nprint(1)\n</code>",
        "<code>\nprint(1)\n</code",
        "<code>\nprint(1)\n</",
        "<CODE>\nprint(1)\n</Code>",
        "<code>\n```python\nprint(1)\n",
        "I put it in <code> tags:\n<code>\nprint(1)\n</code>",
        "As <code>x</code> is set:\n<code>\nprint(1)\n</code>",
        "<code>\n    print(1)\n</code>",
        "> ```python\n> wipe()\n> ```\n```python\nprint(1)\n```",
    ],
)
def test_the_python_runs_and_nothing_else(text: str) -> None:
    assert read_code(text, TAGS) == ONE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<code>\nx = '</code>'\nprint(x)\n</code>\nObservation: no", "x = '</code>'\nprint(x)"),
        ("<code>\n# up to </code> here\nprint(1)\n</code>", "# up to </code> here\nprint(1)"),
        ("<code>\nx = 1  # so</code>", "x = 1  # so"),
        ("<code>\nx = 'a</code>", "x = 'a"),
        ("````py\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("```py\nx = '''\n```\n'''\n```\nwords", "x = '''\n```\n'''"),
        ("1. Do\n   ```py\n   if x:\n       y()\n   ```", "if x:\n    y()"),
        ("<code>\n\tif x:\n\t\ty()\n\n\ty()\n</code>", "if x:\n\ty()\n\ny()"),
    ],
)
def test_literals_and_indents_are_those_of_the_code(text: str, code: str) -> None:
    assert read_code(text, TAGS) == code


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a": 1}\n```',
        '```\n{"a": true}\n```',
        "```bash\nrm -r x\n```",
        "> ```python\n> wipe()\n> ```",
        "Thinking: hard",
        "done",
        "The function `wipe()` is there.",
    ],
)
def test_what_is_no_python_does_not_run(text: str) -> None:
    with pytest.raises(ReadingError):
        read_code(text, TAGS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("T\n<code>\nx = 1\n</code>", "T\n<code>\nx = 1\n</code>"),
        ("<code>\nx = 1\n</code>\nObservation: 5\n<code>y</code>", "<code>\nx = 1\n</code>"),
        ("<code>\nx = 'Observation: </code>'\n</code> so", "<code>\nx = 'Observation: </code>'\n</code>"),
        ("```py\nx = 1\n```\nObservation: 5", "```py\nx = 1\n```\n"),
        ("```py\nx = '''\nObservation: 5\n'''\n```\nThen", None),
        ("```py\nx = 1\n```\nthen\n```py\ny = 2\n```", None),
        ("Observation: none.\n<code>\nx", None),
        ("<code>\nx = 'a</code>", None),
        ("<code>x</code> is set", None),
        ("```json\n{}\n```\nObservation: 5", None),
        ("<think>\n<code>\nx = 1\n</code>\nNo.", None),
        (
            "<Think a='b'>\n<code>\nx = 1\n</code>\n</Think><code>\ny = 1\n</code> so",
            "<Think a='b'>\n<code>\nx = 1\n</code>\n</Think><code>\ny = 1\n</code>",
        ),
        ("<code>\nx = '<think>'\n</code> so", "<code>\nx = '<think>'\n</code>"),
    ],
)
def test_an_answer_ends_behind_its_block(text: str, kept: str | None) -> None:
    end = end_of_answer(text, TAGS.tags)
    assert (text[:end] if end is not None else None) == kept


@given(st.sampled_from(["x = '</code>'", 'y = """a\n</code>\n```"""', "print(1)  # </code>", "f({'a': [1]})"]))
def test_no_beginning_of_an_answer_ends_it_early(line: str) -> None:
    text = f"Thought.\n<code>\n{line}\nprint(2)\n</code>\nMore."
    behind = text.rindex("</code>") + len("</code>")
    assert {end_of_answer(text[:at], TAGS.tags) for at in range(behind)} == {None}
    assert {end_of_answer(text[:at], TAGS.tags) for at in range(behind, len(text) + 1)} == {behind}


def test_an_open_tag_is_closed() -> None:
    assert closed("<code>\nx = 1\n</co", TAGS.tags) == "<code>\nx = 1\n</code>"
    assert closed("<code>\nx", TAGS.tags) == closed("<code>\nx</code>", TAGS.tags) == "<code>\nx</code>"


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
    with pytest.raises(ReadingError, match="block"):
        read_code(text, TAGS)


def test_a_structured_answer_that_is_no_json_is_refused() -> None:
    with pytest.raises(ReadingError, match="JSON"):
        read_code("<code>x = 1</code>", STRUCTURED)
