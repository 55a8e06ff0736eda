"""How browsers are started and what they may reach: the variables `CADRE_BROWSER_…`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cadre.settings import read


class BrowserSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How browsers are started and what they may reach; each field is read from `CADRE_BROWSER_<FIELD>`."""

    chromium: str = "chromium"
    """The browser: a path, or a command on PATH."""
    driver: str = "chromedriver"
    """Its WebDriver: a path, or a command on PATH."""
    private: str = ""
    """What pages may reach beside the public internet: `1` for all, or networks such as 10.1.0.0/16."""
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's own sandbox; `auto`: on, but for root, as whom Chromium does not start with it."""
    idle_seconds: Annotated[float, Meta(ge=1)] = 600.0
    """How long a browser is kept for a run that does not come back."""
    sessions: Annotated[int, Meta(ge=1)] = 8
    """Browsers at once; beyond it the one left longest ago is closed."""
    width: Annotated[int, Meta(ge=100)] = 1000
    height: Annotated[int, Meta(ge=100)] = 1350


def read_browser_settings() -> BrowserSettings:
    """As `cadre.settings.read` reads them."""
    return read(BrowserSettings, "CADRE_BROWSER_")
