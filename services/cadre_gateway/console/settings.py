"""The settings of the console: where its links lead."""

import msgspec

from cadre.errors import SettingError
from cadre.settings import read


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the console leads to: `CADRE_<FIELD>`."""

    trace_url: str = ""
    """Where people look at a trace, with `{trace_id}` in it; "" for nowhere."""

    def __post_init__(self) -> None:
        url = self.trace_url
        if url and not (url.startswith(("http://", "https://")) and "{trace_id}" in url):
            raise SettingError(
                f"CADRE_TRACE_URL is {url!r}: write an address that begins with http:// or https:// and"
                " has {trace_id} in it"
            )


def read_console_settings() -> ConsoleSettings:
    """The settings from the environment. Raises SettingError."""
    return read(ConsoleSettings, "CADRE_")
