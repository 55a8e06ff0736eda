"""The tools of the browser: what the code of an agent calls to use it."""

from collections.abc import Callable
from typing import Any, TypeVar

from cadre.adapters.addresses import AddressRefused
from cadre.tool import File, ToolContext, tool
from cadre_browser.page import Kind, Page
from cadre_browser.sessions import BrowserFailed, BrowserReopened, sessions

T = TypeVar("T")

CALL_SECONDS = 90


async def _do(context: ToolContext, action: Callable[[Page], T]) -> tuple[T, str]:
    """Return what came of an action, and the page behind it. On a page that was opened again nothing is done."""
    async with sessions().of(context) as session:
        reopened = await session.open(context)
        if reopened:
            raise BrowserReopened(f"{reopened} This was not done: look at the page, then do it again.")
        outcome, told, files = await session.act(context, action)
    return outcome, _told("", told, files)


def _told(reopened: str, told: str, files: list[str]) -> str:
    return " ".join([*([reopened] if reopened else []), f"{told}.", *files])


@tool(timeout=CALL_SECONDS)
async def go_to(url: str, context: ToolContext) -> str:
    """Opens a page in the browser.

    Args:
        url: The whole address, beginning with http:// or https://.

    Returns:
        Where the browser is now.
    """
    address = url if "://" in url else f"https://{url}"
    browsers = sessions()
    try:
        await browsers.guard.check(address)
    except AddressRefused as error:
        raise BrowserFailed(f"{address} may not be visited: {error}") from error
    async with browsers.of(context) as session:
        reopened = await session.open(context)
        _, told, files = await session.act(context, lambda page: page.go_to(address))
    return _told(reopened, told, files)


@tool(timeout=CALL_SECONDS)
async def click(text: str, context: ToolContext, kind: Kind = "any", nth: int = 1) -> str:
    """Clicks what has a text on the page. Something above it, such as a popup, takes the click without an error.

    Args:
        text: The text of a link or button, the label of a field or box, the alternative text of an image; empty: any of
            its kind.
        kind: What it must be; `link` for a link only.
        nth: Which one, from the top, where there are several.

    Returns:
        Where the browser is now.
    """
    return (await _do(context, lambda page: page.click(text, kind, nth)))[1]


@tool(timeout=CALL_SECONDS)
async def click_at(x: int, y: int, context: ToolContext) -> str:
    """Clicks a place on the screenshot: for what has no text.

    Args:
        x: Pixels from the left.
        y: Pixels from the top of what is in view.
    """
    return (await _do(context, lambda page: page.click_at(x, y)))[1]


@tool(timeout=CALL_SECONDS)
async def write(text: str, context: ToolContext, into: str = "") -> str:
    """Types a text into a field, in place of what is in it.

    Args:
        text: What to type.
        into: Label or placeholder of the field; empty: where the cursor is, behind what is there.
    """
    return (await _do(context, lambda page: page.write(text, into)))[1]


@tool(timeout=CALL_SECONDS)
async def press_key(key: str, context: ToolContext) -> str:
    """Presses a key.

    Args:
        key: Enter, Tab, Escape, Backspace, Arrow_down, Page_down …, a letter, or a chord such as Control+a.
    """
    return (await _do(context, lambda page: page.press(key)))[1]


@tool(timeout=CALL_SECONDS)
async def choose_option(option: str, context: ToolContext, of: str = "") -> str:
    """Chooses an option of a drop-down list.

    Args:
        option: The option's text.
        of: The label of the list; empty: the first list that has the option.
    """
    return (await _do(context, lambda page: page.choose(option, of)))[1]


@tool(timeout=CALL_SECONDS)
async def scroll_down(context: ToolContext, num_pixels: int = 1200) -> str:
    """Scrolls the page down.

    Args:
        num_pixels: How far.
    """
    return (await _do(context, lambda page: page.scroll(num_pixels)))[1]


@tool(timeout=CALL_SECONDS)
async def scroll_up(context: ToolContext, num_pixels: int = 1200) -> str:
    """Scrolls the page up.

    Args:
        num_pixels: How far.
    """
    return (await _do(context, lambda page: page.scroll(-num_pixels)))[1]


@tool(read_only=True, timeout=CALL_SECONDS)
async def text_exists(text: str, context: ToolContext) -> bool:
    """Whether a text is on the page, in view or not.

    Args:
        text: The text to look for.
    """
    return (await _do(context, lambda page: page.exists(text)))[0]


@tool(idempotent=True, timeout=CALL_SECONDS)
async def search_item_ctrl_f(text: str, context: ToolContext, nth_result: int = 1) -> str:
    """Finds a text on the page and scrolls to it, like Ctrl+F.

    Args:
        text: The text to look for, in large or small letters.
        nth_result: Which place to go to.

    Returns:
        How often the text is there, and where the page is scrolled to.
    """
    found, told = await _do(context, lambda page: page.find(text, nth_result))
    if not 1 <= nth_result <= found:
        raise BrowserFailed(f"{text!r} is there {found} times")
    return f"Found {text!r} {found} times; this is number {nth_result}. {told}"


@tool(read_only=True, timeout=CALL_SECONDS)
async def read_page(context: ToolContext) -> str:
    """Reads all the text of the page, in view or not."""
    return (await _do(context, lambda page: page.text()))[0]


@tool(timeout=CALL_SECONDS)
async def go_back(context: ToolContext) -> str:
    """Goes back to the page before."""
    return (await _do(context, lambda page: page.go_back()))[1]


@tool(timeout=CALL_SECONDS)
async def close_popups(context: ToolContext) -> str:
    """Closes a popup of the page as Escape does, and dismisses a dialog of the browser. Cookie banners: click."""
    return (await _do(context, lambda page: page.close_popups()))[1]


@tool(timeout=CALL_SECONDS)
async def answer_dialog(accept: bool, context: ToolContext, text: str = "") -> str:
    """Answers a dialog of the browser, which holds the page until then.

    Args:
        accept: OK, or else Cancel.
        text: What to write into it, where it asks for a text.
    """
    return (await _do(context, lambda page: page.answer(accept=accept, text=text)))[1]


@tool(timeout=CALL_SECONDS)
async def switch_tab(number: int, context: ToolContext) -> str:
    """Brings another tab to the front.

    Args:
        number: Its number, from 1.
    """
    return (await _do(context, lambda page: page.switch_tab(number)))[1]


@tool(timeout=CALL_SECONDS)
async def close_tab(context: ToolContext) -> str:
    """Closes the tab in front."""
    return (await _do(context, lambda page: page.close_tab()))[1]


@tool(read_only=True, timeout=CALL_SECONDS)
async def look(context: ToolContext) -> dict[str, Any]:
    """Takes a screenshot of what is in view.

    Returns:
        `page`: address, title and place; `screenshot`: the image.
    """
    async with sessions().of(context) as session:
        reopened = await session.open(context)
        shot, told, files = await session.act(context, lambda page: page.screenshot())
    seen = {"page": _told(reopened, told, files)}
    return seen if shot is None else {**seen, "screenshot": File(shot, name="screenshot.png")}
