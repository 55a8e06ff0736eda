"""Settings of one memory service: the variables `CADRE_MEMORY_…` and `QDRANT_URL`."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cadre.errors import SettingError
from cadre.settings import read

Embeddings: TypeAlias = Literal["auto", "openai", "local", "none"]
"""The source of dense vectors; docs/memory.md explains the choices."""


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one `cadre memory`: each field is set by `CADRE_MEMORY_<FIELD>`, the last one by `QDRANT_URL`.

    The key of a Qdrant server is read where it is used, from `QDRANT_API_KEY`.
    """

    directory: str = ".cadre/memory"
    """The directory of the embedded index, and of what the local embeddings model builds."""
    keep_days: Annotated[float, Meta(ge=0)] = 0.0
    """Days after which a memory is removed; 0 keeps it for ever."""
    embeddings: Embeddings = "auto"
    """`openai`, `local`, `none`; `auto` is the first of them that is configured or installed."""
    embeddings_url: str = ""
    """Base URL of an OpenAI-compatible endpoint, with its /v1."""
    embeddings_model: str = ""
    """Name of the endpoint's model."""
    embeddings_key_env: str = "CADRE_EMBEDDINGS_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    embeddings_dim: Annotated[int, Meta(ge=0)] = 0
    """Dimensions to ask the endpoint for; 0: as many as its model has."""
    embeddings_seconds: Annotated[float, Meta(ge=0.05)] = 2.0
    """Seconds that a search waits for the vector of its query before it compares words only."""
    embeddings_batch: Annotated[int, Meta(ge=1)] = 16
    """Texts per request to the endpoint."""
    collections: str = "mem"
    """Begins the names of the collections, on a server that others use too."""
    qdrant_url: str = msgspec.field(default="", name="QDRANT_URL")
    """URL of a Qdrant server; without one a file keeps the index."""

    def __post_init__(self) -> None:
        if self.embeddings == "openai" and not self.embeddings_url:
            raise SettingError("CADRE_MEMORY_EMBEDDINGS=openai needs CADRE_MEMORY_EMBEDDINGS_URL")
        if self.embeddings_url and not self.embeddings_url.startswith(("http://", "https://")):
            raise SettingError(
                f"CADRE_MEMORY_EMBEDDINGS_URL={self.embeddings_url}: must begin with http:// or https://"
            )
        asked = self.embeddings in ("auto", "openai") and self.embeddings_url
        if asked and not self.embeddings_model:
            raise SettingError("CADRE_MEMORY_EMBEDDINGS_URL needs CADRE_MEMORY_EMBEDDINGS_MODEL: its model's name")
        if not self.directory.strip():
            raise SettingError("CADRE_MEMORY_DIRECTORY is empty: name a folder")


def read_memory_settings(**options: object) -> MemorySettings:
    """As `cadre.settings.read` reads them. Raises SettingError."""
    return read(MemorySettings, "CADRE_MEMORY_", **options)
