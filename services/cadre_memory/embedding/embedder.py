"""The interface for anything that makes dense vectors of texts, and the model that made them."""

from typing import Protocol

import msgspec

WindowVectors = list[list[float]]
"""The vectors of one text: one for each of its windows."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the model that made a vector: two vectors of the same fingerprint compare, others do not."""

    name: str
    dim: int
    window: int = 0
    """Maximum number of tokens that one vector stands for; 0: as many as the endpoint takes."""
    weights: str = ""
    """SHA-256 of the model's weights, where they are known."""

    def __str__(self) -> str:
        return f"{self.name} ({self.dim} dimensions)"


class Embedder(Protocol):
    """Makes vectors. Both methods raise ModelUnavailable (ask again later) and ModelRefused (never these texts)."""

    @property
    def fingerprint(self) -> Fingerprint:
        """The model that makes the vectors."""
        ...

    async def query(self, text: str) -> list[float]:
        """Return a query's vector. It goes before all documents that wait."""
        ...

    async def documents(self, texts: list[str]) -> list[WindowVectors]:
        """Return the vectors of each text, in order; a text has one window or more."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
