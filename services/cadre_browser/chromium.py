"""Start and stop one Chromium with its WebDriver: both die with the service, and their profile is deleted."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cadre.adapters import die_with_parent
from cadre.settings import read

START_SECONDS = 30.0
PAGE_SECONDS = 30.0
"""Seconds that a page may take to load; after that it is used as it is."""

_PREFIX = "cadre-browser-"
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-pdf-viewer",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--password-store=basic",
    "--force-device-scale-factor=1",
    # Nothing goes around the proxy: no name is resolved here, and WebRTC opens no sockets itself.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class BrowserUnavailable(Exception):
    """No browser is available. The text says why; the model reads it."""


class BrowserSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for starting browsers and limiting what they reach; each field is read from `CADRE_BROWSER_<FIELD>`."""

    chromium: str = "chromium"
    """The browser: a path, or a command on PATH."""
    driver: str = "chromedriver"
    """Its WebDriver: a path, or a command on PATH."""
    private: str = ""
    """Addresses that pages may reach in addition to the public internet: `1` for all, or networks such as 10.1.0.0/16.
    """
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's own sandbox; `auto`: on, except when running as root, where Chromium does not start with it."""
    idle_seconds: Annotated[float, Meta(ge=1)] = 600.0
    """Seconds for which a browser is kept for a run that does not come back."""
    sessions: Annotated[int, Meta(ge=1)] = 8
    """Browsers at once; beyond it the one left longest ago is closed."""
    width: Annotated[int, Meta(ge=100)] = 1000
    """Width in pixels of the view and of a screenshot."""
    height: Annotated[int, Meta(ge=100)] = 1350
    """Height in pixels of the view and of a screenshot."""


def read_browser_settings() -> BrowserSettings:
    """As `cadre.settings.read` reads them."""
    return read(BrowserSettings, "CADRE_BROWSER_")


class Chromium:
    """A running Chromium with an empty profile: started and used in one thread, and ended with it at the latest."""

    def __init__(self, settings: BrowserSettings, proxy_port: int) -> None:
        """Raise BrowserUnavailable."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.downloads = self.folder / "downloads"
        self.downloads.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.driver = self._start(settings, proxy_port)
        except BaseException:
            self.close()
            raise

    def _start(self, settings: BrowserSettings, proxy_port: int) -> Any:
        remote, options_of, connection_of = _selenium()
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        boxed = settings.sandbox == "on" or (settings.sandbox == "auto" and not is_root)
        profile = self.folder / "profile"
        browser = self._spawn(
            settings.chromium,
            *_FLAGS,
            *([] if boxed else ["--no-sandbox"]),
            f"--window-size={settings.width},{settings.height}",
            f"--proxy-server=http://127.0.0.1:{proxy_port}",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "about:blank",
        )
        debugging = self._await_port(browser, profile / "DevToolsActivePort", r"^(\d+)\n")
        log = self.folder / "driver.log"
        driver = self._spawn(settings.driver, "--port=0", f"--log-path={log}", output=self.folder / "driver.out")
        port = self._await_port(driver, self.folder / "driver.out", r"successfully on port (\d+)\.")
        options = options_of()
        options.debugger_address = f"127.0.0.1:{debugging}"
        options.unhandled_prompt_behavior = "ignore"
        options.page_load_strategy = "normal"
        connection = connection_of(remote_server_addr=f"http://127.0.0.1:{port}", ignore_proxy=True)
        found = remote(command_executor=connection, options=options)
        found.set_page_load_timeout(PAGE_SECONDS)
        return found

    @property
    def is_alive(self) -> bool:
        """Return whether both processes run."""
        return all(process.poll() is None for process in self._processes)

    @property
    def pid(self) -> int:
        """The process id of the browser."""
        return self._processes[0].pid

    def cdp(self, command: str, **parameters: Any) -> dict[str, Any]:
        """Run a command of the Chrome DevTools Protocol in the tab in front."""
        answer = self.driver.execute("executeCdpCommand", {"cmd": command, "params": parameters})
        result: dict[str, Any] = answer["value"]
        return result

    def close(self) -> None:
        """End the processes and remove the profile."""
        for process in self._processes:
            # Not yet waited for, so the group is still its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, command: str, *arguments: str, output: Path | None = None) -> subprocess.Popen[bytes]:
        path = shutil.which(command)
        if path is None:
            raise BrowserUnavailable(f"there is no {command!r} on this machine: install Chromium with its driver")
        tie = [sys.executable, "-I", die_with_parent.__file__, str(os.getpid())]
        with (output or Path(os.devnull)).open("wb") as out:
            process = subprocess.Popen(
                [*tie, path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _await_port(self, process: subprocess.Popen[bytes], file: Path, sign: str) -> int:
        """Return the port that a process writes into a file when it is ready."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                if ready := re.search(sign, file.read_text(errors="replace")):
                    return int(ready[1])
            time.sleep(0.02)
        raise BrowserUnavailable("the browser did not start: `chromium --headless=new about:blank` may say why")


def sweep() -> None:
    """Remove profiles of services that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _selenium() -> tuple[Any, Any, Any]:
    try:
        from selenium.webdriver import ChromeOptions, Remote
        from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
    except ImportError as error:
        raise BrowserUnavailable(
            f"the browser needs {error.name}: install the extra browser (pip install 'cadre-agents[browser]')"
        ) from error
    return Remote, ChromeOptions, ChromeRemoteConnection
