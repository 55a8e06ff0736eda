"""Turn a page's HTML into Markdown that a model reads well."""

import re
from urllib.parse import urljoin, urlsplit

from cadre.errors import SetupError

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
    """Returns title, headings, lists, tables, code, and links as whole addresses. Scripts and styles are left out.

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
        # Nested hundreds of levels deep: nobody wrote that for a reader.
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
