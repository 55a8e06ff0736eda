"""The tool `web_search`, and which search it uses: `CADRE_SEARCH`, read when the module is loaded."""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.errors import SettingError
from cadre.tool import tool
from cadre.tools.thread import run_in_thread
from cadre_standard_tools.fetching import read_standard_tools_settings


class Hit(msgspec.Struct, frozen=True):
    """A page or document."""

    title: str
    url: str
    """Its address; in a folder, its path there."""
    snippet: str
    """A passage about the query."""


class SearchResults(msgspec.Struct, frozen=True):
    """What a search found."""

    results: list[Hit]
    """The best first."""
    note: str = ""
    """The reason why there are no results, and what to do about it."""


class SearchUnavailable(Exception):
    """The search itself does not work. The text says why; the model reads it."""


class Search(Protocol):
    """Somewhere to search."""

    async def search(self, query: str, limit: int) -> SearchResults:
        """Return `limit` results at most. Raises SearchUnavailable."""
        ...


MAX_RESULTS = 20


SEARCH_SECONDS = 20.0
"""Seconds that a search may take."""


class _Result(msgspec.Struct):
    url: str = ""
    title: str | None = None
    content: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] = []
    unresponsive_engines: list[Any] = []


class Searxng:
    """Searches by a SearXNG server, which must offer JSON: `search: formats: [html, json]` in its settings.yml."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/search"

    async def search(self, query: str, limit: int) -> SearchResults:
        """Searches, as `search_results.Search` says."""
        answer = await self._ask(query)
        hits = [Hit(one.title or one.url, one.url, one.content or "") for one in answer.results if one.url]
        if hits:
            return SearchResults(hits[:limit])
        note = f"Nothing was found for {query!r}: try other words."
        if answer.unresponsive_engines:
            note += f" {len(answer.unresponsive_engines)} search engines did not answer: try again later, too."
        return SearchResults([], note)

    async def _ask(self, query: str) -> _Answer:
        try:
            async with httpx2.AsyncClient(timeout=SEARCH_SECONDS, **http_options(self._url)) as client:
                response = await client.get(self._url, params={"q": query, "format": "json"})
        except SettingError as error:
            raise SearchUnavailable(f"the search server cannot be asked: {error}") from error
        except httpx2.HTTPError as error:
            raise SearchUnavailable(f"the search server does not answer ({type(error).__name__})") from error
        if response.status_code == 403:
            raise SearchUnavailable("the search server refuses: its operator must allow the format json")
        if response.status_code != 200:
            raise SearchUnavailable(f"the search server answers {response.status_code}: try again later")
        try:
            return msgspec.json.decode(response.content, type=_Answer)
        except msgspec.DecodeError as error:
            raise SearchUnavailable("the search server's answer is not that of SearXNG") from error


log = logging.getLogger("cadre.tools")

ENDINGS = frozenset({".md", ".txt", ".rst"})
MAX_FILE_BYTES = 2_000_000
"""A larger file is left out."""

SNIPPET_CHARACTERS = 600
"""Number of characters of a file that a result shows."""

# How soon repeating a word stops to count, and how much long files are held back.
_SATURATION, _LENGTH_SHARE = 1.2, 0.75

# They say nothing about what a text is about; a query of nothing else is searched by them all the same.
_STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        """a about an and are as at be but by can did do does for from has have how i in is it its me my of on or so
        that the their there these they this to was we were what when where which who why will with you""",
    )
)


class _IndexedFile(NamedTuple):
    path: str
    title: str
    paragraphs: list[str]
    counts: Counter[str]
    length: int


class FolderSearch:
    """Searches a folder, without hidden files and links out of it. Files are read when they are new or changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[tuple[int, int], _IndexedFile]] = {}

    async def search(self, query: str, limit: int) -> SearchResults:
        """Searches, as `search_results.Search` says."""
        return await run_in_thread(lambda: self._find(query, limit), "folder search")

    def _find(self, query: str, limit: int) -> SearchResults:
        asked = _query_words(query)
        if not asked:
            return SearchResults([], f"The query {query!r} has no word in it: say in words what to look for.")
        documents = self._documents()
        if not documents:
            return SearchResults([], f"There is nothing to search: the folder holds no {', '.join(sorted(ENDINGS))}.")
        ranked = _rank(documents, asked)
        if not ranked:
            return SearchResults(
                [], f"None of {len(documents)} documents has any of the words {', '.join(asked)}: try others."
            )
        return SearchResults([Hit(one.title, one.path, _snippet(one, asked)) for one in ranked[:limit]])

    def _documents(self) -> list[_IndexedFile]:
        if not self._folder.is_dir():
            raise SearchUnavailable(
                f"there is no folder {str(self._folder)!r} to search: the operator of this tool sets CADRE_SEARCH"
            )
        found: dict[Path, tuple[tuple[int, int], _IndexedFile]] = {}
        for path in self._files():
            try:
                status = path.stat()
                version = (status.st_mtime_ns, status.st_size)
                known = self._read.get(path)
                if known is None or known[0] != version:
                    known = (version, _read(path, path.relative_to(self._folder).as_posix()))
            except OSError as error:
                log.warning("%s is left out of the search: %s", path, error)
                continue
            found[path] = known
        # Another search may run at the same time: what is remembered is only ever replaced as a whole.
        self._read = found
        return [document for _, document in found.values()]

    def _files(self) -> Iterator[Path]:
        inside = self._folder.resolve()
        for path in sorted(self._folder.rglob("*")):
            if path.suffix.lower() not in ENDINGS:
                continue
            if any(part.startswith(".") for part in path.relative_to(self._folder).parts):
                continue
            if not path.is_file() or not path.resolve().is_relative_to(inside):
                continue
            if path.stat().st_size > MAX_FILE_BYTES:
                log.info("%s is left out of the search: it has more than %d bytes", path, MAX_FILE_BYTES)
                continue
            yield path


def _read(path: Path, name: str) -> _IndexedFile:
    text = path.read_text("utf-8", errors="replace")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    first = text.strip().partition("\n")[0].strip("#=* \t")
    title = first if 0 < len(first) <= 120 else path.stem.replace("-", " ").replace("_", " ")
    counts = Counter(_words(f"{path.stem} {text}"))
    return _IndexedFile(name, title, paragraphs, counts, counts.total())


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _query_words(query: str) -> list[str]:
    words = list(dict.fromkeys(_words(query)))
    return [word for word in words if word not in _STOPWORDS] or words


def _rank(documents: list[_IndexedFile], asked: list[str]) -> list[_IndexedFile]:
    """Return those that have a word of the query, the best first. A rare word weighs more than a common one."""
    average = sum(document.length for document in documents) / len(documents)
    scores = dict.fromkeys(range(len(documents)), 0.0)
    for word in asked:
        holders = sum(word in document.counts for document in documents)
        weight = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
        for place, document in enumerate(documents):
            times = document.counts[word]
            if times:
                norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / average)
                scores[place] += weight * times * (_SATURATION + 1) / (times + norm)
    best = sorted(scores, key=lambda place: -scores[place])
    return [documents[place] for place in best if scores[place] > 0]


def _snippet(document: _IndexedFile, asked: list[str]) -> str:
    """Return the paragraph with most of the words, cut so that the first of them is in sight."""
    if not document.paragraphs:
        return ""
    best = max(document.paragraphs, key=lambda paragraph: len(set(asked) & set(_words(paragraph))))
    if len(best) <= SNIPPET_CHARACTERS:
        return best
    places = [match.start() for word in asked if (match := re.search(re.escape(word), best, re.IGNORECASE))]
    begin = max(0, min(min(places, default=0) - SNIPPET_CHARACTERS // 4, len(best) - SNIPPET_CHARACTERS))
    cut = best[begin : begin + SNIPPET_CHARACTERS]
    return f"{'…' if begin else ''}{cut}{'…' if begin + SNIPPET_CHARACTERS < len(best) else ''}"


def search_of(setting: str) -> Search:
    """Return the search that `CADRE_SEARCH` names. Raises SettingError."""
    kind, _, place = setting.partition(":")
    if kind == "folder" and place:
        return FolderSearch(Path(place))
    if kind == "searxng" and _is_web_address(place):
        return Searxng(place)
    raise SettingError(f"CADRE_SEARCH={setting}: must be folder:PATH or searxng:URL (http or https)")


def _is_web_address(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


_search = search_of(read_standard_tools_settings().search)


@tool(read_only=True, timeout=60)
async def web_search(query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)] = 5) -> SearchResults:
    """Searches for pages about something.

    Args:
        query: A few words that the page should be about.
        limit: Results to return at most.

    Returns:
        The results, the best first, each with its title, its url and a snippet of its text.
    """
    return await _search.search(query, limit)
