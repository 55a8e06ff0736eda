"""The tool `web_search`, and which search it uses: `CADRE_SEARCH`, read when the module is loaded."""

from pathlib import Path
from typing import Annotated

import httpx2
import msgspec

from cadre.errors import SettingError
from cadre.tool import tool
from cadre_standard_tools.folder_search import FolderSearch
from cadre_standard_tools.search_results import Search, SearchResults
from cadre_standard_tools.searxng import Searxng
from cadre_standard_tools.settings import read_standard_tools_settings

MAX_RESULTS = 20


def search_of(setting: str) -> Search:
    """Returns the search that `CADRE_SEARCH` names. Raises SettingError."""
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
async def web_search(
    query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)] = 5
) -> SearchResults:
    """Searches for pages about something.

    Args:
        query: A few words that the page should be about.
        limit: Results to return at most.

    Returns:
        The results, the best first, each with its title, its url and a snippet of its text.
    """
    return await _search.search(query, limit)
