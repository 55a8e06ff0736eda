"""Tools that search and read a folder of Markdown texts, and hold a statement against them."""

# Annotations are left unquoted: the tool decorator reads them as types.

import math
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from cadre import tool

FOLDER = Path(__file__).parent.parent / "documents"

# BM25: how soon repeating a word stops to count, and how much long paragraphs are held back.
SATURATION, LENGTH = 1.2, 0.75

STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        """a about all also an and are as at be been but by can did do for from had has have he her his how in into
        is it its most not of on one or s she so such than that the their them there they this to up was were what
        when where which who why will with""",
    )
)


class Paragraph(NamedTuple):
    document: str
    title: str
    number: int
    text: str


class Hit(TypedDict):
    document: str
    paragraph: int
    score: float
    text: str


class Document(TypedDict):
    document: str
    title: str
    text: str


class Comparison(TypedDict):
    document: str
    paragraph: int
    text: str
    found: list[str]
    missing: list[str]


@tool(read_only=True)
def search_documents(query: str, limit: int = 5) -> list[Hit]:
    """Finds the paragraphs that fit a query best, the best first. Rare words weigh more than common ones.

    Args:
        query: A few words that the paragraph should contain.
        limit: Paragraphs to return at most.
    """
    return search(read(FOLDER), query, limit)


@tool(read_only=True)
def read_document(document: str) -> Document:
    """Reads a whole document.

    Args:
        document: Its name, as search_documents gives it.
    """
    paragraphs = [p for p in read(FOLDER) if p.document == document.removesuffix(".md")]
    if not paragraphs:
        names = dict.fromkeys(p.document for p in read(FOLDER))
        raise ValueError(f"no document {document!r}; documents are {', '.join(names)}")
    first = paragraphs[0]
    text = "\n\n".join(p.text for p in paragraphs)
    return Document(document=first.document, title=first.title, text=text)


@tool(read_only=True)
def check_statement(statement: str, sources: int = 2) -> list[Comparison]:
    """Holds a statement against the documents: for the best paragraph of each of several documents, which
    words and numbers of the statement stand in it or in its title, and which do not.

    Args:
        statement: One sentence with the names and numbers to be checked.
        sources: Documents to compare with.
    """
    return compare(read(FOLDER), statement, sources)


# --- what the tools are made of


@cache
def read(folder: Path) -> tuple[Paragraph, ...]:
    """All paragraphs of a folder's *.md files. The texts do not change while the service runs."""
    return tuple(p for path in sorted(folder.glob("*.md")) for p in split(path.stem, path.read_text("utf-8")))


def split(document: str, text: str) -> list[Paragraph]:
    """A document's paragraphs, numbered from 1. Its first line is its title."""
    head, _, body = text.partition("\n")
    parts = [" ".join(part.split()) for part in body.split("\n\n")]
    return [
        Paragraph(document, head.lstrip("# ").strip(), number, part)
        for number, part in enumerate(filter(None, parts), 1)
    ]


def words(text: str) -> list[str]:
    """The words and numbers that tell texts apart, plurals cut. A dot or comma inside a number is kept."""
    found = re.findall(r"\d+(?:[.,]\d+)*|[^\W\d_]+", text.casefold())
    return [w[:-1] if len(w) > 3 and w.endswith("s") else w for w in found if w not in STOPWORDS]


def rank(paragraphs: tuple[Paragraph, ...], query: str) -> list[tuple[float, Paragraph]]:
    """Paragraphs that share a word with the query, the best first (Okapi BM25). A title is part of its text."""
    counts = [Counter(words(f"{p.title} {p.text}")) for p in paragraphs]
    average = sum(c.total() for c in counts) / max(len(counts), 1)
    weights = {}
    for word in set(words(query)):
        holders = sum(word in c for c in counts)
        weights[word] = math.log(1 + (len(counts) - holders + 0.5) / (holders + 0.5))
    scored = []
    for paragraph, count in zip(paragraphs, counts, strict=True):
        norm = SATURATION * (1 - LENGTH + LENGTH * count.total() / average)
        score = sum(w * count[t] * (SATURATION + 1) / (count[t] + norm) for t, w in weights.items())
        if score > 0:
            scored.append((score, paragraph))
    return sorted(scored, key=lambda pair: -pair[0])


def search(paragraphs: tuple[Paragraph, ...], query: str, limit: int) -> list[Hit]:
    if not words(query):
        raise ValueError(f"the query {query!r} holds no word to search for: name things, places or numbers")
    return [
        Hit(document=p.document, paragraph=p.number, score=round(score, 3), text=p.text)
        for score, p in rank(paragraphs, query)[: max(limit, 1)]
    ]


def compare(paragraphs: tuple[Paragraph, ...], statement: str, sources: int) -> list[Comparison]:
    """The statement's words against the best paragraph of each of the best documents."""
    asked = list(dict.fromkeys(words(statement)))
    if not asked:
        raise ValueError(f"the statement {statement!r} holds nothing that could be checked")
    best: dict[str, Paragraph] = {}
    for _, paragraph in rank(paragraphs, statement):
        best.setdefault(paragraph.document, paragraph)
    result = []
    for paragraph in list(best.values())[: max(sources, 1)]:
        held = set(words(f"{paragraph.title} {paragraph.text}"))
        result.append(
            Comparison(
                document=paragraph.document,
                paragraph=paragraph.number,
                text=paragraph.text,
                found=[word for word in asked if word in held],
                missing=[word for word in asked if word not in held],
            )
        )
    return result
