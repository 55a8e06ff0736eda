"""Settings for what the standard tools may reach: the variables `CADRE_SEARCH` and `CADRE_VISIT_PRIVATE`."""

import msgspec

from cadre.settings import read


class StandardToolsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for what the standard tools may reach: `CADRE_SEARCH`, `CADRE_VISIT_PRIVATE`."""

    search: str = "folder:documents"
    """The source that `web_search` searches: `folder:PATH` or `searxng:URL`."""
    visit_private: str = ""
    """Addresses that `visit_webpage` may read in addition to the public internet: `1` for all, or networks such as
    10.1.0.0/16."""


def read_standard_tools_settings() -> StandardToolsSettings:
    """As `cadre.settings.read` reads them."""
    return read(StandardToolsSettings, "CADRE_")
