"""The browsers of this process, one a run: opened when a call needs one, and again where they were if they are gone."""

import asyncio
import atexit
import contextlib
import functools
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cadre.adapters.addresses import read_networks
from cadre.errors import TerminalError
from cadre.tool import ToolContext
from cadre_browser.chromium import BrowserSettings, Chromium, read_browser_settings, sweep
from cadre_browser.guard import Guard
from cadre_browser.page import BrowserState, Page, read_state, write_state

log = logging.getLogger("cadre.browser")

T = TypeVar("T")


class BrowserReopened(Exception):
    """The browser was gone and is open again; what was asked of it was not done. The model reads the text."""


class BrowserFailed(Exception):
    """The page could not do what was asked of it. The model reads the text."""


class BrowserSession:
    """The browser of one run. Its calls come one after the other."""

    def __init__(self, settings: BrowserSettings, guard: Guard, run: str) -> None:
        self._settings = settings
        self._guard = guard
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"browser {run}")
        self._chromium: Chromium | None = None
        self._page: Page | None = None
        self._state = BrowserState()
        self.lock = asyncio.Lock()
        self.uses = 0
        self.waiting = 0

    async def open(self, context: ToolContext) -> str:
        """Make sure that the browser is there. Returns what to tell of it: nothing, unless it was opened again."""
        if self._chromium is not None and not await self._is_there():
            log.info("the browser of run %s is gone", context.run)
            self.close_browser()
        if self._chromium is not None:
            return ""
        self._state = await read_state(context)
        await self._run(lambda: _in_words(self._open))
        if not self._state.tabs:
            return ""
        state = self._state
        scrolled = f", scrolled to {state.y:.0f}" if state.y else ""
        return (
            f"[The browser was not running any more. It was opened again at {state.address}{scrolled}, with its"
            " cookies; what was typed or open on the page, and its history, are gone.]"
        )

    async def act(self, context: ToolContext, action: Callable[[Page], T]) -> tuple[T, str, list[str]]:
        """Do something on the page. Returns what came of it, the page now, and the files that came down."""
        outcome, told, state, files = await self._run(lambda: _in_words(lambda: self._act(action)))
        names = []
        for name, data in files:
            try:
                entry = await context.workspace.write(f"downloads/{name}", data)
                names.append(f"Downloaded to {entry.path} ({entry.size} bytes).")
            except TerminalError as error:
                names.append(f"The download {name} was not kept: {error}.")
        if state != self._state:
            await write_state(context, state)
            self._state = state
        return outcome, told, names

    def close_browser(self) -> None:
        """End the browser's processes; any work in progress on it fails."""
        chromium, self._chromium, self._page = self._chromium, None, None
        if chromium is not None:
            chromium.close()

    def close(self) -> None:
        """End the browser and its thread."""
        self.close_browser()
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        size = (self._settings.width, self._settings.height)
        self._chromium = Chromium(self._settings, self._guard.port)
        try:
            self._page = Page(self._chromium, size)
            self._page.restore(self._state)
        except BaseException:
            self.close_browser()
            raise

    def _act(self, action: Callable[[Page], T]) -> tuple[T, str, BrowserState, list[tuple[str, bytes]]]:
        assert self._page is not None
        outcome = action(self._page)
        self._page.settle()
        return outcome, self._page.describe(), self._page.state(self._state), self._page.downloads()

    async def _is_there(self) -> bool:
        assert self._chromium is not None
        if not self._chromium.is_alive:
            return False
        return await self._run(self._answers)

    def _answers(self) -> bool:
        from selenium.common.exceptions import WebDriverException
        from urllib3.exceptions import HTTPError

        assert self._chromium is not None
        try:
            handles = self._chromium.driver.window_handles
            if self._chromium.driver.current_window_handle not in handles:
                self._chromium.driver.switch_to.window(handles[-1])
        except (WebDriverException, HTTPError, OSError, IndexError):
            return False
        return True

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except asyncio.CancelledError:
            # Out of time, or the outcome is not wanted any more: the thread ends when its browser ends.
            self.close_browser()
            raise


def _in_words(work: Callable[[], T]) -> T:
    """Return the work, with what can go wrong on a page in a line for the model. Raises BrowserFailed."""
    from selenium.common.exceptions import WebDriverException
    from urllib3.exceptions import HTTPError

    try:
        return work()
    except LookupError as error:
        raise BrowserFailed(f"not found on the page: {str(error) or 'nothing like it'}") from error
    except WebDriverException as error:
        first = next(iter((error.msg or "").splitlines()), "") or type(error).__name__
        raise BrowserFailed(first) from error
    except (HTTPError, OSError) as error:
        text = "the browser is gone: whether this was done is not known; it will be opened again at the last address"
        raise BrowserFailed(text) from error


class BrowserSessions:
    """All browsers of the process."""

    def __init__(self) -> None:
        self._settings = read_browser_settings()
        self.guard = Guard(read_networks("CADRE_BROWSER_PRIVATE", self._settings.private))
        self._sessions: dict[str, BrowserSession] = {}
        self._numbers = itertools.count(1)
        sweep()
        self.guard.start()
        atexit.register(self.close)

    @contextlib.asynccontextmanager
    async def of(self, context: ToolContext) -> AsyncIterator[BrowserSession]:
        """The run's session, for this call alone."""
        session = self._sessions.pop(context.run, None) or BrowserSession(self._settings, self.guard, context.run)
        self._sessions[context.run] = session  # the one used last stands last
        session.waiting += 1
        try:
            self._make_room()
            async with session.lock:
                yield session
        finally:
            session.waiting -= 1
            session.uses = use = next(self._numbers)
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.idle_seconds, self._expire, context.run, use)

    def close(self) -> None:
        """End all browsers."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _make_room(self) -> None:
        idle = [run for run, session in self._sessions.items() if not session.waiting]
        for run in idle[: max(0, len(self._sessions) - self._settings.sessions)]:
            self._sessions.pop(run).close()

    def _expire(self, run: str, use: int) -> None:
        session = self._sessions.get(run)
        if session is not None and session.uses == use and not session.waiting:
            log.info("the browser of run %s was idle and is closed", run)
            self._sessions.pop(run).close()


@functools.cache
def sessions() -> BrowserSessions:
    """The browsers of this process; nothing is started before the first call. Raises SettingError."""
    return BrowserSessions()
