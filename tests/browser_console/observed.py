"""What a browser shows and complains of while a test drives it."""

from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page

PICTURES = Path(__file__).parents[2] / "build" / "console"


class Errors(list[str]):
    """What the browser's console and the page's own code complained of."""

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
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=whole)
