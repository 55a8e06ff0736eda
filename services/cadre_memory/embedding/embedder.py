"""What makes dense vectors of texts, and which model it is."""

from __future__ import annotations

from typing import Protocol

import msgspec

Windows = list[list[float]]
"""Of one text: a vector for each of its windows."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Which model made a vector: two with the same fingerprint compare, others do not."""

    name: str
    dim: int
    window: int = 0
    """Most tokens that one vector stands for; 0: as many as the endpoint takes."""
    weights: str = ""
    """SHA-256 of the model's weights, where they are known."""

    def __str__(self) -> str:
        return f"{self.name} ({self.dim} dimensions)"


class Embedder(Protocol):
    """Both methods raise ModelUnavailable (ask again later) and ModelRefused (never these texts)."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    async def query(self, text: str) -> list[float]:
        """Goes before all documents that wait."""
        ...

    async def documents(self, texts: list[str]) -> list[Windows]:
        """In order; each text has one window or more."""
        ...

    async def close(self) -> None: ...
