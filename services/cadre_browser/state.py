"""What is kept of a browser: its tabs, how far the one in front is scrolled, and its cookies, as a file of the run."""

from typing import Any

import msgspec

from cadre.tool import ToolContext
from cadre.tools.workspace import NoSuchFile

_COOKIE = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite", "expires")


class BrowserState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a browser is opened again with."""

    tabs: list[str] = []
    """Addresses, in their order."""
    front: int = 0
    """Which of the tabs is in front."""
    x: float = 0
    """How far it is scrolled, in pixels."""
    y: float = 0
    cookies: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """The address in front; empty before there is one."""
        return self.tabs[self.front] if self.front < len(self.tabs) else ""


def cookie_to_keep(cookie: dict[str, Any]) -> dict[str, Any]:
    """A cookie as Chromium tells of it, in the form in which it takes it back."""
    kept = {key: cookie[key] for key in _COOKIE if key in cookie}
    if cookie.get("session") or kept.get("expires", 0) < 0:
        kept.pop("expires", None)
    return kept


def state_path(run: str, tree: str) -> str:
    """The state's path in the workspace: the same in a fork and in the next turn of a session, whose ids differ."""
    return f".browser/{run.removeprefix(tree).strip('_') or 'root'}.json"


async def read_state(context: ToolContext) -> BrowserState:
    """The run's last state; an empty one where there is none that can be read."""
    try:
        file = await context.workspace.read(state_path(context.run, context.tree))
        return msgspec.json.decode(file.data, type=BrowserState)
    except (NoSuchFile, msgspec.MsgspecError):
        return BrowserState()


async def write_state(context: ToolContext, state: BrowserState) -> None:
    """Keeps the state beside the run's journal."""
    await context.workspace.write(state_path(context.run, context.tree), msgspec.json.encode(state))
