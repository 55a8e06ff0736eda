"""A record of what a browser shows and complains of while a test drives it."""

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Route

from cadre_gateway.routes.app import load_assets

PICTURES = Path(__file__).parents[2] / "build" / "console"
WIDTHS = (1440, 1024, 390)
SCHEMES = ("dark", "light")
SQUEEZED = """() => [...document.querySelectorAll("td")]
  .filter((cell) => cell.checkVisibility() && cell.innerText.length > 20 && cell.clientWidth < 90)
  .map((cell) => cell.innerText.slice(0, 80))"""


def answer_as_a_gateway(route: Route) -> None:
    """Serves the console's files, and to all else a list without items."""
    path = route.request.url.partition("://")[2].partition("/")[2].partition("?")[0]
    asset = load_assets().get(path.removeprefix("console/") or "index.html")
    if asset is not None:
        route.fulfill(body=asset.data, content_type=asset.media_type)
    else:
        route.fulfill(body='{"approvals": [], "next": null}', content_type="application/json")


class Errors(list[str]):
    """Complaints of the browser's console and of the page's code."""

    def watch(self, page: Page) -> None:
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.append(str(error)))

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.append(message.text)

    def forgive(self, *texts: str) -> None:
        """Forgets complaints with one of these texts, which the test has provoked."""
        self[:] = [error for error in self if not any(text in error for text in texts)]


class Pictures:
    """Screenshots of pages in both colour schemes."""

    def take(self, page: Page, name: str, *, whole: bool = False) -> None:
        """Takes what is in view, or the `whole` page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=whole)

    def at_all_widths(self, page: Page, name: str) -> None:
        """Takes the page at each width, where it must not scroll sideways, squeeze the text of a cell, nor axe find
        anything serious."""
        before, found = page.viewport_size, list[tuple[object, ...]]()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            self.take(page, f"{name}-{width}", whole=True)
            if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                found.append((width, "scrolls sideways"))
            found += [(width, "squeezed", text) for text in page.evaluate(SQUEEZED)]
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                for one in Axe().run(page).response["violations"]:
                    if one["impact"] in ("serious", "critical"):
                        found.append((width, scheme, one["id"], [node["html"][:160] for node in one["nodes"]][:3]))
        faults = page.locator("header.top + section.alert:visible")
        found += [(0, text) for text in faults.all_inner_texts()]
        assert before is not None
        page.set_viewport_size(before)
        assert not found, "\n".join(map(str, found))
