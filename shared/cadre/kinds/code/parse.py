"""The code in what a model wrote: the blocks between the agreed tags, Markdown fences, or all of it."""

import contextlib

import msgspec

from cadre.engine.answers.code_blocks import blocks_in, is_plain, is_python, said
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, read_object
from cadre.kinds.code.section import CodeSpec


class ThoughtAndCode(msgspec.Struct):
    """What a model answers in structured mode (smolagents' schema of the same name)."""

    thought: str
    code: str


def is_open(text: str, code: CodeSpec) -> bool:
    """Return whether the last block of an answer lacks its end."""
    found = blocks_in(text, code.tags)
    return bool(found) and not found[-1].is_closed


def read_code(content: str, code: CodeSpec) -> str:
    """Return all blocks of the answer, joined by empty lines. Raises ReadingError, for the model, when there is none.

    An answer without tags and fences may be code as a whole, but data and words that only look like code are none.
    """
    if code.structured:
        return _structured(content)
    whole = content
    content = said(content, code.tags)
    if is_python(content) and not is_plain(content):
        return content.strip()
    blocks = blocks_in(content, code.tags)
    if blocks and not blocks[-1].is_closed and not whole.endswith(content[blocks[-1].begin :]):
        blocks = blocks[:-1]  # what breaks off in reasoning has lost more than its end
    if blocks:
        return "\n\n".join(block.code for block in blocks)
    raise ReadingError(_help(content, *code.tags))


def _structured(content: str) -> str:
    """The code of smolagents' {thought, code}, whose steps call it `code_action`: in JSON alone, or among words."""
    try:
        return msgspec.json.decode(content, type=ThoughtAndCode).code
    except UNREADABLE as error:
        with contextlib.suppress(ReadingError):
            found = read_object(content, "code", "code_action", whole=True)
            code = found.get("code", found.get("code_action"))
            if isinstance(code, str):
                return code
        raise ReadingError(
            f"Your answer is not the JSON object that was asked for: {error}."
            ' Answer with {"thought": "…", "code": "…"} and nothing else.'
        ) from error


def _help(content: str, opening: str, closing: str) -> str:
    text = (
        f"Your answer holds no block of code. Write your thought, then the code between {opening} and {closing}:"
        f"\nThought: …\n{opening}\n# your code\n{closing}"
    )
    if "final" in content.lower() and "answer" in content.lower():
        text += f'\nIf that was your final answer, give it in code:\n{opening}\nfinal_answer("…")\n{closing}'
    return text
