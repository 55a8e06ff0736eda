"""Act on the pages of one browser with helium, in the browser's own thread, and keep its tabs and cookies in a file."""

import base64
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cadre.tool import ToolContext
from cadre.tools.workspace import NoSuchFile
from cadre_browser.chromium import BrowserUnavailable, Chromium

Kind = Literal["any", "link", "button", "field", "checkbox", "radio", "image"]

WAIT_SECONDS = 2.0
"""Seconds that an element may take to appear."""

LOAD_SECONDS = 10.0
"""Seconds that a page may go on loading after an action."""

DOWNLOAD_SECONDS = 20.0
MAX_TEXT_CHARACTERS = 20_000

_apis = threading.local()

_FIND = """
const wanted = arguments[0].toLowerCase(), nth = arguments[1], found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (node.data.toLowerCase().includes(wanted) && element && element.getClientRects().length
      && !['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(element.tagName)) found.push(element);
}
if (nth >= 1 && nth <= found.length) found[nth - 1].scrollIntoView({block: 'center', behavior: 'instant'});
return found.length;
"""

_PLACE = """
return {x: window.scrollX, y: window.scrollY, height: document.documentElement.scrollHeight,
        view: window.innerHeight, title: document.title};
"""

_COOKIE = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite", "expires")


class BrowserState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state with which a browser is opened again."""

    tabs: list[str] = []
    """Addresses, in their order."""
    front: int = 0
    """Index of the tab in front."""
    x: float = 0
    """Horizontal scroll position, in pixels."""
    y: float = 0
    cookies: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """The address in front; empty before there is one."""
        return self.tabs[self.front] if self.front < len(self.tabs) else ""


def cookie_to_keep(cookie: dict[str, Any]) -> dict[str, Any]:
    """Return a cookie that Chromium reported, in the form that Chromium accepts."""
    kept = {key: cookie[key] for key in _COOKIE if key in cookie}
    if cookie.get("session") or kept.get("expires", 0) < 0:
        kept.pop("expires", None)
    return kept


def state_path(run: str, tree: str) -> str:
    """Return the state's path in the workspace: the same in a fork and in the next turn of a session, whose ids
    differ."""
    return f".browser/{run.removeprefix(tree).strip('_') or 'root'}.json"


async def read_state(context: ToolContext) -> BrowserState:
    """Return the run's last state; an empty one if no state can be read."""
    try:
        file = await context.workspace.read(state_path(context.run, context.tree))
        return msgspec.json.decode(file.data, type=BrowserState)
    except (NoSuchFile, msgspec.MsgspecError):
        return BrowserState()


async def write_state(context: ToolContext, state: BrowserState) -> None:
    """Keep the state next to the run's journal."""
    await context.workspace.write(state_path(context.run, context.tree), msgspec.json.encode(state))


class Page:
    """The tab in front of a browser."""

    def __init__(self, chromium: Chromium, size: tuple[int, int]) -> None:
        """Raise BrowserUnavailable."""
        self._chromium = chromium
        self._driver = chromium.driver
        self._size = size
        self._sized = ""
        self._helium = _helium()
        _apis.api = self._helium.APIImpl()
        self._helium.set_driver(self._driver)
        chromium.cdp(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(chromium.downloads),
            eventsEnabled=False,
        )
        self._fit()

    # --- where it is

    def go_to(self, url: str) -> None:
        """Open an address in the tab in front; a page that loads on and on is used as it is."""
        from selenium.common.exceptions import TimeoutException

        try:
            self._driver.get(url)
        except TimeoutException:
            self._driver.execute_script("window.stop();")

    def go_back(self) -> None:
        """Go one page back in the tab's history."""
        self._driver.back()

    def restore(self, state: BrowserState) -> None:
        """Bring a fresh browser to where another one was."""
        if state.cookies:
            self._chromium.cdp("Storage.setCookies", cookies=state.cookies)
        for number, address in enumerate(state.tabs):
            if number:
                self._driver.switch_to.new_window("tab")
                self._fit()
            if address.startswith(("http://", "https://")):
                self.go_to(address)
        if state.tabs:
            self.switch_tab(state.front + 1)
            self.settle()
            self._driver.execute_script("window.scrollTo(arguments[0], arguments[1]);", state.x, state.y)

    def state(self, before: BrowserState) -> BrowserState:
        """Return what to keep of the browser; what it was `before` while a dialog holds the page."""
        if self.dialog() is not None:
            return before
        handles = self._driver.window_handles
        infos = self._chromium.cdp("Target.getTargets")["targetInfos"]
        addresses = {info["targetId"]: info["url"] for info in infos}
        place = self._driver.execute_script(_PLACE)
        cookies = self._chromium.cdp("Storage.getCookies")["cookies"]
        return BrowserState(
            tabs=[addresses.get(handle, "about:blank") for handle in handles],
            front=handles.index(self._driver.current_window_handle),
            x=place["x"],
            y=place["y"],
            cookies=[cookie_to_keep(cookie) for cookie in cookies],
        )

    def describe(self) -> str:
        """Address, title, place and tabs, or the dialog that holds the page."""
        dialog = self.dialog()
        if dialog is not None:
            return f"The page shows a dialog and waits: {dialog!r}. Answer it by answer_dialog or close_popups."
        place = self._driver.execute_script(_PLACE)
        tabs = len(self._driver.window_handles)
        number = self._driver.window_handles.index(self._driver.current_window_handle) + 1
        told = f"At {self._driver.current_url} ({place['title'] or 'no title'})"
        if place["height"] > place["view"]:
            told += f", scrolled to {place['y']:.0f} of {place['height'] - place['view']:.0f} pixels"
        return f"{told}, tab {number} of {tabs}" if tabs > 1 else told

    def screenshot(self) -> bytes | None:
        """Return what the tab shows, as PNG; None while a dialog holds the page."""
        if self.dialog() is not None:
            return None
        return base64.b64decode(self._chromium.cdp("Page.captureScreenshot", format="png")["data"])

    def settle(self) -> None:
        """Wait until the page has loaded, and make sure that the tab in front is the visible one."""
        time.sleep(0.1)
        if self.dialog() is not None:
            return
        handles = self._driver.window_handles
        if self._sized not in handles or self._driver.current_window_handle != self._sized:
            self._fit()
        until = time.monotonic() + LOAD_SECONDS
        while self._driver.execute_script("return document.readyState;") != "complete" and time.monotonic() < until:
            time.sleep(0.05)

    def downloads(self) -> list[tuple[str, bytes]]:
        """Return the files that have come down since the last time, once those on their way are whole."""
        folder = self._chromium.downloads
        until = time.monotonic() + DOWNLOAD_SECONDS
        while any(folder.glob("*.crdownload")) and time.monotonic() < until:
            time.sleep(0.05)
        found = []
        for file in sorted(folder.iterdir()):
            if file.suffix != ".crdownload" and not file.name.startswith("."):
                found.append((file.name, file.read_bytes()))
                file.unlink()
        return found

    # --- what is done there

    def click(self, text: str, kind: Kind, nth: int) -> None:
        """Click what has a text; with an empty one any of its kind. Raises LookupError."""
        helium = self._helium
        if kind == "any" and nth == 1 and text:
            helium.click(text)
            return
        classes = {
            "link": helium.Link,
            "button": helium.Button,
            "field": helium.TextField,
            "checkbox": helium.CheckBox,
            "radio": helium.RadioButton,
            "image": helium.Image,
        }
        wanted = classes.get(kind, helium.Text)(text or None)
        until = time.monotonic() + WAIT_SECONDS
        while len(found := self._matches(wanted, text)) < nth and time.monotonic() < until:
            time.sleep(0.1)
        if not 1 <= nth <= len(found):
            raise LookupError(f"{text!r} as {kind} is there {len(found)} times")
        helium.click(found[nth - 1])

    def _matches(self, wanted: Any, text: str) -> list[Any]:
        """Return what is found from the top; of what has exactly the text that alone, though helium takes longer
        ones too."""
        found = self._helium.find_all(wanted)
        return [one for one in found if text and one.web_element.text.strip() == text] or found

    def click_at(self, x: int, y: int) -> None:
        """Click a place of the screenshot."""
        for event in ("mousePressed", "mouseReleased"):
            self._chromium.cdp("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def write(self, text: str, into: str) -> None:
        """Type into a field, or where the cursor is. Raises LookupError."""
        if into:
            self._helium.write(text, into=into)
        else:
            self._helium.write(text)

    def press(self, key: str) -> None:
        """Press a key or a chord such as Control+a. Raises ValueError for a key that there is not."""
        from selenium.webdriver.common.keys import Keys

        *held, last = key.split("+") if len(key) > 1 else [key]
        pressed = ""
        for one in (*held, last):
            named = getattr(Keys, one.upper().replace(" ", "_"), None)
            if named is None and len(one) != 1:
                raise ValueError(
                    f"there is no key {one!r}: write Enter, Tab, Escape, Arrow_down, Control+a, or a letter"
                )
            pressed += named or one
        self._helium.press(pressed)

    def choose(self, option: str, of: str) -> None:
        """Choose an option of a list. Raises LookupError."""
        helium = self._helium
        if of:
            helium.select(of, option)
            return
        lists = helium.find_all(helium.S("select"))
        holding = [one for one in lists if option in one.web_element.text.splitlines()]
        if not (holding or lists):
            raise LookupError("there is no list on this page")
        helium.select((holding or lists)[0].web_element, option)

    def scroll(self, pixels: int) -> None:
        """Scroll down, or up by less than 0."""
        self._driver.execute_script("window.scrollBy({top: arguments[0], behavior: 'instant'});", pixels)

    def exists(self, text: str) -> bool:
        """Return whether a text is on the page."""
        return bool(self._helium.Text(text).exists())

    def find(self, text: str, nth: int) -> int:
        """Return how often a text is on the page; the place of the `nth` is brought into view."""
        return int(self._driver.execute_script(_FIND, text, nth))

    def text(self) -> str:
        """Return what the page says, without its form."""
        shown = str(self._driver.execute_script("return document.body ? document.body.innerText : '';"))
        if len(shown) <= MAX_TEXT_CHARACTERS:
            return shown
        return f"{shown[:MAX_TEXT_CHARACTERS]}\n[… {len(shown) - MAX_TEXT_CHARACTERS} characters more]"

    def dialog(self) -> str | None:
        """Return the question that a dialog of the page asks; None without a dialog."""
        from selenium.common.exceptions import NoAlertPresentException

        try:
            return str(self._driver.switch_to.alert.text)
        except NoAlertPresentException:
            return None

    def answer(self, *, accept: bool, text: str) -> None:
        """Answer the dialog. Raises LookupError."""
        if self.dialog() is None:
            raise LookupError("the page shows no dialog")
        alert = self._driver.switch_to.alert
        if text:
            alert.send_keys(text)
        if accept:
            alert.accept()
        else:
            alert.dismiss()

    def close_popups(self) -> None:
        """Dismiss a dialog of the browser; without one, press Escape on the page."""
        if self.dialog() is not None:
            self._driver.switch_to.alert.dismiss()
            return
        from selenium.webdriver.common.keys import Keys

        self._helium.press(Keys.ESCAPE)

    def switch_tab(self, number: int) -> None:
        """Bring a tab to the front. Raises LookupError."""
        handles = self._driver.window_handles
        if not 1 <= number <= len(handles):
            raise LookupError(f"there are {len(handles)} tabs")
        self._driver.switch_to.window(handles[number - 1])
        self._fit()

    def close_tab(self) -> None:
        """Close the tab in front; the last one is emptied instead."""
        if len(self._driver.window_handles) == 1:
            self.go_to("about:blank")
            return
        self._driver.close()
        self._driver.switch_to.window(self._driver.window_handles[-1])
        self._fit()

    def _fit(self) -> None:
        """Give the tab its size: headless Chromium keeps room for the frame of a window."""
        width, height = self._size
        self._chromium.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._sized = self._driver.current_window_handle


def _helium() -> Any:
    """helium, whose one browser of a process is made one of each thread."""
    try:
        import helium
    except ImportError as error:
        raise BrowserUnavailable(
            f"the browser needs {error.name}: install the extra browser (pip install 'cadre-agents[browser]')"
        ) from error
    current: Callable[[], Any] = _current
    helium._get_api_impl = current
    helium.Config.implicit_wait_secs = WAIT_SECONDS
    return helium


def _current() -> Any:
    return _apis.api
