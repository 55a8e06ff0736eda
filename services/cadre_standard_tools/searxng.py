"""Searches the web by a SearXNG server's JSON API."""

from typing import Any

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.errors import SettingError
from cadre_standard_tools.search_results import Hit, SearchResults, SearchUnavailable

SEARCH_SECONDS = 20.0
"""How long a search may take."""


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
            note += (
                f" {len(answer.unresponsive_engines)} search engines did not answer: try again later, too."
            )
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
            raise SearchUnavailable("the search server refuses: whoever runs it must allow the format json")
        if response.status_code != 200:
            raise SearchUnavailable(f"the search server answers {response.status_code}: try again later")
        try:
            return msgspec.json.decode(response.content, type=_Answer)
        except msgspec.DecodeError as error:
            raise SearchUnavailable("the search server's answer is not that of SearXNG") from error
