"""Offer the tool `visit_webpage`: a web page as text. `CADRE_VISIT_PRIVATE` allows addresses in private networks."""

import codecs
import re
from urllib.parse import urljoin, urlsplit

from cadre.adapters.addresses import read_networks
from cadre.errors import SetupError
from cadre.tool import tool
from cadre.tools.thread import run_in_thread
from cadre_standard_tools.fetching import FetchedPage, Fetcher, PageUnavailable, read_standard_tools_settings

MAX_CHARACTERS = 40_000
"""Number of characters of a page that the model is shown."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = tuple(
    f"application/{form}" for form in ("json", "x-ndjson", "ndjson", "jsonl", "xml", "yaml", "x-yaml", "javascript")
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
    """Return a page as the model reads it. Raises PageUnavailable for one that is no text."""
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
        text = f"{text[:MAX_CHARACTERS]}\n\n[The page is longer:{more} {missing} more characters are left out.]"
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


try:
    import lxml  # noqa: F401
    from bs4 import BeautifulSoup
    from markdownify import ATX, MarkdownConverter
except ImportError as error:
    raise SetupError(
        f"the standard tools need {error.name}: install the extra tools-web (pip install 'cadre-agents[tools-web]')"
    ) from error

# The work of html.parser can grow with the square of a page's size, and it blocks all threads meanwhile.
PARSER = "lxml"

_UNREADABLE = "script, style, noscript, template, svg, iframe, canvas, object, button, input, select"


def to_markdown(html: bytes, url: str, charset: str | None = None) -> str:
    """Return title, headings, list, tables, code, and links as whole addresses. Scripts and styles are left out.

    `charset` is what the server says; else the page itself is asked. Never raises for what a page holds.
    """
    soup = BeautifulSoup(_decoded(html, charset), PARSER)
    title = " ".join(soup.title.get_text().split()) if soup.title is not None else ""
    base = soup.select_one("base[href]")
    _complete_links(soup, urljoin(url, str(base["href"])) if base is not None else url)
    for element in soup.select(f"head, {_UNREADABLE}"):
        element.extract()
    text = _laid_out(soup)
    if title and soup.select_one("h1") is None:
        text = f"# {title}\n\n{text}"
    lines = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def _decoded(html: bytes, charset: str | None) -> str | bytes:
    # Python knows more charsets by more names than the parser does.
    try:
        return html.decode(charset, errors="replace") if charset else html
    except LookupError:
        return html


def _laid_out(soup: BeautifulSoup) -> str:
    converter = MarkdownConverter(heading_style=ATX, escape_asterisks=False, escape_underscores=False)
    try:
        return converter.convert_soup(soup)
    except RecursionError:
        # Nested hundreds of levels deep: not written for a reader.
        return soup.get_text("\n", strip=True)


def _complete_links(soup: BeautifulSoup, base: str) -> None:
    for element in soup.select("a[href], img[src]"):
        attribute = "href" if element.name == "a" else "src"
        try:
            whole = urljoin(base, str(element[attribute]))
            scheme = urlsplit(whole).scheme
        except ValueError:
            scheme = ""
        if scheme in ("http", "https", "mailto"):
            element[attribute] = whole
        elif element.name == "a":
            del element["href"]
        else:
            element.extract()
