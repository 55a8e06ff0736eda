"""The block of code in what a model wrote: between the agreed tags, in a Markdown fence, or all of it."""

import ast
import contextlib
import re

import msgspec

from cadre.engine.answers.json_text import UNREADABLE, ReadingError, read_object
from cadre.engine.answers.reasoning import TAG, Quotes, without_reasoning
from cadre.kinds.code.section import CodeSpec

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_QUOTES = re.compile(r'"""|\'\'\'')
"""A fence after them stands in a text, even where the code has an error of syntax."""


class ThoughtAndCode(msgspec.Struct):
    """What a model answers in structured mode (smolagents' schema of the same name)."""

    thought: str
    code: str


def closed(text: str, code: CodeSpec) -> str:
    """The answer with the closing tag that the stop sequence has taken away."""
    opening, closing = code.tags
    start = text.rfind(opening)
    is_open = start >= 0 and closing not in text[start + len(opening) :]
    return text + closing if is_open else text


def read_code(content: str, code: CodeSpec) -> str:
    """All blocks of the answer, joined by empty lines. Raises ReadingError, for the model, when there is none.

    An answer without tags and fences may be code as a whole, but a mere literal, as most JSON objects are, is no code.
    """
    if code.structured:
        return _structured(content)
    opening, closing = code.tags
    whole, content = content, content if _quotes_tags(content) else without_reasoning(content, _blocks(code))
    # A block that breaks off in reasoning has lost more than its end.
    text = closed(content, code) if whole.endswith(content[content.rfind(opening) :]) else content
    blocks = re.findall(rf"{re.escape(opening)}(.*?){re.escape(closing)}", text, re.DOTALL)
    if not any(map(str.strip, blocks)) and _is_python(content) and not _is_literal(content):
        return content.strip()
    blocks = [_unfenced(block) for block in blocks] or _FENCE.findall(text)
    found = "\n\n".join(block.strip("\n") for block in blocks if block.strip())
    if found:
        return found
    raise ReadingError(_help(content, opening, closing))


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


def _blocks(code: CodeSpec) -> Quotes:
    """The blocks of an answer, in whose texts tags of reasoning are no tags."""
    opening, closing = code.tags

    def end(text: str, at: int) -> int | None:
        closes = closing if text.startswith(opening, at) else "```"
        begin = at + len(opening) if closes is closing else text.index("\n", at)
        found = text.find(closes, begin)
        block = text[begin : found if found >= 0 else len(text)]
        return begin + len(block) + len(closes) if _quotes_tags(_unfenced(block)) else None

    return Quotes(re.compile(rf"{re.escape(opening)}|```(?:python|py)?[ \t]*\n"), end)


def _quotes_tags(code: str) -> bool:
    """Whether a text is Python, with tags of reasoning in its texts and comments only."""
    return _is_python(TAG.sub("$", code))


def _unfenced(block: str) -> str:
    """Some models put a fence between the tags as well, or words and a fence. One in a text of the code is none."""
    if (whole := _FENCE.fullmatch(block.strip())) and ("```" not in whole[1] or _is_python(whole[1])):
        return whole[1]
    found = _FENCE.search(block)
    if found is None or _is_python(block) or _QUOTES.search(block, 0, found.start()):
        return block
    return found[1]


def _is_python(content: str) -> bool:
    try:
        ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(content.strip())


def _is_literal(content: str) -> bool:
    with contextlib.suppress(*UNREADABLE):
        msgspec.json.decode(content)
        return True
    try:
        ast.literal_eval(content.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _help(content: str, opening: str, closing: str) -> str:
    text = (
        f"Your answer holds no block of code. Write your thought, then the code between {opening} and {closing}:"
        f"\nThought: …\n{opening}\n# your code\n{closing}"
    )
    if "final" in content.lower() and "answer" in content.lower():
        text += f'\nIf that was your final answer, give it in code:\n{opening}\nfinal_answer("…")\n{closing}'
    return text
