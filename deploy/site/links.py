"""A hook of MkDocs: links to files of the project that are no page become their path as code."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>\.\.?/[^)#\s]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_kwargs: Any) -> str:
    """Return the page's text with a path for each link that leads out of the documentation."""
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
        if path.startswith("docs/"):
            return link[0]
        text = link["text"]
        return f"`{path}`" if text.strip("`/") in path else f"{text} (`{path}`)"

    return LINK.sub(shown, markdown)
