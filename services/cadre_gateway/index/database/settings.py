"""Settings for where the index is kept."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from cadre.errors import SettingError
from cadre.settings import read
from cadre_gateway.index.database.port import Database
from cadre_gateway.index.database.sqlite import SqliteDatabase

_SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,39}")


class IndexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for where the index is kept: `CADRE_INDEX_<FIELD>`."""

    url: str = ""
    """`sqlite:///FILE`, a file of this gateway alone, with an absolute path; `postgresql://USER:PASSWORD@HOST/DATABASE`,
    shared by all gateways of a deployment; "" for a file that is gone with the process: the next one reads the
    journals from their start."""
    schema: str = "cadre_index"
    """In PostgreSQL: what the names of the tables' schemas begin with, another one for each deployment."""

    def __post_init__(self) -> None:
        if not _SCHEMA.fullmatch(self.schema):
            raise SettingError(
                f"CADRE_INDEX_SCHEMA is {self.schema!r}: write at most 40 small letters, digits and _, a letter first"
            )
        if not self.is_shared:
            self.path()
        elif find_spec("psycopg") is None:
            raise SettingError(
                "CADRE_INDEX_URL names PostgreSQL and the Python module 'psycopg' is not installed: pip install"
                " 'cadre-agents[postgres]'"
            )

    @classmethod
    def of_tenant(cls, name: str) -> IndexSettings:
        """Return the settings for one of several gateways in this process: a file next to that of the environment, or a
        schema."""
        settings = read_index_settings()
        if settings.is_shared:
            return cls(url=settings.url, schema=f"{settings.schema}_{_schema_part(name)}")
        path = settings.path()
        own = path.with_stem(f"{path.stem}-{name}") if path is not None else None
        return cls(url="" if own is None else f"sqlite://{quote(str(own), errors='surrogateescape')}")

    @property
    def is_shared(self) -> bool:
        """Return whether it is in PostgreSQL."""
        return urlsplit(self.url).scheme in ("postgresql", "postgres")

    def path(self) -> Path | None:
        """Return the file; None for one that is gone with the process. Raises SettingError."""
        if not self.url:
            return None
        parts = urlsplit(self.url)
        path = Path(unquote(parts.path, errors="surrogateescape"))
        if parts.scheme != "sqlite" or parts.netloc or not path.is_absolute() or not path.name:
            raise SettingError(
                f"CADRE_INDEX_URL is {self.url!r}: write sqlite:///FILE with an absolute path, or"
                " postgresql://USER:PASSWORD@HOST/DATABASE"
            )
        return path


def _schema_part(name: str) -> str:
    """Return the tenant's name where that is short and no other tenant's could be written alike, else a digest of
    it."""
    if re.fullmatch(r"[a-z0-9-]{1,12}", name):
        return name.replace("-", "_")
    return sha256(name.encode()).hexdigest()[:12]


def read_index_settings() -> IndexSettings:
    """Return the settings from the environment. Raises SettingError."""
    return read(IndexSettings, "CADRE_INDEX_")


def open_database(settings: IndexSettings) -> Database:
    """Return the database that the settings name. Raises SetupError, SettingError."""
    if settings.is_shared:
        # Its driver is an extra: no other gateway needs it.
        from cadre_gateway.index.database.postgres import PostgresDatabase

        return PostgresDatabase(settings.url, settings.schema)
    return SqliteDatabase(settings.path())
