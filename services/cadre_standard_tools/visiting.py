"""Offer the tool `visit_webpage`: a web page as text. `CADRE_VISIT_PRIVATE` allows addresses in private networks."""

import codecs

from cadre.adapters.addresses import read_networks
from cadre.tool import tool
from cadre.tools.thread import run_in_thread
from cadre_standard_tools.fetching import FetchedPage, Fetcher, PageUnavailable
from cadre_standard_tools.markdown import to_markdown
from cadre_standard_tools.settings import read_standard_tools_settings

MAX_CHARACTERS = 40_000
"""How much of a page the model is shown."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = tuple(
    f"application/{form}"
    for form in ("json", "x-ndjson", "ndjson", "jsonl", "xml", "yaml", "x-yaml", "javascript")
)
_AS_TEXT = ("+json", "+xml", "+yaml")

_fetcher = Fetcher(read_networks("CADRE_VISIT_PRIVATE", read_standard_tools_settings().visit_private))


@tool(read_only=True, timeout=90)
async def visit_webpage(url: str) -> str:
    """Reads a page of the web. HTML comes as Markdown; plain text, JSON, XML and YAML as they are.

    Args:
        url: The page's whole address, beginning with http:// or https://.

    Returns:
        The page's text, cut when it is very long.
    """
    page = await _fetcher.fetch(url)
    return await run_in_thread(lambda: page_text(url, page), "page to text")


def page_text(asked: str, page: FetchedPage) -> str:
    """Returns a page as the model reads it. Raises PageUnavailable for one that is no text."""
    if page.content_type in _HTML:
        text = to_markdown(page.data, page.url, page.charset)
    elif _is_text(page.content_type):
        text = page.data.decode(_known(page.charset), errors="replace")
    else:
        kind = page.content_type or "content of no type"
        raise PageUnavailable(f"{page.url} is {kind}: only HTML, plain text, JSON, XML and YAML can be read")
    text = text or "[The page is empty.]"
    missing = len(text) - MAX_CHARACTERS
    if missing > 0:
        more = "" if page.is_whole else " at least"
        text = (
            f"{text[:MAX_CHARACTERS]}\n\n[The page is longer:{more} {missing} more characters are left out.]"
        )
    elif not page.is_whole:
        text += "\n\n[The page is longer: only its beginning was read.]"
    if page.url.rstrip("/") != asked.strip().rstrip("/"):
        text = f"[Redirected to {page.url}]\n\n{text}"
    return text


def _is_text(content_type: str) -> bool:
    return content_type.startswith("text/") or content_type in _TEXT or content_type.endswith(_AS_TEXT)


def _known(charset: str | None) -> str:
    try:
        return codecs.lookup(charset or "utf-8").name
    except LookupError:
        return "utf-8"
