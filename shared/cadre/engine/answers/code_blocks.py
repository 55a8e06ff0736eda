"""Blocks of Python in what a model wrote: between agreed tags or in Markdown fences, read line by line.

A closing tag or fence within a text literal of the code does not end its block.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from cadre.engine.answers.reasoning import TAG, Quotes, blanked, has_tag, without_reasoning

Tags = tuple[str, str]

_OPENER = re.compile(
    r"^(?P<margin>(?:[ \t]*(?:[-*+]|\d+[.)])(?=[ \t]))*[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$"
    r"|^(?!>)[^`\n]*?[^`\s>][ \t]*(?P<late>`{3,})(?P<label>(?:python|py)[\d.]*)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""A fence that opens, with what stands behind it; also at the end of a line of words, where it names Python."""

_LABEL = re.compile(r"[{.\s]*([\w.+#-]*)")
_LATE_LABEL = re.compile(r"[ \t]*(?:i?python|py)[\d.]*[ \t]*\n", re.IGNORECASE)
"""A label on the line behind the fence."""
_PYTHON = re.compile(r"(?:i?python|py)[\d.]*|tool_code|code", re.IGNORECASE)
MADE_UP = ("Observation:", "Calling tools:")
"""Beginnings of lines behind which a model writes in place of its tools."""
_MADE_UP = re.compile(rf"^[ \t]*(?:{'|'.join(MADE_UP)})", re.MULTILINE)

_LITERAL = re.compile(r"#|\"\"\"|'''|\"|'")
_QUOTE_OR_ESCAPE = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ('"', "'", '"""', "'''")}
_QUOTES = re.compile(r'"""|\'\'\'')
"""A fence behind them stands in a text, even where the code has an error of syntax."""

_STRAY_TAG = re.compile(r"\n[ \t]*</?(?:end_)?code>?\s*\Z", re.IGNORECASE)
_MOST = 200
"""Blocks of a text that are looked at."""

_SIMPLE_TAG = re.compile(r"<(/?)([\w-]+)>")


class CodeBlock(NamedTuple):
    """A block of a text: its code without the common indent, and its place with the markers around it."""

    code: str
    begin: int
    end: int
    label: str | None
    """Language of a fence in lower case, "" where it names none; None: the block stands between the agreed tags."""
    is_closed: bool
    is_certain: bool = False
    """True if its end is certain, regardless of the text that may follow."""


def blocks_in(text: str, tags: Tags) -> list[CodeBlock]:
    """Return the blocks of Python: those between the tags, else the fences that name Python, else those without a
    label. Fences of other languages and quoted fences do not count."""
    tagged = [block for block in _tagged(text, tags) if block.code]
    if tagged:
        # Names that words mention between tags are no code where a block follows.
        return [block for block in tagged if not is_plain(block.code)] or tagged
    fences = [block for block in _fences(text) if block.code]
    named = [block for block in fences if block.label and _PYTHON.fullmatch(block.label)]
    return named or [block for block in fences if not block.label and not is_plain(block.code)]


def end_of_answer(text: str, tags: Tags) -> int | None:
    """Return where an answer ends for certain: behind its first block between the tags, or before what the model
    makes up behind a fence. None: it may go on. Blocks in its thoughts are drafts."""
    text = blanked(text, _blocks(tags))
    tagged = [block for block in _tagged(text, tags) if block.code]
    if tagged:
        return next((one.end for one in tagged if one.is_certain and not is_plain(one.code)), None)
    fences = list(_fences(text))
    begun = next((one.end for one in fences if one.code and one.is_certain and _is_python_label(one)), None)
    if begun is None:
        return None
    made_up = (one.start() for one in _MADE_UP.finditer(text, begun))
    return next((at for at in made_up if not any(one.begin < at < one.end for one in fences)), None)


def beginnings(tags: Tags) -> re.Pattern[str]:
    """Return a pattern of what may begin a block."""
    return re.compile(f"{_pattern(tags[0]).pattern}|{_OPENER.pattern}", _OPENER.flags)


def first_block(text: str, tags: Tags) -> CodeBlock | None:
    """Return the block that a text begins with, of any language."""
    return next(_tagged(text, tags) if _pattern(tags[0]).match(text) else _fences(text), None)


def is_python(text: str) -> bool:
    """Return whether the text is sound Python of at least one statement."""
    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def is_plain(text: str) -> bool:
    """Return whether the text, read as Python, does nothing: data, a mere name, or words that only look like code."""
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text.strip()[:1] in "{["
    return all(
        (isinstance(one, ast.AnnAssign) and one.value is None)
        or (isinstance(one, ast.Expr) and (isinstance(one.value, ast.Name) or _is_data(one.value)))
        for one in body
    )


def _is_data(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):  # true, false, null
        return node.id in ("true", "false", "null")
    if isinstance(node, ast.Dict):
        return all(one is not None and _is_data(one) for one in (*node.keys, *node.values))
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(map(_is_data, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _is_data(node.operand)
    return isinstance(node, ast.Constant)


def _is_python_label(block: CodeBlock) -> bool:
    return not block.label or _PYTHON.fullmatch(block.label) is not None


def dedented(code: str) -> str:
    """Return the code without blank lines around it and without the indent of its first line."""
    lines = code.split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        return ""
    lines[-1] = lines[-1].rstrip()
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    return (
        "\n".join(line.removeprefix(margin) if line.strip() else "" for line in lines) if margin else "\n".join(lines)
    )


# --- between tags


def _pattern(tag: str) -> re.Pattern[str]:
    plain = _SIMPLE_TAG.fullmatch(tag)
    if plain is None:
        return re.compile(re.escape(tag))
    return re.compile(rf"<\s*{plain[1]}\s*{re.escape(plain[2])}(?:\s[^<>\n]*)?>", re.IGNORECASE)


def _tagged(text: str, tags: Tags) -> Iterator[CodeBlock]:
    if _OPENER.fullmatch(tags[0].strip()):
        yield from _fenced_as_agreed(text, tags)
        return
    begins, ends, at = _pattern(tags[0]), _pattern(tags[1]), 0
    for _ in range(_MOST):
        begun = begins.search(text, at)
        if begun is None:
            return
        close = _close(text, begun.end(), ends)
        until = close.begin if close is not None else len(text)
        # Words that name the tag are not its block: that begins at the last tag on its own line.
        again = [one for one in begins.finditer(text, begun.end(), until) if _begins_line(text, one.start())]
        if again and not is_python(dedented(text[begun.end() : until])):
            begun = again[-1]
            close = _close(text, begun.end(), ends)
            until = close.begin if close is not None else len(text)
        code = text[begun.end() : until]
        code = code if close is not None else _without_partial(code, tags[1])
        at = close.end if close is not None else len(text)
        is_certain = close is not None and close.is_certain
        yield CodeBlock(dedented(_unfenced(code)), begun.start(), at, None, close is not None, is_certain)


def _fenced_as_agreed(text: str, tags: Tags) -> Iterator[CodeBlock]:
    """Yield the fences where a fence is what was agreed on."""
    wanted = _label(tags[0].strip().lstrip("`~"))
    for block in _fences(text):
        if block.label == wanted or (block.label and _PYTHON.fullmatch(block.label)):
            yield block._replace(label=None)


def _without_partial(code: str, tag: str) -> str:
    """Return the code without the beginning of the closing tag that it breaks off in."""
    bare = code.rstrip()
    for size in range(len(tag) - 1, 0, -1):
        if bare.endswith(tag[:size]) and (size > 1 or _begins_line(bare, len(bare) - 1)):
            return bare[:-size]
    return code


def _unfenced(code: str) -> str:
    """Return the code of a fence within a block, with words around it or none; the code itself where it is sound."""
    if ("```" not in code and "~~~" not in code) or is_python(dedented(code)):
        return code
    begun = _OPENER.search(code)
    if begun is None or _QUOTES.search(code, 0, begun.start()):
        return code
    inner = [block for block in _fences(code) if block.code and _is_python_label(block)]
    return inner[0].code if inner else code


# --- fences


def _fences(text: str) -> Iterator[CodeBlock]:
    """Yield the fences of a text, of any language."""
    at = 0
    for _ in range(_MOST):
        begun = _OPENER.search(text, at)
        if begun is None:
            return
        fence, label = begun["fence"] or begun["late"], _label(begun["info"] or begun["label"] or "")
        body = min(begun.end() + 1, len(text))
        ends = re.compile(rf"^[ \t]*{fence[0]}{{{len(fence)},}}[ \t]*(?:<end_code>[ \t]*)?$", re.MULTILINE)
        if not label and (late := _LATE_LABEL.match(text, body)) is not None:
            label, body = _label(late[0]), late.end()
        if not label or _PYTHON.fullmatch(label):
            close = _close(text, body, ends)
        else:
            found = ends.search(text, body)
            close = _Close(found.start(), found.end(), True) if found is not None else None
        if close is None and text.rstrip().endswith(fence) and (glued := text.rstrip().rindex(fence)) >= body:
            # Behind the last line of code.
            close = _Close(glued, glued + len(fence), False)
        code = text[body : close.begin if close is not None else len(text)]
        if close is None:
            code = _without_partial(_STRAY_TAG.sub("\n", code), fence)
        begin = begun.start("fence") if begun["fence"] else begun.start("late")
        at = close.end if close is not None else len(text)
        yield CodeBlock(dedented(code), begin, at, label, close is not None, close is not None and close.is_certain)


def _label(info: str) -> str:
    found = _LABEL.match(info)
    return found[1].casefold() if found is not None else ""


# --- ends of blocks


class _Close(NamedTuple):
    begin: int
    end: int
    is_certain: bool


def _close(text: str, body: int, ends: re.Pattern[str]) -> _Close | None:
    """Return the end of the code that begins at `body`: the first outside of literals and comments; else one in a
    literal that has no end, which is an error that the model is to read of; else one in a comment."""
    in_broken = in_comment = None
    at, end = body, ends.search(text, body)
    while end is not None:
        found = _LITERAL.search(text, at)
        if found is None or found.start() >= end.start():
            return _Close(end.start(), end.end(), True)
        at, is_broken = _behind_literal(text, found)
        while end is not None and end.start() < at:
            if found[0] == "#":
                in_comment = in_comment or end
            elif is_broken:
                in_broken = in_broken or end
            end = ends.search(text, end.end())
    other = in_broken or in_comment
    return _Close(other.start(), other.end(), False) if other is not None else None


def _behind_literal(text: str, begun: re.Match[str]) -> tuple[int, bool]:
    """Return where a text literal or a comment of Python ends, and whether it lacks its end."""
    quote, at = begun[0], begun.end()
    line = text.find("\n", at)
    line = line if line >= 0 else len(text)
    if quote == "#":
        return line, False
    most = len(text) if len(quote) == 3 else line
    while (found := _QUOTE_OR_ESCAPE[quote].search(text, at, most)) is not None:
        at = found.end()
        if found[0] == quote:
            return at, False
    return most, True


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def closed(text: str, tags: tuple[str, str]) -> str:
    """Return the answer with the closing tag of its last block, where the endpoint has left it out or cut it."""
    found = blocks_in(text, tags)
    if not found or found[-1].label is not None or found[-1].is_closed:
        return text
    closing = tags[1]
    bare = text.rstrip()
    partial = next((size for size in range(len(closing) - 1, 1, -1) if bare.endswith(closing[:size])), 0)
    return (bare[:-partial] if partial else text) + closing


def said(content: str, tags: tuple[str, str]) -> str:
    """Return an answer with code without its thoughts; tags in texts of the code stay."""
    if not has_tag(content) or _quotes_tags(content):
        return content
    return without_reasoning(content, _blocks(tags))


def _blocks(tags: tuple[str, str]) -> Quotes:
    """Return the blocks of an answer, in whose texts tags of reasoning are no tags."""

    def end(text: str, at: int) -> int | None:
        block = first_block(text[at:], tags)
        return at + block.end if block is not None and _quotes_tags(block.code) else None

    return Quotes(beginnings(tags), end)


def _quotes_tags(code: str) -> bool:
    """Return whether a text is Python, with tags of reasoning in its texts and comments only."""
    return is_python(TAG.sub("$", dedented(code)))
