"""The site has every page of the documentation, once; no link leads nowhere. `make site` checks anchors as well."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


class _Loader(yaml.SafeLoader):
    """Reads the names of Python functions in the site's file as text."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda _loader, name, _node: name)


def targets(entry: object) -> list[str]:
    """Return the pages that a part of the navigation names."""
    match entry:
        case str():
            return [entry]
        case list():
            return [page for one in entry for page in targets(one)]
        case dict():
            return [page for one in entry.values() for page in targets(one)]
    raise TypeError(entry)


def test_the_navigation_has_every_page_once() -> None:
    site = yaml.load((ROOT / "deploy" / "site" / "mkdocs.yml").read_text(), _Loader)
    named = Counter(targets(site["nav"]))
    pages = {str(page.relative_to(DOCS)) for page in PAGES if not re.match(r"\d{4}-", page.name)}
    assert named == Counter(pages)


def test_the_overview_of_decisions_has_each() -> None:
    overview = (DOCS / "decisions" / "README.md").read_text()
    assert set(LINK.findall(overview)) >= {page.name for page in (DOCS / "decisions").glob("0*.md")}


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_no_link_of_a_page_leads_nowhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []
