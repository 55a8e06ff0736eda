"""Where the index is kept."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from cadre.errors import SettingError
from cadre.settings import read
from cadre_gateway.index.database import Database
from cadre_gateway.index.sqlite_database import SqliteDatabase


class IndexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the index is kept: `CADRE_INDEX_<FIELD>`."""

    url: str = ""
    """`sqlite:///FILE`, a file of this gateway alone, with an absolute path; "" for a file that is gone with the
    process: the next one reads the journals from their start."""

    def __post_init__(self) -> None:
        if self.url:
            self.path()

    @classmethod
    def of_tenant(cls, name: str) -> IndexSettings:
        """That of one of several gateways in this process: a file of its own beside the one of the environment."""
        path = read_index_settings().path()
        return cls(
            url="" if path is None else f"sqlite://{quote(str(path.with_stem(f'{path.stem}-{name}')))}"
        )

    def path(self) -> Path | None:
        """The file; None for one that is gone with the process. Raises SettingError."""
        if not self.url:
            return None
        parts = urlsplit(self.url)
        path = Path(unquote(parts.path))
        if parts.scheme != "sqlite" or parts.netloc or not path.is_absolute() or not path.name:
            raise SettingError(f"CADRE_INDEX_URL is {self.url!r}: write sqlite:///FILE with an absolute path")
        return path


def read_index_settings() -> IndexSettings:
    """The settings from the environment. Raises SettingError."""
    return read(IndexSettings, "CADRE_INDEX_")


def open_database(settings: IndexSettings) -> Database:
    """The database that the settings name. Raises SetupError."""
    return SqliteDatabase(settings.path())
