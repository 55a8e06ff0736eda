"""The results of a search, wherever it looks, and the interface of one."""

from typing import Protocol

import msgspec


class Hit(msgspec.Struct, frozen=True):
    """A page or document."""

    title: str
    url: str
    """Its address; in a folder, its path there."""
    snippet: str
    """What it says about the query."""


class SearchResults(msgspec.Struct, frozen=True):
    """What a search found."""

    results: list[Hit]
    """The best first."""
    note: str = ""
    """Why there are none, and what to do about it."""


class SearchUnavailable(Exception):
    """The search itself does not work. The text says why; the model reads it."""


class Search(Protocol):
    """Somewhere to search."""

    async def search(self, query: str, limit: int) -> SearchResults:
        """Returns `limit` results at most. Raises SearchUnavailable."""
        ...
